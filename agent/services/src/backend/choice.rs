//! Which endpoints this node may use, by their conditions and hints.

use crate::key::Protocol;
use crate::slice::State;

use super::Candidates;

/// Which policies a service port can have use for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Uses {
    pub(crate) cluster: bool,
    pub(crate) local: bool,
}

/// Which backends are close enough: what the hints of the ready endpoints amount to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Topology {
    Anywhere,
    Zone,
    Node,
}

impl Topology {
    /// Hints count when every ready endpoint has them and one of them is meant for this place.
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

/// What is common to the endpoints of a service port, and decides about each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    uses: Uses,
    topology: Topology,
    /// Whether some endpoint is ready: then none is a last resort.
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

    /// Whether traffic with policy Cluster may use it.
    pub(super) fn is_for_cluster(self, state: State) -> bool {
        let ready = is_ready(&state) && self.topology.admits(state);
        self.uses.cluster && (ready || !self.any_ready && state.is_fallback())
    }

    /// Whether traffic with policy Local may use it.
    pub(super) fn is_for_local(self, state: State) -> bool {
        let eligible = is_ready(&state) || !self.any_local_ready && state.is_fallback();
        self.uses.local && eligible && state.has(State::LOCAL)
    }

    /// Whether standing connections may go on to it if it is no backend.
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
