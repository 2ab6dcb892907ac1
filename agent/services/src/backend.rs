//! From the endpoints of a service port to the backends that packets on this node may be sent to.

mod choice;
mod list;

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::Family;
use crate::key::Protocol;
use crate::slice::{Endpoint, Slice, State};

use choice::Choice;
pub(crate) use choice::Uses;
pub use list::Backends;
pub(crate) use list::{Candidate, Candidates};

/// The weight of every backend that Kubernetes names: all have an equal chance.
pub const WEIGHT_DEFAULT: u16 = 1;

/// Where a packet may be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
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

/// All endpoints for the service port of that name and protocol.
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

/// Of the same address and port, one that is not terminating wins over one that is; of several such, the last.
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
