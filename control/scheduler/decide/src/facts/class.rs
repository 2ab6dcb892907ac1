//! What a profile reads of a pod and, for it, of a node.

use std::collections::BTreeSet;

use super::NodeView;
use crate::labels::HOSTNAME;
use crate::node_selector::Preferences;
use crate::plugins::image_locality::Images;
use crate::plugins::{Cycle, Scorer, node_affinity, node_resources_fit, taint_toleration};
use crate::plugins::{balanced_allocation, node_unschedulable};
use crate::pod::Pod;
use crate::profile::{Profile, Strategy};
use crate::requests::Requests;
use crate::resources::{CPU, MEMORY};
use crate::snapshot::Snapshot;
use crate::status::Plugin;

/// The amounts that a pod requests, as each plugin counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// CPU for the filter, thousandths.
    pub cpu: i64,
    /// Memory for the filter, bytes.
    pub memory: i64,
    /// Local storage for the filter, bytes.
    pub storage: i64,
    /// CPU for the score of NodeResourcesFit.
    pub scored_cpu: i64,
    /// Memory for the score of NodeResourcesFit.
    pub scored_memory: i64,
    /// CPU for NodeResourcesBalancedAllocation.
    pub balanced_cpu: i64,
    /// Memory for NodeResourcesBalancedAllocation.
    pub balanced_memory: i64,
}

/// The weights of scores; 0 for a plugin that does not score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// NodeResourcesFit.
    pub fit: i64,
    /// NodeResourcesBalancedAllocation.
    pub balanced: i64,
    /// TaintToleration.
    pub taints: i64,
    /// NodeAffinity.
    pub affinity: i64,
    /// ImageLocality.
    pub images: i64,
    /// PodTopologySpread.
    pub spread: i64,
    /// CPU within NodeResourcesFit.
    pub fit_cpu: i64,
    /// Memory within NodeResourcesFit.
    pub fit_memory: i64,
}

/// What the plugins that depend on traits alone say of a node; scores as they are before they are normalized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// TaintToleration.
    pub taints: i64,
    /// NodeAffinity.
    pub affinity: i64,
    /// ImageLocality, from 0 to 100.
    pub images: i64,
}

/// What is read of nodes for a pod.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Keys of labels.
    pub keys: BTreeSet<String>,
    /// Names of images.
    pub images: BTreeSet<String>,
    /// More is read: the single node, or what an index does not hold.
    pub is_special: bool,
}

impl Reads {
    fn add<'a>(&mut self, keys: impl Iterator<Item = &'a str>) {
        for key in keys {
            self.is_special |= key == HOSTNAME;
            self.keys.insert(key.to_owned());
        }
    }

    fn add_preferences(&mut self, preferences: &Preferences) {
        self.is_special |= preferences.read_name();
        self.add(preferences.keys());
    }
}

impl Requests {
    /// The amounts; `None` if others are requested than CPU, memory and local storage.
    pub fn amounts(&self) -> Option<Request> {
        let is_plain = self.fit.scalars.values().all(|amount| *amount <= 0);
        is_plain.then_some(Request {
            cpu: self.fit.cpu_milli,
            memory: self.fit.memory,
            storage: self.fit.ephemeral_storage,
            scored_cpu: self.plain.scored.cpu_milli,
            scored_memory: self.plain.scored.memory,
            balanced_cpu: self.plain.balanced.cpu_milli,
            balanced_memory: self.plain.balanced.memory,
        })
    }
}

impl Profile {
    /// The weights; `None` if a score is of another kind than by default.
    pub fn weights(&self) -> Option<Weights> {
        let of = |plugin: Plugin| {
            let scores = self.pre_score.contains(&plugin) || plugin == Plugin::ImageLocality;
            let all = self.score.iter().filter(|_| scores);
            let mut all = all.filter(|(one, _)| *one == plugin);
            all.next().map_or(0, |(_, weight)| *weight)
        };
        let is_known = self.fit.strategy == Strategy::LeastAllocated
            && self.balanced == [CPU, MEMORY]
            && self.filter.contains(&Plugin::NodeResourcesFit)
            && !self.score.is_empty();
        let (cpu, memory) = match self.fit.resources.as_slice() {
            [a, b] if a.name == CPU && b.name == MEMORY => (a.weight, b.weight),
            _ => return None,
        };
        is_known.then(|| Weights {
            fit: of(Plugin::NodeResourcesFit),
            balanced: of(Plugin::NodeResourcesBalancedAllocation),
            taints: of(Plugin::TaintToleration),
            affinity: of(Plugin::NodeAffinity),
            images: of(Plugin::ImageLocality),
            spread: of(Plugin::PodTopologySpread),
            fit_cpu: cpu,
            fit_memory: memory,
        })
    }

