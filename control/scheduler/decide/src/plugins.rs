//! The plugins: each is a few plain functions of the pod, the cluster, the cycle's state and a node.

pub(crate) mod balanced_allocation;
pub(crate) mod image_locality;
pub(crate) mod inter_pod_affinity;
pub(crate) mod node_affinity;
pub(crate) mod node_name;
pub(crate) mod node_ports;
pub(crate) mod node_resources_fit;
pub(crate) mod node_unschedulable;
pub(crate) mod node_volume_limits;
pub(crate) mod normalize;
pub(crate) mod pod_topology_spread;
pub(crate) mod resource_scores;
pub(crate) mod scheduling_gates;
pub(crate) mod taint_toleration;
pub(crate) mod volume_binding;
pub(crate) mod volume_restrictions;
pub(crate) mod volume_zone;

use std::collections::BTreeSet;

use crate::cycle::{Counts, Survey};
use crate::node_state::NodeState;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::status::{Plugin, Status};

/// What a cycle is about.
#[derive(Clone, Copy)]
pub(crate) struct Cycle<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) profile: &'a Profile,
}

/// What the plugins counted in PreFilter. Pods that are added or removed for a trial change a copy of it.
#[derive(Clone, Default)]
pub(crate) struct CycleState {
    /// Plugins that left the cycle.
    pub(crate) skipped: BTreeSet<Plugin>,
    pub(crate) spread: pod_topology_spread::filter::Counts,
    pub(crate) affinity: inter_pod_affinity::filter::Counts,
    pub(crate) restrictions: volume_restrictions::InUse,
    pub(crate) binding: volume_binding::PodClaims,
    pub(crate) zone: volume_zone::Topologies,
}

/// How a plugin left PreFilter.
pub(crate) enum PreFilter {
    /// It has nothing to filter.
    Skip,
    Done,
    /// Only these nodes can pass.
    Nodes(BTreeSet<String>),
}

/// The scores of one plugin, before they are normalized.
pub(crate) trait Scorer {
    fn score(&self, node: &NodeState) -> i64;

    /// Whether the node's score is outside of the range to which others are compared: it is 0 in the end.
    fn ignores(&self, _node: &NodeState) -> bool {
        false
    }
}

/// A plugin's PreFilter. What it counts over nodes is added to `counts`.
pub(crate) fn pre_filter(
    plugin: Plugin,
    cycle: Cycle<'_>,
    state: &mut CycleState,
    counts: &mut Counts,
) -> Result<PreFilter, Status> {
    match plugin {
        Plugin::NodeAffinity => node_affinity::pre_filter(cycle),
        Plugin::NodePorts => Ok(node_ports::pre_filter(cycle)),
        Plugin::VolumeRestrictions => volume_restrictions::pre_filter(cycle, state, counts),
        Plugin::NodeVolumeLimits => node_volume_limits::pre_filter(cycle),
        Plugin::VolumeBinding => volume_binding::pre_filter(cycle, state),
        Plugin::VolumeZone => volume_zone::pre_filter(cycle, state),
        Plugin::PodTopologySpread => pod_topology_spread::filter::pre_filter(cycle, state, counts),
        Plugin::InterPodAffinity => inter_pod_affinity::filter::pre_filter(cycle, state, counts),
        Plugin::DynamicResources if cycle.pod.claims_devices => {
            Err(Status::error("spec.resourceClaims is not supported"))
        }
        Plugin::DynamicResources | Plugin::NodeDeclaredFeatures => Ok(PreFilter::Skip),
        _ => Ok(PreFilter::Done),
    }
}

/// Takes what a plugin counted over the nodes of all parts; returned is whether it has nothing to filter.
pub(crate) fn is_idle(
    plugin: Plugin,
    cycle: Cycle<'_>,
    state: &mut CycleState,
    counts: &Counts,
) -> bool {
    match plugin {
        Plugin::VolumeRestrictions => state.restrictions.is_idle(cycle.pod, counts),
        Plugin::PodTopologySpread => state.spread.is_idle(counts),
        Plugin::InterPodAffinity => state.affinity.is_idle(counts),
        _ => false,
    }
}

