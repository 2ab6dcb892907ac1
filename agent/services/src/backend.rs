//! From the endpoints of a service port to the backends that packets on this node may be sent to.

mod list;

use std::net::IpAddr;

use crate::address::Family;
use crate::key::Protocol;
use crate::slice::{Slice, State};

pub use list::Backends;

/// The weight of every backend that Kubernetes names: all have an equal chance.
pub const WEIGHT_DEFAULT: u16 = 1;

/// Where a packet may be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own; a list keeps them as bits"
)]
pub struct Backend {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its share of new connections, relative to the others'.
    pub weight: u16,
    /// Whether it runs on this node.
    pub local: bool,
    /// Whether it says that it answers; being ready is enough for new connections all the same.
    pub serving: bool,
    /// Whether traffic with policy Cluster may use it.
    pub for_cluster: bool,
    /// Whether traffic with policy Local may use it.
    pub for_local: bool,
}

/// One endpoint of a service port, in whatever condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) state: State,
}

/// All endpoints for the service port of that name and protocol, sorted, each address and port once.
pub(crate) fn candidates<'a>(
    slices: impl Iterator<Item = &'a Slice>,
    (family, name, protocol): (Family, &str, Protocol),
    zone: Option<&str>,
) -> Vec<Candidate> {
    let mut all = Vec::new();
    for slice in slices.filter(|slice| slice.family == family) {
        let ports = slice.ports.iter();
        for port in ports.filter(|port| *port.name == *name && port.protocol == protocol) {
            let endpoints = slice.endpoints_in(zone);
            all.extend(endpoints.map(|(address, state)| Candidate {
                address,
                port: port.number,
                state,
            }));
        }
    }
    unique(all)
}

/// Of the same address and port, one that is not terminating wins over one that is; of several such, the last.
fn unique(mut all: Vec<Candidate>) -> Vec<Candidate> {
    all.sort_by_key(|candidate| (candidate.address, candidate.port));
    all.dedup_by(|next, kept| {
        let same = (next.address, next.port) == (kept.address, kept.port);
        if same && !next.state.has(State::TERMINATING) {
            *kept = *next;
        }
        same
    });
    all
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
    fn of(candidates: &[Candidate]) -> Self {
        let ready = || {
            candidates
                .iter()
                .map(|candidate| candidate.state)
                .filter(is_ready)
        };
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "a predicate of iterators takes a reference"
)]
fn is_ready(state: &State) -> bool {
    state.has(State::READY)
}

/// Which policies a service port can have use for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Uses {
    pub(crate) cluster: bool,
    pub(crate) local: bool,
}

/// The backends that this node may use, and whether any endpoint of the cluster could serve.
pub(crate) fn choose(candidates: &[Candidate], uses: Uses) -> (Backends, bool) {
    let topology = Topology::of(candidates);
    let states = || candidates.iter().map(|candidate| candidate.state);
    let any_ready = states().any(|state| is_ready(&state));
    let any_local_ready = states().any(|state| is_ready(&state) && state.has(State::LOCAL));
    let for_cluster = |state: State| {
        let ready = is_ready(&state) && topology.admits(state);
        ready || !any_ready && state.is_fallback()
    };
    let for_local = |state: State| {
        let eligible = is_ready(&state) || !any_local_ready && state.is_fallback();
        eligible && state.has(State::LOCAL)
    };
    let backends = candidates.iter().map(|candidate| Backend {
        address: candidate.address,
        port: candidate.port,
        weight: WEIGHT_DEFAULT,
        local: candidate.state.has(State::LOCAL),
        serving: candidate.state.has(State::SERVING),
        for_cluster: uses.cluster && for_cluster(candidate.state),
        for_local: uses.local && for_local(candidate.state),
    });
    let usable = backends.filter(|backend| backend.for_cluster || backend.for_local);
    let usable: Backends = usable.collect();
    let any = usable.iter().any(|backend| backend.for_cluster)
        || uses.local && states().any(|state| is_ready(&state) || state.is_fallback());
    (usable, any)
}

/// The endpoints that are no backends, and to which standing connections may go on all the same, sorted: for UDP those
/// that answer; for the others all, because such a connection ends by itself when its endpoint does.
pub(crate) fn standing(
    candidates: &[Candidate],
    backends: &Backends,
    protocol: Protocol,
) -> Box<[(IpAddr, u16)]> {
    let mut backends = backends.iter().peekable();
    let others = candidates.iter().filter(|candidate| {
        let place = (candidate.address, candidate.port);
        let found = backends.next_if(|backend| (backend.address, backend.port) == place);
        found.is_none()
    });
    others
        .filter(|candidate| protocol != Protocol::Udp || candidate.state.has(State::SERVING))
        .map(|candidate| (candidate.address, candidate.port))
        .collect()
}
