//! The end of an attempt: what was written, and what becomes of the pod.

use dormouse_scheduler_decide::PodKey;
use k8s_openapi::jiff::Timestamp;

use super::State;
use super::cycle::Attempt;
use crate::queue::Happened;

/// What became of a [`Work`](super::Work).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The binding was written.
    Bound,
    /// The binding was not written.
    Failed,
    /// It was written that the pod has no node, and its victims are evicted.
    Rejected,
    /// The attempt failed, or the eviction of victims did.
    Error,
}

impl State {
    /// Ends an attempt.
    pub fn finish(&mut self, now: Timestamp, attempt: Attempt, outcome: Outcome) {
        let key = attempt.popped.waiting.pod.key().clone();
        match outcome {
            // The pod counts until it is seen on its node, or seen to be gone.
            Outcome::Bound => drop(self.take_binding(&key, &attempt)),
            Outcome::Failed => self.unbind(now, &key, &attempt),
            Outcome::Rejected => {
                let judge = self.profiles.judge(self.decider.snapshot());
                self.queue
                    .reject(now, &judge, &attempt.popped, attempt.plugins);
            }
            Outcome::Error => {
                let judge = self.profiles.judge(self.decider.snapshot());
                self.queue.fail(now, &judge, &attempt.popped);
            }
        }
    }

    /// The binding of this attempt; `None` if the pod was seen on a node, or is gone.
    fn take_binding(&mut self, key: &PodKey, attempt: &Attempt) -> Option<crate::queue::Popped> {
        let binding = self.binding.get(key)?;
        if binding.ticket != attempt.popped.ticket {
            return None;
        }
        self.binding.remove(key)
    }

    /// A pod whose binding failed counts no more, and is tried again.
    fn unbind(&mut self, now: Timestamp, key: &PodKey, attempt: &Attempt) {
        let Some(popped) = self.take_binding(key, attempt) else {
            return;
        };
        let Some(assumed) = self.assumed.remove(key) else {
            return;
        };
        self.decider.remove_pod(key);
        // Its nomination is in force again.
        self.count(popped.waiting.pod.as_ref().clone());
        let judge = self.profiles.judge(self.decider.snapshot());
        self.queue.put_back(now, &judge, popped);
        let old = Some(assumed.pod);
        self.wake(now, Happened::Pod { old, new: None });
    }
}
