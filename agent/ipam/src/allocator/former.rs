//! The attachments whose leases ended last: a container that is restarted takes its addresses back. Pure.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::lease::{Lease, LeaseKey};
use crate::prefix::Suffix;

/// Limit of the attachments; of earlier ones the addresses are in quarantine for their own, too.
const FORMER_MAX: usize = 256;

/// The last attachments, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Former(VecDeque<(LeaseKey, Suffix, Option<Ipv4Addr>)>);

impl Former {
    /// A lease has ended.
    pub(super) fn ended(&mut self, lease: &Lease) {
        self.0.retain(|(key, ..)| *key != lease.key);
        if self.0.len() == FORMER_MAX {
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