    /// Whether a plugin filters.
    pub fn filters(&self, plugin: Plugin) -> bool {
        self.filter.contains(&plugin)
    }

    /// What is read of nodes for a pod by its rules, but for its requests.
    pub fn reads(&self, pod: &Pod) -> Reads {
        let mut reads = Reads {
            images: pod.images.iter().cloned().collect(),
            ..Reads::default()
        };
        let required = &pod.required_node;
        reads.add(
            required
                .labels
                .iter()
                .flatten()
                .map(|(key, _)| key.as_str()),
        );
        let of_profile = &self.node_affinity;
        for terms in required.terms.iter().chain(&of_profile.required) {
            reads.is_special |= terms.reads_name();
            reads.add(terms.keys());
        }
        if let Some(preferences) = &of_profile.preferred {
            reads.add_preferences(preferences);
        }
        match &pod.preferred_nodes {
            Some(Ok(preferences)) => reads.add_preferences(preferences),
            Some(Err(_)) => reads.is_special = true,
            None => {}
        }
        let affinity = &pod.affinity;
        reads.is_special |= !pod.ports.is_empty()
            || !pod.volumes.is_empty()
            || pod.claims_devices
            || affinity.error.is_some()
            || affinity.has_preferences()
            || !affinity.required.is_empty();
        reads
    }

    /// What the plugins that depend on traits alone say of a node; `None` if one of them rejects it.
    pub fn fixed(&self, snapshot: &Snapshot, pod: &Pod, node: NodeView<'_>) -> Option<Fixed> {
        let (cycle, node) = (self.cycle(snapshot, pod), node.0);
        let passes = |plugin: Plugin| match plugin {
            Plugin::NodeUnschedulable => node_unschedulable::filter(pod, node).is_ok(),
            Plugin::TaintToleration => taint_toleration::filter(pod, node).is_ok(),
            Plugin::NodeAffinity => node_affinity::filter(cycle, node).is_ok(),
            _ => true,
        };
        if !self.filter.iter().all(|plugin| passes(*plugin)) {
            return None;
        }
        let affinity = node_affinity::scorer(cycle);
        Some(Fixed {
            taints: taint_toleration::Unwanted(pod).score(node),
            affinity: affinity.map_or(0, |scorer| scorer.score(node)),
            images: Images::of(pod, snapshot.nodes_len()).score(node),
        })
    }

    /// The scores of NodeResourcesFit and of NodeResourcesBalancedAllocation for a node, each without its weight; `None` if
    /// the pod does not fit. For nodes with amounts that an index does not hold.
    pub fn resources(
        &self,
        snapshot: &Snapshot,
        pod: &Pod,
        node: NodeView<'_>,
    ) -> Option<(i64, i64)> {
        let cycle = self.cycle(snapshot, pod);
        node_resources_fit::filter(cycle, node.0).ok()?;
        let balanced = balanced_allocation::scorer(cycle);
        let balanced = balanced.map_or(0, |scorer| scorer.score(node.0));
        Some((node_resources_fit::scorer(cycle).score(node.0), balanced))
    }

    /// Whether a pod fits on a node with other pods besides those that are there, by its requests alone.
    pub fn fits_with<'a>(
        &self,
        pod: &Pod,
        node: NodeView<'_>,
        others: impl Iterator<Item = &'a Pod>,
    ) -> bool {
        let mut used = node.0.requested.clone();
        let mut pods_len = i64::try_from(node.0.pods.len()).unwrap_or(i64::MAX);
        for other in others {
            used.add(&other.requests.bound);
            pods_len += 1;
        }
        let allocatable = &node.0.node.allocatable;
        let request = &pod.requests.fit;
        node_resources_fit::shortages(request, allocatable, &used, pods_len, &self.fit).is_empty()
    }

    pub(crate) fn cycle<'a>(&'a self, snapshot: &'a Snapshot, pod: &'a Pod) -> Cycle<'a> {
        Cycle {
            pod,
            snapshot,
            profile: self,
        }
    }
}
