//! The apps of a run: their names, their VIPs, and how they get into the store in large transactions.

use std::net::Ipv6Addr;

use anyhow::{Result, ensure};
use dormouse_cluster::app::{PROGRESS_DEADLINE_DEFAULT_S, REVISION_HISTORY_LIMIT_DEFAULT};
use dormouse_cluster::client::Guard;
use dormouse_cluster::vip::{VIP_ALLOCATE_FROM, VIP_INDEX_END};
use dormouse_cluster::{
    App, AppSpec, AppStatus, Client, Key, Mode, Object, Period, Protocol, Revision, Scale, State,
    claim, client, history,
};
use etcd_client::{Txn, TxnOp};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Container, EnvVar};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

/// Namespaces over which the apps are spread.
const TENANTS: u32 = 100;
/// Apps of one transaction; each has two keys, and etcd accepts 128 operations.
const APPS_PER_TXN: usize = 60;
/// Transactions in flight.
const TXNS: usize = 4;
/// The image of the apps, and that of their next template.
pub(crate) const IMAGES: [&str; 2] = [
    "registry.example/shop/app:1.0",
    "registry.example/shop/app:2.0",
];
/// The port of every app.
pub(crate) const PORT: u16 = 8088;

/// The apps of a measurement: those with the numbers from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Fleet {
    /// The number of the first app.
    pub(crate) first: u32,
    /// How many there are.
    pub(crate) count: u32,
    /// What their names begin with.
    pub(crate) stem: &'static str,
    /// Seconds without load after which they fall asleep.
    pub(crate) window_s: u32,
    /// Whether connections go directly to their pods.
    pub(crate) direct: bool,
}

impl Fleet {
    /// Apps with the defaults of a manifest.
    pub(crate) const fn usual(first: u32, count: u32) -> Self {
        Self {
            first,
            count,
            stem: "app",
            window_s: 60,
            direct: false,
        }
    }

    /// The VIP indexes of the apps.
    pub(crate) fn vips(self) -> impl Iterator<Item = u32> + Clone {
        (self.first..self.first + self.count).map(vip)
    }

    /// The name of the app with this VIP index.
    pub(crate) fn key(self, vip: u32) -> Key {
        let number = vip.saturating_sub(VIP_ALLOCATE_FROM);
        Key::new(
            format!("tenant-{:03}", number % TENANTS),
            format!("{}-{number:06}", self.stem),
        )
    }

    /// Puts all apps into the store as the API would: asleep, each with the claim of its VIP.
    pub(crate) async fn put(self, store: &Client) -> Result<()> {
        ensure!(
            self.first + self.count + VIP_ALLOCATE_FROM <= VIP_INDEX_END,
            "there are only {VIP_INDEX_END} VIPs"
        );
        self.write(store, APPS_PER_TXN, |vip| {
            let app = self.app(vip);
            let owner = format!("{}", app.key());
            let value = client::encode(&app)?;
            Ok(vec![
                TxnOp::put(App::path(&app.key()), value, None),
                TxnOp::put(format!("{}{vip:08x}", claim::PREFIX), owner, None),
            ])
        })
        .await
    }

    /// Writes what `operations` gives for each app's VIP, for so many apps in one transaction.
    async fn write(
        self,
        store: &Client,
        apps_per_txn: usize,
        operations: impl Fn(u32) -> Result<Vec<TxnOp>>,
    ) -> Result<()> {
        let vips: Vec<u32> = self.vips().collect();
        let operations = &operations;
        let writes = vips.chunks(apps_per_txn).map(|vips| async move {
            let all: Result<Vec<_>> = vips.iter().map(|vip| operations(*vip)).collect();
            store.txn(Txn::new().and_then(all?.concat())).await?;
            anyhow::Ok(())
        });
        stream::iter(writes)
            .buffer_unordered(TXNS)
            .try_collect::<()>()
            .await
    }

