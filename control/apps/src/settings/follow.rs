//! Follows the ConfigMap in the store. One that is not valid changes nothing: the last valid one stays in force. Of the first one that is
//! read, the keys that are valid count.

use std::sync::Arc;
use std::time::Duration;

use dormouse_autoscaler::Settings;
use dormouse_autoscaler::settings::{Cluster, Given};
use dormouse_cluster::client::KeyRange;
use dormouse_cluster::{App, Client, ClientError, Object, StoredApp, autoscaler_config, vip};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::controller::checks::{Check, answer};
use crate::event::{Event, ShardEvent};
use crate::shared::Shared;
use dormouse_cluster::client::chain;

/// Pause after a page of apps, so that at most 5,000 are started in a second.
const PAGE_PAUSE: Duration = Duration::from_millis(200);
/// Interval of the reads of the ConfigMap.
const INTERVAL: Duration = Duration::from_secs(1);

/// The ConfigMap as it was read last.
#[derive(Debug, Default)]
struct Seen {
    /// Its revision in the store; 0: there is none.
    revision: u64,
    is_invalid: bool,
}

/// Follows the ConfigMap.
pub(crate) struct Follower {
    store: Client,
    shared: Arc<Shared>,
    queues: Vec<mpsc::Sender<ShardEvent>>,
    seen: Seen,
    /// The ConfigMap was read once: there are settings before the next one.
    has_begun: bool,
    /// Sleeping apps have to be looked at: their number of pods may be another one now.
    is_pending: bool,
    checks: mpsc::Receiver<Check>,
}

impl Follower {
    /// Follows the ConfigMap for `shared`. What follows for sleeping apps is sent to
    /// the `queues` of the shards.
    pub(crate) fn new(
        store: Client,
        shared: Arc<Shared>,
        queues: Vec<mpsc::Sender<ShardEvent>>,
        checks: mpsc::Receiver<Check>,
    ) -> Self {
        Self {
            store,
            shared,
            queues,
            seen: Seen::default(),
            has_begun: false,
            is_pending: false,
            checks,
        }
    }

    /// Reads the ConfigMap until that succeeds: apps that are listed afterwards have its settings.
    pub(crate) async fn first(&mut self) {
        let mut times = interval(INTERVAL);
        loop {
            times.tick().await;
            match self.read().await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot read the autoscaler's ConfigMap");
                }
            }
        }
        self.has_begun = true;
        self.is_pending = false;
    }

    /// Follows the ConfigMap until it is dropped. Reads that fail are repeated.
    pub(crate) async fn run(mut self) {
        let mut times = interval(INTERVAL);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = times.tick() => {}
                Some(check) = self.checks.recv() => {
                    answer(check);
                    continue;
                }
            }
            if self.read().await.is_ok() && self.is_pending {
                self.is_pending = false;
                if self.start_sleeping().await.is_err() {
                    self.is_pending = true;
                }
            }
        }
    }

    /// Reads the ConfigMap, and puts it in force if it has changed.
    async fn read(&mut self) -> Result<(), ClientError> {
        let map: Option<ConfigMap> = match self.store.get(&autoscaler_config::key()).await {
            Err(error @ ClientError::Malformed { .. }) => {
                self.refuse(&chain(&error));
                return Ok(());
            }
            read => read?,
        };
        let revision = map.as_ref().map_or(0, Object::revision);
        if revision == self.seen.revision && !(revision == 0 && self.seen.is_invalid) {
            return Ok(());
        }
        self.seen.revision = revision;
        let defaults = self.shared.settings.defaults().clone();
        let map = map.unwrap_or_default();
        match autoscaler_config::settings(&map, defaults.clone()) {
            Ok(settings) => self.put_in_force(settings),
            Err(refused) => {
                if !self.has_begun {
                    let valid = autoscaler_config::settings_of_valid_keys(&map, &defaults);
                    self.put_in_force(valid);
                }
                self.refuse(&refused.to_string());
            }
        }
        Ok(())
    }

    fn put_in_force(&mut self, settings: Cluster) {
        self.seen.is_invalid = false;
        self.shared.metrics.config_invalid.set(0);
        let before = self.shared.settings.get();
        if *before == settings {
            return;
        }
        self.is_pending |= raises_pods(&before, &settings);
        tracing::info!("the autoscaler's settings have changed");
        self.shared.settings.set(Arc::new(settings));
    }

    fn refuse(&mut self, error: &str) {
        if !self.seen.is_invalid {
            let config_map = autoscaler_config::key();
            tracing::warn!(
                %config_map, error,
                "the autoscaler's ConfigMap is not valid: the settings before it stay in force, or after a start those of its valid keys"
            );
        }
        self.seen.is_invalid = true;
        self.shared.metrics.config_invalid.set(1);
    }

    /// Wakes the sleeping apps that have pods without load now: one pass over the store, page by page. The ConfigMap is read meanwhile, and
    /// counts for the pages after it; the pass ends when no app has pods without load because of it any more, and if it raises their
    /// number again, another pass follows.
    async fn start_sleeping(&mut self) -> Result<(), ClientError> {
        let mut from = Some(KeyRange::of_prefix(App::PREFIX));
        while let Some(range) = from {
            let (apps, rest) = self.store.stored_apps(&range).await?;
            // Its status may be older than its pods: an app that has pods ignores it.
            let settings = self.shared.settings.get();
            let starts = |app: &&StoredApp| app.pods_idle(&settings) > 0;
            let mut started = false;
            for app in apps.iter().filter(starts) {
                self.start(app).await;
                started = true;
            }
            if started {
                // Requests to other apps that sleep are not behind all of these.
                tokio::time::sleep(PAGE_PAUSE).await;
                if let Ok(check) = self.checks.try_recv() {
                    answer(check);
                }
                self.read().await?;
                if silent(&self.shared.settings.get()).pods_idle() == 0 {
                    return Ok(());
                }
            }
            from = rest;
        }
        Ok(())
    }

    async fn start(&self, app: &StoredApp) {
        let ranges = &self.shared.config.ranges;
        let Some(vip) = app.vip.and_then(|vip| vip::index_of(ranges, vip)) else {
            return;
        };
        let shard = self.shared.shards.of(vip.0);
        // It is closed only at shutdown.
        let start = ShardEvent::App(Event::Start { vip: vip.0 });
        drop(self.queues[shard].send(start).await);
    }
}

/// Whether an app may have more pods without load than before.
fn raises_pods(before: &Cluster, after: &Cluster) -> bool {
    let (before, after) = (silent(before), silent(after));
    after.min_scale > before.min_scale
        || (before.enable_scale_to_zero && !after.enable_scale_to_zero)
}

/// The settings of an app that sets none.
fn silent(cluster: &Cluster) -> Settings {
    cluster.settings(&Given::default(), 0, true)
}

#[cfg(test)]
mod tests;
