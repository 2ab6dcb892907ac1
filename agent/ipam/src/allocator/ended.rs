//! The leases that ended last, each with its attachment: a container that is restarted takes its addresses back. Pure.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::lease::{Lease, LeaseKey};
use crate::prefix::Suffix;

/// Limit of the leases; the addresses of earlier ones are in quarantine for their own attachment, too.
const ENDED_MAX: usize = 256;

/// The last leases, the oldest first. All of an attachment count: an address is another one's since, whatever that one had later.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ended(VecDeque<(LeaseKey, Suffix, Option<Ipv4Addr>)>);

impl Ended {
    /// A lease has ended.
    pub(super) fn push(&mut self, lease: &Lease) {
        if self.0.len() == ENDED_MAX {
            self.0.pop_front();
        }
        let key = lease.key.clone();
        self.0.push_back((key, lease.suffix, lease.ipv4));
    }

    /// Whether the attachment was the last one with this suffix.
    pub(super) fn had(&self, key: &LeaseKey, suffix: Suffix) -> bool {
        let mut last = self.0.iter().rev();
        last.find(|(_, of, _)| *of == suffix)
            .is_some_and(|(of, ..)| of == key)
    }

    /// Whether the attachment was the last one with this IPv4 address.
    pub(super) fn had4(&self, key: &LeaseKey, address: Ipv4Addr) -> bool {
        let mut last = self.0.iter().rev();
        last.find(|(.., of)| *of == Some(address))
            .is_some_and(|(of, ..)| of == key)
    }
}
