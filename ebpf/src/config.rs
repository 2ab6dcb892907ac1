//! The node's facts: the ranges of VIPs, cluster IPs and pods, its own addresses, and the activators.

mod forwarding;

pub use forwarding::{Forwarding, PackedForwarding};

use crate::maps::{join, split};
use crate::packet;
use crate::service::{SLOTS_MAX, VIPS_MAX};

/// The most VIP ranges of a cluster.
pub const RANGES_MAX: usize = 4;
/// The most activators that a node chooses from.
pub const ACTIVATORS_MAX: usize = 8;
/// The most ranges of cluster IPs (`--service-range`).
pub const SERVICE_RANGES_MAX: usize = 4;

/// An address range of any length. All zero: no range.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// The first address; IPv4 is mapped.
    pub prefix: [u8; 16],
    /// The netmask.
    pub mask: [u8; 16],
}

impl Net {
    /// Whether the range is configured.
    #[inline(always)]
    pub const fn is_some(&self) -> bool {
        self.mask[0] != 0
    }

    /// Whether the address is in it; false if the range is not configured.
    #[inline(always)]
    pub fn contains(&self, address: &[u8; 16]) -> bool {
        let [address, prefix, mask] =
            [address, &self.prefix, &self.mask].map(|bytes| u128::from_ne_bytes(*bytes));
        self.is_some() && (address ^ prefix) & mask == 0
    }
}

/// A range inside one /96 whose addresses have slots by their index.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub prefix: [u8; 16],
    /// The netmask of the low 32 bits.
    pub mask: u32,
    /// The slot of the first address.
    pub base: u32,
}

/// An activator.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activator {
    /// Its acting prefix, a /96; the low 32 bits are zero.
    pub prefix: [u8; 16],
    /// The next hop to it.
    pub via: [u8; 16],
}

/// The node's facts, written by the agent. The map `config` has two rows, and the word in `current` is the index of the one
/// in force, so that programs see a change as a whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// VIP ranges.
    pub ranges: [Range; RANGES_MAX],
    /// Activators.
    pub activators: [Activator; ACTIVATORS_MAX],
    /// How many of `ranges` are in use.
    pub ranges_len: u32,
    /// How many of `activators` are in use.
    pub activators_len: u32,
    /// The parts of the service ranges whose cluster IPs have slots by their index.
    pub services: [Range; SERVICE_RANGES_MAX],
    /// The service ranges, which cluster IPs are allocated from.
    pub service_ranges: [Net; SERVICE_RANGES_MAX],
    /// The cluster's pod ranges: IPv4's, IPv6's.
    pub pods: [Net; 2],
    /// The cookie of the node's network namespace (`SO_NETNS_COOKIE`).
    pub netns: u64,
    /// The node prefix, a /96; the low 32 bits are zero.
    pub node_prefix: [u8; 16],
    /// The node's IPv6 address, which masqueraded packets get.
    pub node_address: [u8; 16],
    /// The node's IPv4 address, mapped; all zero: none.
    pub node_address4: [u8; 16],
    /// How many of `services` are in use.
    pub services_len: u32,
    /// 1: connections of pods to cluster IPs are masqueraded, too.
    pub masquerade_all: u8,
    /// 1: another proxy may translate connections that were established before: packets to Services without a flow that
    /// open none are left to the host.
    pub beside_proxy: u8,
    /// The deny list in force: see [`crate::deny`].
    pub deny: u8,
    /// Zero.
    pub pad: u8,
    /// The index of the uplink.
    pub uplink: u32,
    /// The link-layer address of the uplink.
    pub uplink_mac: [u8; 6],
    /// 1: there may be pods whose link has no program attached, such as those of another CNI plugin.
    pub unseen_pods: u8,
    /// 1: Neighbour Solicitations for pods are not answered, because the network routes the node prefix.
    pub quiet: u8,
    /// Direct forwarding between pods.
    pub forwarding: PackedForwarding,
}

impl Range {
    /// The index of an address of this range, if it is below `end`.
    #[inline(always)]
    pub fn index_of(&self, address: &[u8; 16], end: u32) -> Option<u32> {
        let (upper, low) = split(address);
        let (own_upper, own_low) = split(&self.prefix);
        let inside = upper == own_upper && (low ^ own_low) & self.mask == 0;
        let index = self.base.wrapping_add(low & !self.mask);
        (inside && index < end).then_some(index)
    }
}

impl Config {
    /// The slot of an app's VIP, by its index.
    #[inline(always)]
    pub fn vip(&self, address: &[u8; 16]) -> Option<u32> {
        let mut place = 0;
        while place < RANGES_MAX {
            if place >= self.ranges_len as usize {
                return None;
            }
            if let Some(index) = self.ranges[place].index_of(address, VIPS_MAX) {
                return Some(index);
            }
            place += 1;
        }
        None
    }

    /// The slot of a cluster IP, by its index.
    #[inline(always)]
    pub fn cluster_ip(&self, address: &[u8; 16]) -> Option<u32> {
        let mut place = 0;
        while place < SERVICE_RANGES_MAX {
            if place >= self.services_len as usize {
                return None;
            }
            if let Some(slot) = self.services[place].index_of(address, SLOTS_MAX) {
                return Some(slot);
            }
            place += 1;
        }
        None
    }

