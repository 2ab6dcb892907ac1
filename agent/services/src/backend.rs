//! The backends of a service port that this node may use, from its endpoints.

mod candidates;
mod choice;
mod list;

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::Family;
use crate::key::Protocol;
use crate::slice::{Endpoint, Slice, State};

pub(crate) use candidates::{Candidate, Candidates};
use choice::Choice;
pub(crate) use choice::Uses;
pub use list::Backends;

/// The weight of every backend: Kubernetes has no weights, all are equal.
pub const WEIGHT_DEFAULT: u16 = 1;

/// A destination for packets of a service port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Backend {
    /// Backend address.
    pub address: IpAddr,
    /// Backend port.
    pub port: u16,
    /// Weight for new connections, relative to the others.
    pub weight: u16,
    /// The backend is on this node.
    pub local: bool,
    /// Condition `serving`; for new connections `ready` is enough.
    pub serving: bool,
    /// Used with traffic policy Cluster.
    pub for_cluster: bool,
    /// Used with traffic policy Local.
    pub for_local: bool,
}

/// All endpoints for the service port with this name and protocol.
pub(crate) fn candidates<'a>(
    slices: impl Iterator<Item = &'a Slice>,
    (family, name, protocol): (Family, &str, Protocol),
) -> Candidates {
    let slices = slices.filter(|slice| slice.family == family);
    let mut places = slices.flat_map(|slice| {
        let ports = slice.ports.iter();
        let ports = ports.filter(|port| *port.name == *name && port.protocol == protocol);
        ports.map(|port| (slice.endpoints(), port.number))
    });
    let first = places.next();
    let second = places.next();
    match (first, second) {
        (Some((endpoints, port)), None) => Candidates::Shared(Arc::clone(endpoints), port),
        (first, second) => Candidates::Merged(merge(first.into_iter().chain(second).chain(places))),
    }
}

/// Of the same address and port, a non-terminating endpoint wins over a terminating one; of several such, the last.
fn merge<'a>(places: impl Iterator<Item = (&'a Arc<[Endpoint]>, u16)>) -> Box<[Candidate]> {
    let mut all: Vec<_> = places
        .flat_map(|(endpoints, port)| {
            endpoints.iter().map(move |endpoint| Candidate {
                address: endpoint.address,
                port,
                state: endpoint.state,
            })
        })
        .collect();
    all.sort_by_key(|candidate| (candidate.address, candidate.port));
    all.dedup_by(|next, kept| {
        let same = (next.address, next.port) == (kept.address, kept.port);
        if same && !next.state.has(State::TERMINATING) {
            *kept = *next;
        }
        same
    });
    all.into()
}

/// The backends that this node may use, and whether any endpoint of the cluster could serve.
pub(crate) fn choose(candidates: Candidates, uses: Uses, protocol: Protocol) -> (Backends, bool) {
    let choice = Choice::of(&candidates, uses, protocol);
    let any = choice.any(&candidates);
    (Backends { candidates, choice }, any)
}
