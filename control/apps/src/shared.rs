//! What the shards share. Each part has its own lock, which is held for a moment, and while it is no other one is taken.

use parking_lot::Mutex;

use crate::admission::Admission;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::pod::Names;
use crate::ports::Ports;
use crate::settings::InForce;
use crate::shards::Shards;

/// The parts that are one for all shards.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The autoscaling settings of apps that set none.
    pub(crate) settings: InForce,
    pub(crate) shards: Shards,
    pub(crate) admission: Admission,
    pub(crate) ports: Mutex<Ports>,
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
}

impl Shared {
    /// The parts of a controller with no apps. `seed` must differ between starts.
    pub(crate) fn new(config: Config, shards: Shards, seed: u64) -> Self {
        let metrics = Metrics::default();
        let waiting = metrics.waiting.clone();
        Self {
            settings: InForce::new(config.scale_to_zero_grace),
            shards,
            admission: Admission::new(config.limits, shards, waiting),
            ports: Mutex::default(),
            names: Names::new(seed),
            metrics,
            config,
        }
    }
}
