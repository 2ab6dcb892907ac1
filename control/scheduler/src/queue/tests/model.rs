//! Random operations: each pod is in exactly one place, none is lost, and the order is kept.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

const PODS: u8 = 6;

#[derive(Clone, Debug)]
enum Step {
    Set {
        pod: u8,
        priority: i32,
        gates: usize,
        is_changed: bool,
    },
    Remove(u8),
    Pop,
    Placed(usize),
    Reject(usize),
    Fail(usize),
    PutBack(usize),
    Node,
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let set = (0..PODS, 0..3_i32, 0..2_usize, any::<bool>()).prop_map(
        |(pod, priority, gates, is_changed)| Step::Set {
            pod,
            priority,
            gates,
            is_changed,
        },
    );
    prop_oneof![
        4 => set,
        1 => (0..PODS).prop_map(Step::Remove),
        6 => Just(Step::Pop),
        1 => (0..4_usize).prop_map(Step::Placed),
        3 => (0..4_usize).prop_map(Step::Reject),
        2 => (0..4_usize).prop_map(Step::Fail),
        1 => (0..4_usize).prop_map(Step::PutBack),
        2 => Just(Step::Node),
        2 => any::<u16>().prop_map(Step::Wait),
    ]
}

/// What must be true of the queue: the pods that are in it, by name.
#[derive(Default)]
struct Model {
    queue: Queue,
    now: i64,
    pods: BTreeSet<String>,
    flying: Vec<Popped>,
    placed: Vec<Popped>,
}

fn name_of(popped: &Popped) -> String {
    popped.waiting.pod.key().name.clone()
}

impl Model {
    fn take(list: &mut Vec<Popped>, at: usize) -> Option<Popped> {
        (!list.is_empty()).then(|| list.swap_remove(at % list.len()))
    }

    fn apply(&mut self, step: &Step) {
        let now = at(self.now);
        match step {
            Step::Set {
                pod,
                priority,
                gates,
                is_changed,
            } => {
                let name = format!("p{pod}");
                let waiting = gated(&name, *priority, *gates);
                self.queue.set(now, &NodesHelp, waiting, *is_changed);
                self.pods.insert(name);
            }
            Step::Remove(pod) => {
                let name = format!("p{pod}");
                let removed = self.queue.remove(&key(&name)).is_some();
                assert_eq!(removed, self.pods.remove(&name));
            }
            Step::Pop => self.pop(),
            Step::Placed(at) => {
                if let Some(popped) = Self::take(&mut self.flying, *at) {
                    if self.is_flying(&popped) {
                        self.pods.remove(&name_of(&popped));
                    }
                    self.queue.placed(&popped);
                    self.placed.push(popped);
                }
            }
            Step::Reject(at) => {
                if let Some(popped) = Self::take(&mut self.flying, *at) {
                    let expected = self.is_flying(&popped);
                    assert_eq!(self.queue.reject(now, &NodesHelp, &popped, fit()), expected);
                }
            }
            Step::Fail(at) => {
                if let Some(popped) = Self::take(&mut self.flying, *at) {
                    let expected = self.is_flying(&popped);
                    assert_eq!(self.queue.fail(now, &NodesHelp, &popped), expected);
                }
            }
            Step::PutBack(at) => {
                if let Some(popped) = Self::take(&mut self.placed, *at) {
                    self.pods.insert(name_of(&popped));
                    self.queue.put_back(now, &NodesHelp, popped);
                }
            }
            Step::Node => self.queue.happened(now, &NodesHelp, node()),
            Step::Wait(milliseconds) => {
                self.now += i64::from(*milliseconds);
                self.queue.flush(at(self.now), &NodesHelp);
            }
        }
    }

    fn is_flying(&self, popped: &Popped) -> bool {
        let entry = self.queue.entries.get(popped.waiting.pod.key());
        entry.is_some_and(|entry| entry.location == Location::InFlight(popped.ticket))
    }

    /// A popped pod is the first of the active ones: none has a higher priority, nor the same and waits longer.
    fn pop(&mut self) {
        let Some(popped) = self.queue.pop(at(self.now)) else {
            let lengths = self.queue.lengths();
            assert_eq!(lengths.active, 0);
            return;
        };
        let place = |entry: &Entry| (Reverse(entry.waiting.pod.priority()), entry.queued_at);
        let entries = &self.queue.entries;
        let own = place(&entries[popped.waiting.pod.key()]);
        let mut active = entries
            .values()
            .filter(|one| matches!(one.location, Location::Active(_)));
        assert!(active.all(|other| own <= place(other)));
        self.flying.push(popped);
    }

    /// Each pod is in one place, which has the pod.
    fn check(&self) {
        let names: BTreeSet<_> = self
            .queue
            .entries
            .keys()
            .map(|key| key.name.clone())
            .collect();
        assert_eq!(names, self.pods);
        let lengths = self.queue.lengths();
        let in_lanes = lengths.active + lengths.backoff + lengths.unschedulable + lengths.gated;
        let lane = |entry: &&Entry| entry.location.lane().is_some();
        assert_eq!(self.queue.entries.values().filter(lane).count(), in_lanes);
        let flying = self.queue.entries.len() - in_lanes;
        assert_eq!(
            self.flying
                .iter()
                .filter(|popped| self.is_flying(popped))
                .count(),
            flying
        );
    }

    /// Without further changes, each pod that is not gated is popped again within the longest wait.
    fn drain(mut self) {
        for popped in std::mem::take(&mut self.flying) {
            self.queue.reject(at(self.now), &NodesHelp, &popped, fit());
        }
        let mut seen = BTreeSet::new();
        for _ in 0..12 {
            self.now += 30_000;
            self.queue.flush(at(self.now), &NodesHelp);
            while let Some(popped) = self.queue.pop(at(self.now)) {
                seen.insert(name_of(&popped));
                self.queue.placed(&popped);
            }
        }
        let gated = self.queue.lengths().gated;
        assert_eq!(seen.len() + gated, self.pods.len());
        assert_eq!(self.queue.entries.len(), gated);
    }
}

proptest! {
    #[test]
    fn no_pod_is_lost_and_none_is_in_two_places(steps in prop::collection::vec(step(), 0..120)) {
        let mut model = Model::default();
        for step in &steps {
            model.apply(step);
            model.check();
        }
        model.drain();
    }
}
