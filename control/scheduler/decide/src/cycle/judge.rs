//! Verdicts of single nodes, of which an index keeps those that nothing happened to: for pods whose verdict on a node depends on
//! nothing but the node, the pods there, and those that are nominated to it. An attempt that all nodes reject ends with them as
//! [`Scheduler::attempt`] does.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::exchange::{Counts, Looked, Survey, Trial};
use super::{Conclusion, Gather, Scheduler, passes};
use crate::facts::NodeView;
use crate::message::Reasons;
use crate::plugins::pod_topology_spread::constraints;
use crate::plugins::{self, Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::preempt::{self, Candidate, Tried};
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::spread::Action;
use crate::status::{Code, Plugin, Status};

/// Judges single nodes for a pod.
pub struct Judge<'a> {
    profile: &'a Arc<Profile>,
    cycle: Cycle<'a>,
    state: CycleState,
    preemption_offset: usize,
}

/// Plugins that have nothing to filter for such a pod.
const IDLE: [Plugin; 3] = [
    Plugin::VolumeRestrictions,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
];

impl Scheduler {
    /// `None` for a pod whose verdicts depend on more than single nodes. That no pod on a node has required anti-affinity to it is
    /// for the caller to know.
    pub fn judge<'a>(&'a self, snapshot: &'a Snapshot, pod: &'a Pod) -> Option<Judge<'a>> {
        let cycle = self.profile.cycle(snapshot, pod);
        if snapshot.nodes_len() == 0 || !is_about_single_nodes(cycle) {
            return None;
        }
        let (mut state, mut counts) = (CycleState::default(), Counts::default());
        for &plugin in &self.profile.pre_filter {
            let is_idle = IDLE.contains(&plugin)
                || match plugins::pre_filter(plugin, cycle, &mut state, &mut counts).ok()? {
                    PreFilter::Skip => true,
                    PreFilter::Done => false,
                    PreFilter::Nodes(_) => return None,
                };
            if is_idle {
                state.skipped.insert(plugin);
            }
        }
        Some(Judge {
            profile: &self.profile,
            cycle,
            state,
            preemption_offset: self.preemption_offset,
        })
    }
}

fn is_about_single_nodes(cycle: Cycle<'_>) -> bool {
    let pod = cycle.pod;
    let spread = constraints(cycle, Action::DoNotSchedule);
    pod.volumes.is_empty()
        && !pod.claims_devices
        && pod.affinity.error.is_none()
        && !pod.has_required_terms()
        && spread.is_ok_and(|all| all.is_empty())
}

impl Judge<'_> {
    /// The verdict of a node.
    pub fn verdict(&self, node: NodeView<'_>) -> Result<(), Status> {
        passes(self.cycle, &self.state, node.0)
    }

    /// The victims that could go from a node.
    pub fn candidate(&self, node: NodeView<'_>) -> Result<Candidate, Status> {
        preempt::candidate(self.cycle, self.state.clone(), node.0.clone())
    }

    /// The candidates, until there are enough of the nodes where preemption may help: these, from the trial's offset on.
    pub fn until_enough<N>(
        &self,
        trial: Trial,
        nodes: impl Iterator<Item = N>,
        try_on: impl FnMut(N) -> Option<Arc<Candidate>>,
    ) -> Vec<Arc<Candidate>> {
        let enough = trial.enough(self.cycle.profile.preemption, trial.potential_len);
        preempt::until_enough(nodes, enough, try_on)
    }

    /// Why nodes are no candidates, by their verdicts, each with the number of nodes.
    pub fn without<'s>(
        &self,
        verdicts: impl Iterator<Item = (&'s Status, usize)> + Clone,
    ) -> Tried {
        let errors = verdicts.clone().filter(|(one, _)| one.code == Code::Error);
        let errors = errors.flat_map(|(one, len)| std::iter::repeat_n(one.message(), len));
        Tried {
            found: Vec::new(),
            errors: errors.collect(),
            reasons: Reasons::counted(verdicts),
        }
    }

    /// The end of an attempt, by the verdicts of all nodes, each with the number of nodes, and by that of the node that the pod is
    /// nominated to.
    pub fn conclude<'s>(
        &self,
        verdicts: impl Iterator<Item = (&'s Status, usize)> + Clone,
        nominated: Option<&Status>,
        try_nodes: impl FnOnce(Trial) -> Tried,
    ) -> Conclusion {
        let resolvable = verdicts
            .clone()
            .filter(|(one, _)| preempt::is_resolvable(one));
        let plugins = verdicts.clone().filter_map(|(one, _)| one.plugin);
        let looked = Looked {
            feasible_len: 0,
            sole: None,
            is_nominated_only: false,
            plugins: plugins.collect::<BTreeSet<_>>(),
            absent: None,
            potential_len: resolvable.map(|(_, nodes_len)| nodes_len).sum(),
            is_waiting: preempt::is_waiting(self.cycle, nominated),
            error: None,
            survey: Ok(Survey::default()),
            reasons: Reasons::counted(verdicts),
        };
        let profile = Arc::clone(self.profile);
        let gather = Gather::new(profile, self.cycle.pod, self.preemption_offset);
        gather.end(self.cycle.snapshot.nodes_len(), looked, try_nodes)
    }
}
