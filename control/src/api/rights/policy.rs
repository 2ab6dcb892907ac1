//! The policy in memory: it follows the roles and bindings in the store, and writes the aggregated ClusterRoles and what is missing of the
//! policy that exists from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_cluster::follow::{Followed, follow};
use dormouse_cluster::{Client, ClientError, Guard, Key, Object};
use dormouse_rbac::{Policy, builtin};
use futures::future::try_join_all;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::{Api, Failure, Kind, kind::Rules, storage, write::draft};

/// Pause before a failed write is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// The kinds of which the policy consists.
const KINDS: usize = 4;

/// The policy of the cluster.
#[derive(Default)]
pub(in crate::api) struct Followers {
    policy: RwLock<Policy>,
    /// The kinds whose first list was read.
    listed: AtomicUsize,
}

/// Sets or removes an object of the policy.
type Set<K> = fn(&mut Policy, &Key, Option<&K>);

impl Followers {
    /// The policy now.
    pub(in crate::api) fn read(&self) -> RwLockReadGuard<'_, Policy> {
        self.policy.read()
    }

    /// Whether all roles and bindings were read.
    pub(in crate::api) fn is_complete(&self) -> bool {
        self.listed.load(Ordering::Acquire) >= KINDS
    }

    /// Follows the store until `shutdown`.
    pub(in crate::api) fn start(self: &Arc<Self>, client: &Client, shutdown: &CancellationToken) {
        self.follow::<Role>(client, shutdown, |policy, key, role| {
            policy.set_role(&key.namespace, &key.name, role);
        });
        self.follow::<ClusterRole>(client, shutdown, |policy, key, role| {
            policy.set_cluster_role(&key.name, role);
        });
        self.follow::<RoleBinding>(client, shutdown, |policy, key, binding| {
            policy.set_role_binding(&key.namespace, &key.name, binding);
        });
        self.follow::<ClusterRoleBinding>(client, shutdown, |policy, key, binding| {
            policy.set_cluster_role_binding(&key.name, binding);
        });
    }

    fn follow<K: Object>(
        self: &Arc<Self>,
        client: &Client,
        shutdown: &CancellationToken,
        set: Set<K>,
    ) {
        let followed = follow::<K>(client.clone(), shutdown.clone());
        let (followers, client) = (Arc::clone(self), client.clone());
        tokio::spawn(async move { followers.run(followed, set, &client).await });
    }

    async fn run<K: Object>(
        &self,
        mut followed: mpsc::Receiver<Vec<Followed<K>>>,
        set: Set<K>,
        client: &Client,
    ) {
        let (mut is_listed, mut has_failed) = (false, false);
        loop {
            let batch = if has_failed {
                timeout(PAUSE, followed.recv())
                    .await
                    .unwrap_or(Some(Vec::new()))
            } else {
                followed.recv().await
            };
            let Some(batch) = batch else { return };
            if self.apply(&batch, set) && !is_listed {
                is_listed = true;
                self.listed.fetch_add(1, Ordering::Release);
            }
            let may_aggregate = K::PLURAL == ClusterRole::PLURAL;
            has_failed = may_aggregate && !self.aggregate(client).await;
        }
    }

    /// Applies changes; true: a list of all objects ends among them.
    fn apply<K: Object>(&self, batch: &[Followed<K>], set: Set<K>) -> bool {
        let mut policy = self.policy.write();
        let mut ends_list = false;
        for one in batch {
            match one {
                Followed::Object(key, object) => set(&mut policy, key, object.as_deref()),
                Followed::Listed => ends_list = true,
            }
        }
        ends_list
    }

    /// Writes the aggregated roles whose rules have changed; false: a write has failed. The watch delivers them: then come those that
    /// aggregate them.
    async fn aggregate(&self, client: &Client) -> bool {
        let outdated = self.policy.read().outdated();
        let written = outdated.into_iter().map(async |role| {
            let guard = Guard::at(role.revision());
            match client.update(role, &guard).await {
                // The watch delivers what the other writer wrote.
                Ok(_) | Err(ClientError::Conflict { .. } | ClientError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        });
        let written = try_join_all(written).await;
        written
            .inspect_err(|error| {
                warn!(%error, "an aggregated ClusterRole could not be written, trying again");
            })
            .is_ok()
    }
}

/// Writes what is missing of the policy that exists from the start, until that has succeeded.
pub(in crate::api) async fn provide(api: &Api) {
    while let Err(failure) = written(api).await {
        let reason = failure.message();
        warn!(
            reason,
            "the roles that exist from the start could not be written, trying again"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

async fn written(api: &Api) -> Result<(), Failure> {
    let (roles, bindings) = (builtin::roles(), builtin::bindings());
    let roles = roles
        .iter()
        .map(|one| one_written(api, one, builtin::repaired_role));
    try_join_all(roles).await?;
    let bindings = bindings
        .iter()
        .map(|one| one_written(api, one, builtin::repaired_binding));
    try_join_all(bindings).await?;
    Ok(())
}

/// Creates an object, or adds what the stored one lacks.
async fn one_written<K: Kind>(
    api: &Api,
    wanted: &K,
    repaired: fn(&K, &K) -> Option<K>,
) -> Result<(), Failure> {
    let key = wanted.key();
    let failed = |error| Failure::of_client::<K>(&error, &key);
    let written = match storage::find::<K>(api, &key).await? {
        None => {
            let object = draft::created::<K>(storage::to_json(wanted)?, &key, &Rules::of(api))?;
            api.client.create(&object).await.map(drop)
        }
        Some(stored) => match repaired(&stored, wanted) {
            Some(new) => api
                .client
                .update(new, &Guard::at(stored.revision()))
                .await
                .map(drop),
            None => Ok(()),
        },
    };
    written.map_err(failed)
}
