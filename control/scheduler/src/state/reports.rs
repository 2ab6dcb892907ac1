//! Reports about pods that do not enter the queue, in the order in which they came.

use std::collections::VecDeque;

use dormouse_scheduler_decide::PodKey;

use super::Work;
use crate::map::Map;

/// The reports: one a pod, of which a newer one takes the place of an older one.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Also the names of pods whose report was removed.
    order: VecDeque<PodKey>,
    works: Map<PodKey, Box<Work>>,
}

impl Reports {
    pub(super) fn push(&mut self, key: PodKey, work: Work) {
        if self.works.insert(key.clone(), Box::new(work)).is_none() {
            self.order.push_back(key);
        }
    }

    /// Removes the report about a pod of which it is not true anymore.
    pub(super) fn remove(&mut self, key: &PodKey) {
        self.works.remove(key);
    }

    pub(super) fn pop(&mut self) -> Option<Box<Work>> {
        while let Some(key) = self.order.pop_front() {
            if let Some(work) = self.works.remove(&key) {
                return Some(work);
            }
        }
        None
    }
}
