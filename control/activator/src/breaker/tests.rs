//! The breaker compared with a model, under random sequences of events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LIMITS: QueueLimits = QueueLimits {
    count_max: 50,
    bytes_max: 10_000,
};
const NOW: Boottime = Boottime(1_000);

fn backend(number: u16) -> SocketAddrV6 {
    SocketAddrV6::new(std::net::Ipv6Addr::LOCALHOST, 8000 + number, 0, 0)
}

#[derive(Clone, Debug)]
enum Step {
    Arrive,
    Finish(usize),
    ClientLeaves(usize),
    Configure(u32, BTreeSet<u16>),
    Fails(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Arrive),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::ClientLeaves),
        1 => (0u32..4, prop::collection::btree_set(0u16..4, 0..4))
            .prop_map(|(concurrency, backends)| Step::Configure(concurrency, backends)),
        1 => (0u16..4).prop_map(Step::Fails),
    ]
}

/// The model: running and parked requests, and the configuration.
#[derive(Default)]
struct World {
    breaker: Breaker<u64>,
    concurrency: u32,
    configured: BTreeSet<u16>,
    running: Vec<(u64, SocketAddrV6)>,
    waiting: BTreeSet<u64>,
    tickets: u64,
}

impl World {
    fn in_flight(&self) -> BTreeMap<SocketAddrV6, usize> {
        let mut counts = BTreeMap::new();
        for (_, at) in &self.running {
            *counts.entry(*at).or_default() += 1;
        }
        counts
    }

    fn has_room(&self, at: SocketAddrV6) -> bool {
        let used = self.in_flight().get(&at).copied().unwrap_or(0);
        self.concurrency == 0 || used < self.concurrency as usize
    }

    fn starts(&mut self, request: u64, at: SocketAddrV6) {
        assert!(
            self.configured.iter().any(|number| backend(*number) == at),
            "sent to a backend that is not configured"
        );
        assert!(
            self.has_room(at),
            "more than {} in flight at {at}",
            self.concurrency
        );
        self.running.push((request, at));
    }

    fn drain(&mut self) {
        while let Some((request, at)) = self.breaker.next(NOW) {
            assert_eq!(self.waiting.pop_first(), Some(request), "out of order");
            self.starts(request, at);
        }
        let free = self
            .configured
            .iter()
            .any(|number| self.has_room(backend(*number)));
        assert!(
            !free || self.waiting.is_empty(),
            "parked although a slot is free"
        );
        assert_eq!(self.breaker.parked(), self.waiting.len());
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive => {
                self.tickets += 1;
                let request = self.tickets;
                if let Some(at) = self.breaker.enter(NOW) {
                    assert!(self.waiting.is_empty(), "overtook a parked request");
                    self.starts(request, at);
                } else if self
                    .breaker
                    .park(Ticket(request), 100, request, LIMITS)
                    .is_ok()
                {
                    self.waiting.insert(request);
                } else {
                    assert_eq!(self.waiting.len(), LIMITS.count_max);
                }
            }
            Step::Finish(which) if !self.running.is_empty() => {
                let (_, at) = self.running.swap_remove(which % self.running.len());
                self.breaker.leave(at);
            }
            Step::ClientLeaves(which) if !self.waiting.is_empty() => {
                let request = *self.waiting.iter().nth(which % self.waiting.len()).unwrap();
                self.waiting.remove(&request);
                assert_eq!(self.breaker.unpark(Ticket(request)), Some(request));
            }
            Step::Configure(concurrency, configured) => {
                let backends: Vec<_> = configured.iter().map(|number| backend(*number)).collect();
                self.breaker.configure(concurrency, &backends);
                (self.concurrency, self.configured) = (concurrency, configured);
            }
            Step::Fails(number) => self.breaker.avoid(backend(number), Boottime(2_000)),
            Step::Finish(_) | Step::ClientLeaves(_) => {}
        }
        self.drain();
    }
}

proptest! {
    #[test]
    fn limits_hold_and_requests_get_slots_in_order_of_arrival(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::default();
        for step in steps {
            world.step(step);
        }
    }
}

#[test]
fn equal_backends_are_used_in_turn() {
    let mut breaker = Breaker::<()>::default();
    breaker.configure(0, &[backend(1), backend(2), backend(3)]);
    let mut used: Vec<_> = (0..6).filter_map(|_| breaker.enter(NOW)).collect();
    used.sort_unstable();
    let twice = [1, 1, 2, 2, 3, 3].map(backend);
    assert_eq!(used, twice);
}

#[test]
fn a_failing_backend_is_used_last_until_its_time_has_passed() {
    let mut breaker = Breaker::<()>::default();
    breaker.configure(2, &[backend(1), backend(2)]);
    breaker.avoid(backend(1), Boottime(2_000));
    let order: Vec<_> = (0..4).filter_map(|_| breaker.enter(NOW)).collect();
    assert_eq!(order, [2, 2, 1, 1].map(backend));
    assert!(breaker.has_healthy(NOW));
    breaker.avoid(backend(2), Boottime(2_000));
    assert!(!breaker.has_healthy(NOW));
    assert!(breaker.has_healthy(Boottime(2_000)));
}

#[test]
fn a_backend_that_is_added_again_keeps_its_count() {
    let mut breaker = Breaker::<()>::default();
    breaker.configure(1, &[backend(1)]);
    assert_eq!(breaker.enter(NOW), Some(backend(1)));
    breaker.configure(1, &[]);
    assert!(!breaker.has_backend());
    breaker.configure(1, &[backend(1)]);
    assert_eq!(breaker.enter(NOW), None);
    breaker.leave(backend(1));
    assert_eq!(breaker.enter(NOW), Some(backend(1)));
}
