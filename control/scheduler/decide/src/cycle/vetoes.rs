//! Verdicts that extenders gave: nodes that pass all filters are rejected by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attempt, Part, Scheduler};
use crate::node_state::NodeState;
use crate::pod::Pod;
use crate::snapshot::Snapshot;
use crate::status::Status;

/// The nodes that extenders rejected, each with its verdict; none for a node that one left out without a reason.
pub type Vetoes = BTreeMap<String, Option<Status>>;

impl Scheduler {
    /// Decides for a pod as [`Scheduler::attempt`], with verdicts of extenders. The next attempt begins at the same node.
    pub fn attempt_with(&self, snapshot: &Snapshot, pod: &Pod, vetoes: Arc<Vetoes>) -> Attempt {
        let mut part = Part::whole(self.start);
        part.vetoes = vetoes;
        self.decide(vec![(part, snapshot)], pod)
    }
}

impl Part {
    /// Takes out the nodes that extenders rejected.
    pub(super) fn veto(&mut self, feasible: &mut Vec<&NodeState>) {
        if self.vetoes.is_empty() {
            return;
        }
        feasible.retain(|node| {
            let veto = self.vetoes.get(&*node.name);
            if let Some(Some(status)) = veto {
                let name = node.name.to_string();
                self.rejected.insert(name, status.clone());
            }
            veto.is_none()
        });
    }
}
