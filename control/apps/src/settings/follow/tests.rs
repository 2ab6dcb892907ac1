//! The ConfigMap in a store: valid, not valid and deleted ones, and the pass over sleeping apps.

use std::collections::BTreeMap;

use dormouse_cluster::{Key, VipIndex, VipRange, channel};
use dormouse_store::Store;
use dormouse_store::server::{Options, Server};
use etcd_client::{Txn, TxnOp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::admission::Limits;
use crate::config::Config;
use crate::controller::checks::Checks;
use crate::shards::Shards;

/// Apps of a page.
const PAGE: usize = 1_000;

struct World {
    store: Client,
    shared: Arc<Shared>,
    follower: Follower,
    starts: mpsc::Receiver<ShardEvent>,
    checks: Checks,
}

impl World {
    /// A store without a ConfigMap, with so many sleeping apps.
    async fn new(apps: u32) -> Self {
        let none = Vec::<TcpListener>::new();
        let shutdown = CancellationToken::new();
        let server = Server::new(none, Store::new(), Options::default(), shutdown).unwrap();
        let store = Client::over(channel::in_process(server.in_process()));
        let store = store.await.unwrap();
        let range: VipRange = "fd00:10::/108".parse().unwrap();
        let puts: Vec<_> = (0..apps)
            .map(|number| asleep(number, range, &json!({})))
            .collect();
        for puts in puts.chunks(100) {
            let txn = Txn::new().and_then(puts.to_vec());
            store.txn(txn).await.unwrap();
        }
        let config = Config {
            ranges: vec![range],
            scale_to_zero_grace: Duration::from_secs(30),
            tick: Duration::from_secs(2),
            epoch: 1,
            node_lease: Duration::from_secs(10),
            limits: Limits::default(),
        };
        let shared = Arc::new(Shared::new(config, Shards::new(1), 1));
        let mut checks = Checks::default();
        // A shard takes one event at a time.
        let (queue, starts) = mpsc::channel(1);
        let follower = Follower::new(
            store.clone(),
            Arc::clone(&shared),
            vec![queue],
            checks.add(),
        );
        Self {
            store,
            shared,
            follower,
            starts,
            checks,
        }
    }

    /// A world whose control has begun with these entries.
    async fn begun(apps: u32, entries: &[(&str, &str)]) -> Self {
        let mut world = Self::new(apps).await;
        world.write(entries).await;
        world.follower.first().await;
        world
    }

    /// Another client of the store writes the ConfigMap.
    async fn write(&self, entries: &[(&str, &str)]) {
        write(&self.store, entries).await;
    }

    async fn read(&mut self) {
        self.follower.read().await.unwrap();
    }

    fn min(&self) -> i32 {
        silent(&self.shared.settings.get()).min_scale
    }

    fn is_invalid(&self) -> bool {
        self.shared.metrics.config_invalid.get() == 1
    }

    /// Makes a pass over the sleeping apps, which stands still after so many starts until `meanwhile` is done; returns the number of
    /// apps that it has started.
    async fn pass(&mut self, starts: usize, meanwhile: &[(&str, &str)]) -> usize {
        let mut pass = Box::pin(self.follower.start_sleeping());
        let mut started = 0;
        loop {
            tokio::select! {
                biased;
                Some(_) = self.starts.recv() => {
                    started += 1;
                    if started == starts {
                        write(&self.store, meanwhile).await;
                    }
                }
                ended = &mut pass => {
                    ended.unwrap();
                    return started;
                }
            }
        }
    }
}

/// The write of a sleeping app.
fn asleep(number: u32, range: VipRange, scale: &Value) -> TxnOp {
    let name = format!("app-{number:05}");
    let app = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"vip": range.address_of(VipIndex(16 + number)), "container": {"name": "app"}, "scale": scale},
        "status": {"state": "Asleep", "mode": "Proxy"},
    });
    TxnOp::put(App::path(&Key::new("shop", &name)), app.to_string(), None)
}

/// Writes the ConfigMap, as a client does that is not the API; deletes it without entries.
async fn write(store: &Client, entries: &[(&str, &str)]) {
    let path = ConfigMap::path(&autoscaler_config::key());
    let data: BTreeMap<_, _> = entries.iter().copied().collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": autoscaler_config::NAME, "namespace": autoscaler_config::NAMESPACE},
    });
    let operation = if entries.is_empty() {
        TxnOp::delete(path, None)
    } else {
        TxnOp::put(path, map.to_string(), None)
    };
    store.txn(Txn::new().and_then([operation])).await.unwrap();
}