    /// Deletes all apps from the store.
    pub(crate) async fn remove(self, store: &Client) -> Result<()> {
        for vip in self.vips() {
            store
                .delete::<App>(&self.key(vip), &Guard::default())
                .await?;
        }
        Ok(())
    }

    /// Puts so many earlier revisions of each app into the store, and the app as it is after those: the newest one was ready.
    pub(crate) async fn put_revisions(self, store: &Client, revisions: u32) -> Result<()> {
        let per_txn = APPS_PER_TXN / usize::try_from(revisions + 1)?;
        self.write(store, per_txn, |vip| {
            let mut app = self.app(vip);
            let status = app.status.get_or_insert_default();
            status.revision = Some(revisions + 1);
            status.ready_revision = Some(revisions + 1);
            status.previous_revision = Some(revisions);
            status.earlier_ready_revisions = vec![revisions];
            let own = TxnOp::put(App::path(&app.key()), client::encode(&app)?, None);
            let put = |number| {
                let revision = history::revision(&app, number);
                let value = client::encode(&revision)?;
                Ok(TxnOp::put(Revision::path(&revision.key()), value, None))
            };
            let own = std::iter::once(Ok(own));
            own.chain((1..=revisions).map(put)).collect()
        })
        .await
    }

    /// The manifest of an app with its next template, as a document of YAML.
    pub(crate) fn manifest(self, vip: u32) -> String {
        let app = self.app(vip);
        let mut spec = serde_json::json!(app.spec);
        spec["container"]["image"] = IMAGES[1].into();
        // The API requires one, as no node of a cluster without images could run the app.
        spec["container"]["command"] = serde_json::json!(["serve"]);
        let key = app.key();
        let manifest = serde_json::json!({
            "apiVersion": "dormouse.dev/v1alpha1",
            "kind": "App",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": spec,
        });
        format!("---\n{manifest}\n")
    }

    fn app(self, vip: u32) -> App {
        let key = self.key(vip);
        let address = Ipv6Addr::from(0xfd00_0010_u128 << 96 | u128::from(vip));
        App {
            metadata: ObjectMeta {
                name: Some(key.name),
                namespace: Some(key.namespace),
                uid: Some(format!("00000000-0000-4000-8000-{vip:012x}")),
                creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            spec: AppSpec {
                vip: Some(address),
                port: PORT,
                target_port: None,
                protocol: Protocol::Http,
                container: container(),
                node_selector: std::collections::BTreeMap::default(),
                termination_grace_period_seconds: 30,
                timeout: Period::seconds(300),
                wake_timeout: None,
                scale: Scale {
                    max: Some(10),
                    window: Some(Period::seconds(self.window_s)),
                    target_burst_capacity: self.direct.then_some(0.0),
                    ..Scale::default()
                },
                revision_history_limit: REVISION_HISTORY_LIMIT_DEFAULT,
                progress_deadline_seconds: PROGRESS_DEADLINE_DEFAULT_S,
                paused: false,
                traffic: Vec::new(),
                rollout: None,
                sticky: None,
            },
            status: Some(AppStatus {
                vip: Some(address),
                state: State::Asleep,
                mode: Mode::Proxy,
                ..AppStatus::default()
            }),
        }
    }
}

fn container() -> Container {
    Container {
        name: "app".to_owned(),
        image: Some(IMAGES[0].to_owned()),
        env: Some(vec![EnvVar {
            name: "GREETING".to_owned(),
            value: Some("hello".to_owned()),
            value_from: None,
        }]),
        ..Container::default()
    }
}

/// The VIP index of the app with this number.
pub(crate) fn vip(number: u32) -> u32 {
    number + VIP_ALLOCATE_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_stored_as_the_api_stores_it() {
        let fleet = Fleet::usual(0, 200_000);
        let app = fleet.app(vip(123));
        assert_eq!(
            App::path(&app.key()),
            "/registry/dormouse.dev/apps/tenant-023/app-000123"
        );
        assert_eq!(app.vip().unwrap().to_string(), "fd00:10::8b");
        let bytes = client::encode(&app).unwrap();
        let read: App = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, app);
    }
}