    /// Whether the address is in a service range.
    #[inline(always)]
    pub fn is_service_address(&self, address: &[u8; 16]) -> bool {
        let mut place = 0;
        while place < SERVICE_RANGES_MAX {
            if self.service_ranges[place].contains(address) {
                return true;
            }
            place += 1;
        }
        false
    }

    /// Whether the address is an app's VIP, or in a service range.
    #[inline(always)]
    pub fn is_vip(&self, address: &[u8; 16]) -> bool {
        self.vip(address).is_some() || self.is_service_address(address)
    }

    /// The pod range of the address's family, if the cluster has one.
    #[inline(always)]
    pub fn pods_of(&self, address: &[u8; 16]) -> Option<&Net> {
        let range = if packet::is_v4(address) {
            &self.pods[0]
        } else {
            &self.pods[1]
        };
        range.is_some().then_some(range)
    }

    /// Whether the address is in a pod range.
    #[inline(always)]
    pub fn is_pod(&self, address: &[u8; 16]) -> bool {
        self.pods_of(address)
            .is_some_and(|range| range.contains(address))
    }

    /// The node's address of the same family; all zero: it has none.
    #[inline(always)]
    pub fn node_address_for(&self, address: &[u8; 16]) -> &[u8; 16] {
        if packet::is_v4(address) {
            &self.node_address4
        } else {
            &self.node_address
        }
    }

    /// The activator of a VIP; the same one on all nodes with the same list.
    #[inline(always)]
    pub fn activator(&self, vip: u32) -> Option<&Activator> {
        if self.activators_len == 0 {
            return None;
        }
        self.activators
            .get((vip % self.activators_len) as usize & (ACTIVATORS_MAX - 1))
    }

    /// The next hop to an address in an acting prefix.
    #[inline(always)]
    pub fn via(&self, address: &[u8; 16]) -> Option<&[u8; 16]> {
        let mut place = 0;
        while place < ACTIVATORS_MAX {
            if place >= self.activators_len as usize {
                return None;
            }
            let activator = &self.activators[place];
            if split(&activator.prefix).0 == split(address).0 {
                return Some(&activator.via);
            }
            place += 1;
        }
        None
    }

    /// Whether the address is in the node prefix.
    #[inline(always)]
    pub fn is_local(&self, address: &[u8; 16]) -> bool {
        split(address).0 == split(&self.node_prefix).0
    }
}

impl Activator {
    /// The address in the acting prefix that represents a VIP.
    #[inline(always)]
    pub fn address_for(&self, vip: u32) -> [u8; 16] {
        join(&self.prefix, vip.to_be_bytes())
    }
}

#[cfg(not(target_arch = "bpf"))]
// SAFETY: `repr(C)`, `Copy`, no references, valid for every bit pattern.
unsafe impl aya::Pod for Config {}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range {
        prefix: [0xfd, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        mask: 0xfff0_0000,
        base: 0,
    };

    fn vip(low: u32) -> [u8; 16] {
        join(&RANGE.prefix, low.to_be_bytes())
    }

    #[test]
    fn an_address_of_a_range_has_the_index_of_its_low_bits() {
        assert_eq!(RANGE.index_of(&vip(1), VIPS_MAX), Some(1));
        assert_eq!(RANGE.index_of(&vip(0xf_ffff), VIPS_MAX), Some(0xf_ffff));
        assert_eq!(RANGE.index_of(&vip(0x10_0000), VIPS_MAX), None);
        assert_eq!(RANGE.index_of(&[0x20; 16], VIPS_MAX), None);
    }

    #[test]
    fn a_second_range_goes_on_where_its_base_says() {
        let mut config = Config {
            ranges_len: 2,
            ..Config::default()
        };
        config.ranges[0] = Range {
            mask: 0xffff_ff00,
            ..RANGE
        };
        config.ranges[1] = Range {
            prefix: [0xfe; 16],
            mask: 0xffff_ff00,
            base: 256,
        };
        let mut second = [0xfe; 16];
        second[15] = 3;
        assert_eq!(config.vip(&vip(3)), Some(3));
        assert_eq!(config.vip(&second), Some(256 + 3));
        config.ranges_len = 1;
        assert_eq!(config.vip(&second), None, "a range that is not in use");
    }

    #[test]
    fn an_index_past_the_maps_is_no_vip() {
        let range = Range {
            base: VIPS_MAX - 1,
            ..RANGE
        };
        assert_eq!(range.index_of(&vip(0), VIPS_MAX), Some(VIPS_MAX - 1));
        assert_eq!(range.index_of(&vip(1), VIPS_MAX), None);
    }

    #[test]
    fn the_activator_stands_for_a_vip_under_its_index() {
        let mut config = Config {
            activators_len: 1,
            ..Config::default()
        };
        config.activators[0].prefix = [0xa1; 16];
        let address = config.activator(7).unwrap().address_for(0x10007);
        assert_eq!(address[12..], [0, 1, 0, 7]);
        assert_eq!(Config::default().activator(7), None);
    }
}
