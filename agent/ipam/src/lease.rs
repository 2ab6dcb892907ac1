//! Who holds an address, since when, and in which step of its life.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::prefix::Suffix;

/// One attachment, as CNI names it. The same container may have several interfaces and networks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseKey {
    /// The network's name, from the configuration.
    pub network: String,
    /// The runtime's container id.
    pub container: String,
    /// The interface's name inside the pod.
    pub ifname: String,
}

/// The longest key, in bytes: longer than CNI's limits allow, shorter than what a record holds.
pub const KEY_LEN_MAX: usize = 2048;

impl LeaseKey {
    /// Bytes of its three names.
    pub(crate) fn length(&self) -> usize {
        self.network.len() + self.container.len() + self.ifname.len()
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

/// A network namespace's identity: paths are reused, the pair is not while anyone holds the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode of the namespace.
    pub ino: u64,
}

/// Names one boot of the machine: leases of another boot are dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Reads the form of `/proc/sys/kernel/random/boot_id`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let bits = u128::from_str_radix(&digits, 16)
            .ok()
            .filter(|_| digits.len() == 32)?;
        Some(Self(bits.to_be_bytes()))
    }
}

/// The steps of a lease. Free has no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Chosen and durable; the kernel may have parts of the pod's wiring.
    Reserved,
    /// Wired: the pod uses it.
    Live,
    /// Being unwired.
    Releasing,
}

/// One held address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub key: LeaseKey,
    /// Which address.
    pub suffix: Suffix,
    /// Its step.
    pub state: State,
    /// The pod's namespace.
    pub netns: NetnsId,
    /// When it was reserved, since boot.
    pub since: Duration,
    /// The IPv4 address that it holds beside.
    pub ipv4: Option<Ipv4Addr>,
    /// Whether the pod's link is ours. If not, another plugin wires the address, and a missing link says nothing.
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