/// A plugin's Filter.
pub(crate) fn filter(
    plugin: Plugin,
    cycle: Cycle<'_>,
    state: &CycleState,
    node: &NodeState,
) -> Result<(), Status> {
    match plugin {
        Plugin::NodeUnschedulable => node_unschedulable::filter(cycle.pod, node),
        Plugin::NodeName => node_name::filter(cycle.pod, node),
        Plugin::TaintToleration => taint_toleration::filter(cycle.pod, node),
        Plugin::NodeAffinity => node_affinity::filter(cycle, node),
        Plugin::NodePorts => node_ports::filter(cycle.pod, node),
        Plugin::NodeResourcesFit => node_resources_fit::filter(cycle, node),
        Plugin::VolumeRestrictions => volume_restrictions::filter(cycle.pod, state, node),
        Plugin::NodeVolumeLimits => node_volume_limits::filter(cycle, node),
        Plugin::VolumeBinding => volume_binding::filter(cycle, state, node),
        Plugin::VolumeZone => volume_zone::filter(state, node),
        Plugin::PodTopologySpread => pod_topology_spread::filter::filter(cycle.pod, state, node),
        Plugin::InterPodAffinity => inter_pod_affinity::filter::filter(cycle.pod, state, node),
        _ => Ok(()),
    }
}

/// Adds `times` pods like `other` on `node` to what the plugins counted: 1, or -1 to take one away.
pub(crate) fn count(
    cycle: Cycle<'_>,
    state: &mut CycleState,
    other: &Pod,
    node: &NodeState,
    times: i64,
) {
    if !state.skipped.contains(&Plugin::VolumeRestrictions) {
        state.restrictions.count(other, times);
    }
    if !state.skipped.contains(&Plugin::PodTopologySpread) {
        state.spread.count(cycle.pod, other, &node.node, times);
    }
    if !state.skipped.contains(&Plugin::InterPodAffinity) {
        state.affinity.count(cycle.pod, other, &node.node, times);
    }
}

/// A plugin's PreScore: what it counts over nodes is added to `survey`. An error is the reason for which the attempt fails.
pub(crate) fn survey(
    plugin: Plugin,
    cycle: Cycle<'_>,
    feasible: &[&NodeState],
    survey: &mut Survey,
) -> Result<(), String> {
    match plugin {
        Plugin::NodeAffinity => node_affinity::check(cycle.pod),
        Plugin::PodTopologySpread => {
            survey.spread = pod_topology_spread::score::survey(cycle, feasible)?;
            Ok(())
        }
        Plugin::InterPodAffinity => {
            survey.affinity = inter_pod_affinity::score::survey(cycle)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A plugin's scores; `None` if it has nothing to score.
pub(crate) fn scorer<'a>(
    plugin: Plugin,
    cycle: Cycle<'a>,
    survey: &'a Survey,
) -> Option<Box<dyn Scorer + 'a>> {
    match plugin {
        Plugin::TaintToleration => Some(Box::new(taint_toleration::Unwanted(cycle.pod))),
        Plugin::NodeAffinity => node_affinity::scorer(cycle),
        Plugin::NodeResourcesFit => Some(node_resources_fit::scorer(cycle)),
        Plugin::PodTopologySpread => pod_topology_spread::score::scorer(cycle, &survey.spread),
        Plugin::InterPodAffinity => survey.affinity.scorer(),
        Plugin::NodeResourcesBalancedAllocation => balanced_allocation::scorer(cycle),
        Plugin::ImageLocality => {
            let nodes_len = survey.nodes_len;
            Some(Box::new(image_locality::Images::of(cycle.pod, nodes_len)))
        }
        _ => None,
    }
}

/// A plugin's score in the range from 0 to 100, from the least and the largest one of all nodes.
pub(crate) fn normalized(plugin: Plugin, score: i64, range: (i64, i64)) -> i64 {
    match plugin {
        Plugin::TaintToleration => normalize::to_largest(score, range, true),
        Plugin::NodeAffinity => normalize::to_largest(score, range, false),
        Plugin::PodTopologySpread => pod_topology_spread::score::normalized(score, range),
        Plugin::InterPodAffinity => inter_pod_affinity::score::normalized(score, range),
        _ => score,
    }
}
