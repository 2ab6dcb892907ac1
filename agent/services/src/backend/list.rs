//! The backends of a service port, as a view of its endpoints: a node may know a million, and keeps each once.

use std::fmt;
use std::net::IpAddr;

use crate::address::Packed;
use crate::slice::State;

use super::candidates::{Candidate, Candidates};
use super::choice::Choice;
use super::{Backend, WEIGHT_DEFAULT};

/// What a candidate is on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Backend(Backend),
    /// No backend, but standing connections may go on to it.
    Standing((IpAddr, u16)),
}

/// The backends of a service port, sorted by address and port.
#[derive(Clone)]
pub struct Backends {
    pub(super) candidates: Candidates,
    pub(super) choice: Choice,
}

impl Backends {
    /// How many there are; costs a look at all.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            backends: self,
            next: 0,
        }
    }

    /// The backend at this address and port.
    pub fn at(&self, place: (IpAddr, u16)) -> Option<Backend> {
        match self.part_at(place)? {
            Part::Backend(backend) => Some(backend),
            Part::Standing(_) => None,
        }
    }

    /// Whether an endpoint with this address is not used for new connections, but established ones may continue: for UDP
    /// only if it serves; for TCP and SCTP always, because such a connection ends by itself when its endpoint does.
    pub(crate) fn stands_at(&self, place: (IpAddr, u16)) -> bool {
        matches!(self.part_at(place), Some(Part::Standing(_)))
    }

    /// Whether there is any of those.
    pub(crate) fn any_stands(&self) -> bool {
        self.parts().any(|part| matches!(part, Part::Standing(_)))
    }

    fn part_at(&self, (address, port): (IpAddr, u16)) -> Option<Part> {
        let found = self.candidates.find((Packed::new(address), port))?;
        self.part(found)
    }

    fn parts(&self) -> impl Iterator<Item = Part> {
        let all = self.candidates.iter();
        all.filter_map(|candidate| self.part(candidate))
    }

    fn part(&self, candidate: Candidate) -> Option<Part> {
        let Candidate {
            address,
            port,
            state,
        } = candidate;
        let (for_cluster, for_local) = (
            self.choice.is_for_cluster(state),
            self.choice.is_for_local(state),
        );
        let address = address.address();
        if for_cluster || for_local {
            return Some(Part::Backend(Backend {
                address,
                port,
                weight: WEIGHT_DEFAULT,
                local: state.has(State::LOCAL),
                serving: state.has(State::SERVING),
                for_cluster,
                for_local,
            }));
        }
        let stands = self.choice.may_stand(state);
        stands.then_some(Part::Standing((address, port)))
    }
}

/// Backends one by one.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    backends: &'a Backends,
    next: usize,
}

impl Iterator for Iter<'_> {
    type Item = Backend;

    fn next(&mut self) -> Option<Backend> {
        loop {
            let candidate = self.backends.candidates.get(self.next)?;
            self.next += 1;
            if let Some(Part::Backend(backend)) = self.backends.part(candidate) {
                return Some(backend);
            }
        }
    }
}

impl<'a> IntoIterator for &'a Backends {
    type Item = Backend;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The same backends, and the same endpoints that standing connections go on to: what else there is makes no difference.
impl PartialEq for Backends {
    fn eq(&self, other: &Self) -> bool {
        self.parts().eq(other.parts())
    }
}

impl Eq for Backends {}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts()).finish()
    }
}
