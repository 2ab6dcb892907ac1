//! The endpoints of a service port, whatever their condition.

use std::sync::Arc;

use crate::address::Packed;
use crate::slice::{Endpoint, State};

/// One endpoint of a service port, in whatever condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) address: Packed,
    pub(crate) port: u16,
    pub(crate) state: State,
}

const _: () = assert!(size_of::<Candidate>() == 20);

/// All endpoints of a service port, sorted by address and port, each once.
#[derive(Clone)]
pub(crate) enum Candidates {
    /// Those of the only slice that has some, at this port.
    Shared(Arc<[Endpoint]>, u16),
    /// Those of several.
    Merged(Box<[Candidate]>),
}

impl Candidates {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Shared(endpoints, _) => endpoints.len(),
            Self::Merged(all) => all.len(),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<Candidate> {
        match self {
            Self::Shared(endpoints, port) => endpoints.get(place).map(|endpoint| Candidate {
                address: endpoint.address,
                port: *port,
                state: endpoint.state,
            }),
            Self::Merged(all) => all.get(place).copied(),
        }
    }

    pub(super) fn find(&self, (address, port): (Packed, u16)) -> Option<Candidate> {
        let place = match self {
            Self::Shared(endpoints, number) => {
                let found = endpoints.binary_search_by_key(&address, |known| known.address);
                found.ok().filter(|_| *number == port)
            }
            Self::Merged(all) => {
                let known = |known: &Candidate| (known.address, known.port);
                all.binary_search_by_key(&(address, port), known).ok()
            }
        };
        self.get(place?)
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Candidate> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// The conditions of all.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> {
        self.iter().map(|candidate| candidate.state)
    }
}
