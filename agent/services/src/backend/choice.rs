//! The endpoints that this node may use, by their conditions and hints.

use crate::key::Protocol;
use crate::slice::State;

use super::candidates::Candidates;

/// The policies that a service port uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Uses {
    pub(crate) cluster: bool,
    pub(crate) local: bool,
}

/// Topology aware routing: the scope in which the ready endpoints' hints allow traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Topology {
    Anywhere,
    Zone,
    Node,
}

impl Topology {
    /// Hints apply if every ready endpoint has them, and one is hinted for this place.
    fn of(candidates: &Candidates) -> Self {
        let ready = || candidates.states().filter(is_ready);
        let counts = |hinted, here| {
            ready().all(|state| state.has(hinted)) && ready().any(|state| state.has(here))
        };
        if counts(State::NODE_HINTED, State::NODE_HERE) {
            Self::Node
        } else if counts(State::ZONE_HINTED, State::ZONE_HERE) {
            Self::Zone
        } else {
            Self::Anywhere
        }
    }

    fn admits(self, state: State) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Zone => state.has(State::ZONE_HERE),
            Self::Node => state.has(State::NODE_HERE),
        }
    }
}

/// Properties of all endpoints of a service port that decide about each of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    uses: Uses,
    topology: Topology,
    /// Whether any endpoint is ready: then no terminating one is used.
    any_ready: bool,
    any_local_ready: bool,
    is_udp: bool,
}

impl Choice {
    pub(super) fn of(candidates: &Candidates, uses: Uses, protocol: Protocol) -> Self {
        let mut ready = candidates.states().filter(is_ready);
        let any_local_ready = candidates
            .states()
            .any(|state| is_ready(&state) && state.has(State::LOCAL));
        Self {
            uses,
            topology: Topology::of(candidates),
            any_ready: ready.next().is_some(),
            any_local_ready,
            is_udp: protocol == Protocol::Udp,
        }
    }

    /// Whether it is used with traffic policy Cluster.
    pub(super) fn is_for_cluster(self, state: State) -> bool {
        let ready = is_ready(&state) && self.topology.admits(state);
        self.uses.cluster && (ready || !self.any_ready && state.is_fallback())
    }

    /// Whether it is used with traffic policy Local.
    pub(super) fn is_for_local(self, state: State) -> bool {
        let eligible = is_ready(&state) || !self.any_local_ready && state.is_fallback();
        self.uses.local && eligible && state.has(State::LOCAL)
    }

    /// Whether established connections may continue to it if it is not a backend.
    pub(super) fn may_stand(self, state: State) -> bool {
        !self.is_udp || state.has(State::SERVING)
    }

    /// Whether any endpoint of the cluster could serve.
    pub(super) fn any(self, candidates: &Candidates) -> bool {
        candidates.states().any(|state| {
            self.is_for_cluster(state)
                || self.uses.local && (is_ready(&state) || state.is_fallback())
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "a predicate of iterators takes a reference"
)]
fn is_ready(state: &State) -> bool {
    state.has(State::READY)
}
