//! Leases: the holder of an address, its state, and since when.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::prefix::Suffix;

/// The key of a CNI attachment. A container may have several interfaces and networks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseKey {
    /// The network's name, from the configuration.
    pub network: String,
    /// The runtime's container id.
    pub container: String,
    /// The interface's name inside the pod.
    pub ifname: String,
}

/// Longest key, in bytes: above the plugin's limits, below the size of a record.
pub const KEY_LEN_MAX: usize = 2048;

impl LeaseKey {
    /// Length of its three names, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.network.len() + self.container.len() + self.ifname.len()
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

/// The identity of a network namespace. Unlike a path, it is not reused while the namespace exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode of the namespace.
    pub ino: u64,
}

/// The kernel's boot id. Leases of an earlier boot are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Parses the form of `/proc/sys/kernel/random/boot_id`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let bits = u128::from_str_radix(&digits, 16)
            .ok()
            .filter(|_| digits.len() == 32)?;
        Some(Self(bits.to_be_bytes()))
    }
}

/// The state of a lease. A free address has no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Written to the journal; the pod's links may be partly created.
    Reserved,
    /// The pod is wired and uses the address.
    Live,
    /// The pod's links are being removed.
    Releasing,
}

/// A leased address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub key: LeaseKey,
    /// The low 32 bits of the pod's IPv6 address.
    pub suffix: Suffix,
    /// Its state.
    pub state: State,
    /// The pod's namespace.
    pub netns: NetnsId,
    /// Time of the reservation, since boot.
    pub since: Duration,
    /// The pod's IPv4 address, if it has one.
    pub ipv4: Option<Ipv4Addr>,
    /// Whether the agent created the pod's link. If not, another plugin did, and a missing link does not mean that the pod
    /// is gone.
    pub wired: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_as_the_kernel_writes_it() {
        let id = BootId::parse("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(id.0[0..2], [0x00, 0x11]);
        assert_eq!(BootId::parse("0011"), None);
    }
}
