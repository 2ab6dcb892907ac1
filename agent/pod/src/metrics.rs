//! Metrics of the pod network: a histogram for each stage of ADD and DEL, and counts of repaired leaks. The pod network
//! writes them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Bounds from 50 µs, doubled up to 1.6 s: a synced record takes 100 µs, the removal of a link some 20 ms.
const BUCKETS: (f64, f64, u16) = (5e-5, 2.0, 16);

/// A request on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// ADD.
    Add,
    /// DEL, and every other removal of a pod from the network.
    Del,
}

/// A stage of ADD or DEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The journal: reserve, confirm, release or free an address.
    Journal,
    /// The host side of the veth pair: created or deleted.
    Host,
    /// The pod's side: addresses, routes.
    Inside,
    /// The data path: pod table and programs.
    Datapath,
}

/// A repaired leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repaired {
    /// A lease whose pod vanished, or whose ADD or DEL was interrupted.
    Lease,
    /// A link without a lease.
    Link,
    /// A pod that the journal had lost.
    Adopted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    command: Command,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairedLabels {
    what: Repaired,
}

impl EncodeLabelValue for Command {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
        })
    }
}

impl EncodeLabelValue for Stage {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Journal => "journal",
            Self::Host => "host",
            Self::Inside => "inside",
            Self::Datapath => "datapath",
        })
    }
}

impl EncodeLabelValue for Repaired {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Lease => "lease",
            Self::Link => "link",
            Self::Adopted => "adopted",
        })
    }
}

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct WiringMetrics {
    stages: Family<StageLabels, Histogram, fn() -> Histogram>,
    repaired: Family<RepairedLabels, Counter>,
}

impl Default for WiringMetrics {
    fn default() -> Self {
        Self {
            stages: Family::new_with_constructor(histogram),
            repaired: Family::default(),
        }
    }
}

fn histogram() -> Histogram {
    let (first, factor, count) = BUCKETS;
    Histogram::new(exponential_buckets(first, factor, count))
}

impl WiringMetrics {
    /// Records the duration of a stage.
    pub fn took(&self, command: Command, stage: Stage, took: Duration) {
        let labels = StageLabels { command, stage };
        self.stages
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts a repaired leak.
    pub fn repaired(&self, what: Repaired) {
        self.repaired.get_or_create(&RepairedLabels { what }).inc();
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Duration of each stage of ADD and DEL, in seconds";
        registry.register(
            "dormouse_cni_stage_duration_seconds",
            help,
            self.stages.clone(),
        );
        let help = "Repaired leaks of crashes and of vanished pods, by kind";
        registry.register("dormouse_addresses_reclaimed", help, self.repaired.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_values_are_exported() {
        let metrics = WiringMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.took(Command::Add, Stage::Host, Duration::from_millis(1));
        metrics.repaired(Repaired::Lease);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"dormouse_cni_stage_duration_seconds_count{command="ADD",stage="host"} 1"#,
            r#"dormouse_addresses_reclaimed_total{what="lease"} 1"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
