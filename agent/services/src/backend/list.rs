//! Keeps the backends of a service port small: a node may know a million.

use std::net::IpAddr;

use crate::address::Packed;
use crate::exact;

use super::{Backend, WEIGHT_DEFAULT};

const LOCAL: u8 = 1;
const SERVING: u8 = 1 << 1;
const FOR_CLUSTER: u8 = 1 << 2;
const FOR_LOCAL: u8 = 1 << 3;

/// The backends of a service port, sorted by address and port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backends(Box<[Kept]>);

/// A backend as it is kept: without its weight, which is that of all, and its facts as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    address: Packed,
    port: u16,
    facts: u8,
}

const _: () = assert!(size_of::<Kept>() == 20);

impl Kept {
    fn new(backend: &Backend) -> Self {
        let fact = |set, bit| if set { bit } else { 0 };
        Self {
            address: Packed::new(backend.address),
            port: backend.port,
            facts: fact(backend.local, LOCAL)
                | fact(backend.serving, SERVING)
                | fact(backend.for_cluster, FOR_CLUSTER)
                | fact(backend.for_local, FOR_LOCAL),
        }
    }

    fn backend(&self) -> Backend {
        let has = |bit| self.facts & bit != 0;
        Backend {
            address: self.address.address(),
            port: self.port,
            weight: WEIGHT_DEFAULT,
            local: has(LOCAL),
            serving: has(SERVING),
            for_cluster: has(FOR_CLUSTER),
            for_local: has(FOR_LOCAL),
        }
    }
}

/// Backends one by one.
#[derive(Clone, Debug)]
pub struct Iter<'a>(std::slice::Iter<'a, Kept>);

impl Iterator for Iter<'_> {
    type Item = Backend;

    fn next(&mut self) -> Option<Backend> {
        self.0.next().map(Kept::backend)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl Backends {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.iter())
    }

    /// The backend at this address and port.
    pub fn at(&self, (address, port): (IpAddr, u16)) -> Option<Backend> {
        let place = (Packed::new(address), port);
        let known = |kept: &Kept| (kept.address, kept.port);
        let found = self.0.binary_search_by_key(&place, known).ok()?;
        Some(self.0[found].backend())
    }
}

impl<'a> IntoIterator for &'a Backends {
    type Item = Backend;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// From backends in order.
impl FromIterator<Backend> for Backends {
    fn from_iter<T: IntoIterator<Item = Backend>>(backends: T) -> Self {
        let kept = backends.into_iter().map(|backend| Kept::new(&backend));
        Self(exact::collect(kept))
    }
}
