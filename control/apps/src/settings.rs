//! The autoscaling settings of apps that set none: Dormouse's defaults, and over them the ConfigMap `config-autoscaler`.

pub(crate) mod follow;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dormouse_autoscaler::settings::Cluster;
use parking_lot::Mutex;

/// Apps with a window up to this long decide every second, others every [`TICK`]: a panic window must contain two ticks.
pub(crate) const SHORT_WINDOW: Duration = Duration::from_secs(10);
/// Interval of the decisions of apps with longer windows; Knative's.
pub const TICK: Duration = Duration::from_secs(2);

/// The settings in force. An awake app compares its number with the one here at each decision, so a change is no work for apps that
/// sleep.
#[derive(Debug)]
pub(crate) struct InForce {
    defaults: Cluster,
    cluster: Mutex<Arc<Cluster>>,
    number: AtomicU32,
}

impl InForce {
    /// Dormouse's defaults. `grace` is the time in proxy mode before the last pod is removed.
    pub(crate) fn new(grace: Duration) -> Self {
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let defaults = Cluster::starting_asleep(grace_ms);
        Self {
            cluster: Mutex::new(Arc::new(defaults.clone())),
            defaults,
            number: AtomicU32::new(0),
        }
    }

    /// The settings without a ConfigMap.
    pub(crate) fn defaults(&self) -> &Cluster {
        &self.defaults
    }

    /// The settings.
    pub(crate) fn get(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.lock())
    }

    /// How often they have changed.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Replaces the settings.
    pub(crate) fn set(&self, cluster: Arc<Cluster>) {
        *self.cluster.lock() = cluster;
        self.number.fetch_add(1, Ordering::Release);
    }
}
