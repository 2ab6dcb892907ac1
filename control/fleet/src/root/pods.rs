//! The pods of one node, and which of them it has not been told.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::PodSpec;

#[derive(Debug, Default)]
pub(super) struct Pods {
    specs: BTreeMap<String, PodSpec>,
    lacking: BTreeSet<String>,
    /// `specs` is all there is: the owner has said so.
    complete: bool,
    /// The node is to be told all of them as a complete list.
    owed: bool,
}

impl Pods {
    /// A new stream: the node is told everything again.
    pub(super) fn open(&mut self) {
        self.lacking = self.specs.keys().cloned().collect();
        self.owed = self.complete;
    }

    pub(super) fn run(&mut self, pod: PodSpec) {
        self.lacking.insert(pod.uid.clone());
        self.specs.insert(pod.uid.clone(), pod);
    }

    pub(super) fn sync(&mut self, pods: Vec<PodSpec>) {
        self.specs = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        self.complete = true;
        self.open();
    }

    /// The node said its last word on this pod.
    pub(super) fn gone(&mut self, uid: &str) {
        self.specs.remove(uid);
        self.lacking.remove(uid);
    }

    /// Whether the node lacks anything.
    pub(super) fn are_lacking(&self) -> bool {
        self.owed || !self.lacking.is_empty()
    }

    /// What the node lacks, and whether that is the complete list.
    pub(super) fn take(&mut self) -> (Vec<PodSpec>, bool) {
        let lacking = std::mem::take(&mut self.lacking);
        if std::mem::take(&mut self.owed) {
            return (self.specs.values().cloned().collect(), true);
        }
        (
            lacking
                .iter()
                .filter_map(|uid| self.specs.get(uid).cloned())
                .collect(),
            false,
        )
    }
}
