//! The pods of one node, and those not yet sent on its stream.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::PodSpec;

#[derive(Debug, Default)]
pub(super) struct Pods {
    /// By uid.
    specs: BTreeMap<String, PodSpec>,
    /// Uids of pods that have to be sent.
    pending: BTreeSet<String>,
    /// `specs` is the complete list: [`Pods::sync`] was called.
    complete: bool,
    /// The complete list has to be sent.
    list_pending: bool,
}

impl Pods {
    /// A new stream: everything has to be sent again.
    pub(super) fn open(&mut self) {
        self.pending = self.specs.keys().cloned().collect();
        self.list_pending = self.complete;
    }

    pub(super) fn run(&mut self, pod: PodSpec) {
        self.pending.insert(pod.uid.clone());
        self.specs.insert(pod.uid.clone(), pod);
    }

    pub(super) fn sync(&mut self, pods: Vec<PodSpec>) {
        self.specs = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        self.complete = true;
        self.open();
    }

    /// The node reported that the pod is gone.
    pub(super) fn gone(&mut self, uid: &str) {
        self.specs.remove(uid);
        self.pending.remove(uid);
    }

    /// Whether anything has to be sent.
    pub(super) fn are_pending(&self) -> bool {
        self.list_pending || !self.pending.is_empty()
    }

    /// The pods to send, and whether they are the complete list.
    pub(super) fn take(&mut self) -> (Vec<PodSpec>, bool) {
        let pending = std::mem::take(&mut self.pending);
        if std::mem::take(&mut self.list_pending) {
            return (self.specs.values().cloned().collect(), true);
        }
        (
            pending
                .iter()
                .filter_map(|uid| self.specs.get(uid).cloned())
                .collect(),
            false,
        )
    }
}
