//! The state of the connections to the API server, written by the followers and read by the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dormouse_agent_follow::Relist;
use dormouse_fleet::Boottime;

use crate::source::object::Kind;

/// The state of the connections to the API server.
#[derive(Debug, Default)]
pub struct KubernetesState {
    kinds: [KindState; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct KindState {
    connected: AtomicBool,
    /// CLOCK_BOOTTIME; 0: never.
    received_at: AtomicU64,
    lists: [AtomicU64; Relist::ALL.len()],
}

/// The values of one kind.
#[derive(Clone, Copy, Debug)]
pub struct KindValues {
    /// The kind's name.
    pub kind: &'static str,
    /// Whether its watch is open.
    pub connected: bool,
    /// Seconds since anything was received; none before.
    pub silence_seconds: Option<f64>,
    /// Lists, by reason.
    pub lists: [(Relist, u64); Relist::ALL.len()],
}

impl KubernetesState {
    /// Sets whether the kind's watch is open.
    pub(super) fn connected(&self, kind: Kind, now: bool) {
        self.of(kind).connected.store(now, Ordering::Relaxed);
    }

    /// Records that a part of a response was received.
    pub(super) fn received(&self, kind: Kind) {
        let at = &self.of(kind).received_at;
        at.store(Boottime::now().0, Ordering::Relaxed);
    }

    /// Counts a list.
    pub(super) fn listed(&self, kind: Kind, reason: Relist) {
        let place = Relist::ALL.iter().position(|known| *known == reason);
        if let Some(count) = place.and_then(|place| self.of(kind).lists.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The values of all kinds.
    pub fn values(&self) -> impl Iterator<Item = KindValues> {
        let now = Boottime::now();
        Kind::ALL.iter().zip(&self.kinds).map(move |(kind, state)| {
            let count = |place: usize| state.lists[place].load(Ordering::Relaxed);
            let received = Some(state.received_at.load(Ordering::Relaxed)).filter(|at| *at > 0);
            KindValues {
                kind: kind.name(),
                connected: state.connected.load(Ordering::Relaxed),
                silence_seconds: received.map(|at| now.since(Boottime(at)).as_secs_f64()),
                lists: std::array::from_fn(|place| (Relist::ALL[place], count(place))),
            }
        })
    }

    fn of(&self, kind: Kind) -> &KindState {
        let [node, service, slice] = &self.kinds;
        match kind {
            Kind::Node => node,
            Kind::Service => service,
            Kind::EndpointSlice => slice,
        }
    }
}