const MIN_1: &[(&str, &str)] = &[("min-scale", "1")];
const MIN_2: &[(&str, &str)] = &[("min-scale", "2")];
const INVALID: &[(&str, &str)] = &[("min-scale", "7"), ("stable-window", "1s")];

#[tokio::test]
async fn the_last_valid_settings_stay_until_there_are_other_valid_ones() {
    let mut world = World::begun(0, MIN_1).await;
    assert_eq!((world.min(), world.is_invalid()), (1, false));
    world.write(INVALID).await;
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (1, true));
    world.write(MIN_2).await;
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (2, false));
}

#[tokio::test]
async fn without_a_config_map_the_defaults_are_in_force_also_after_one_that_is_not_valid() {
    let mut world = World::begun(0, MIN_1).await;
    world.write(&[]).await;
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (0, false));
    world.write(MIN_1).await;
    world.read().await;
    world.write(INVALID).await;
    world.read().await;
    world.write(&[]).await;
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (0, false));
}

#[tokio::test]
async fn at_a_start_the_valid_keys_of_a_config_map_count() {
    let mut world = World::begun(0, INVALID).await;
    assert_eq!((world.min(), world.is_invalid()), (7, true));
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (7, true));
    world.write(MIN_1).await;
    world.read().await;
    assert_eq!((world.min(), world.is_invalid()), (1, false));
}

#[tokio::test]
async fn a_pass_starts_all_sleeping_apps_once() {
    let mut world = World::begun(2_500, &[]).await;
    world.write(MIN_1).await;
    world.read().await;
    assert!(world.follower.is_pending);
    assert_eq!(world.pass(0, &[]).await, 2_500);
}

#[tokio::test]
async fn a_pass_over_many_apps_ends_with_its_page_when_the_setting_is_taken_back() {
    let mut world = World::begun(5_000, &[]).await;
    // The last one would be started if its page was read.
    let last = asleep(5_000, world.shared.config.ranges[0], &json!({"min": 1}));
    world.store.txn(Txn::new().and_then([last])).await.unwrap();
    world.write(MIN_1).await;
    world.read().await;
    world.follower.is_pending = false;
    assert_eq!(world.pass(PAGE + 1, &[]).await, 2 * PAGE);
    assert_eq!((world.min(), world.follower.is_pending), (0, false));
}

#[tokio::test]
async fn a_change_during_a_pass_counts_for_the_pages_after_it_and_another_pass_follows() {
    let mut world = World::begun(2_500, &[]).await;
    world.write(MIN_1).await;
    world.read().await;
    world.follower.is_pending = false;
    assert_eq!(world.pass(10, MIN_2).await, 2_500);
    assert_eq!((world.min(), world.follower.is_pending), (2, true));
}

#[tokio::test]
async fn a_config_map_that_is_not_valid_does_not_end_a_pass() {
    let mut world = World::begun(1_500, &[]).await;
    world.write(MIN_1).await;
    world.read().await;
    assert_eq!(world.pass(10, INVALID).await, 1_500);
    assert_eq!((world.min(), world.is_invalid()), (1, true));
}

#[test]
fn a_higher_minimum_and_an_end_of_scaling_to_zero_raise_the_number_of_pods() {
    let of = |entries: &[(&str, &str)]| {
        let entries = entries.iter();
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let defaults = Cluster::starting_asleep(1);
        defaults.with_entries(&entries.collect()).unwrap()
    };
    let (none, one) = (of(&[]), of(&[("min-scale", "1")]));
    let never_zero = of(&[("min-scale", "1"), ("enable-scale-to-zero", "false")]);
    assert!(raises_pods(&none, &one) && !raises_pods(&one, &none));
    assert!(
        raises_pods(&one, &never_zero),
        "apps with a minimum of their own, 0"
    );
    assert!(!raises_pods(&never_zero, &one));
    assert!(!raises_pods(&none, &of(&[("stable-window", "40s")])));
}

#[tokio::test]
async fn the_loop_answers_the_check_of_readiness_until_it_ends() {
    let world = World::begun(1, &[]).await;
    let running = tokio::spawn(world.follower.run());
    assert!(world.checks.run().await);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!world.checks.run().await);
}
