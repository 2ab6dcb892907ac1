//! The node's own facts: which addresses are VIPs, pods and its own, and where the activators are.

use crate::flow::Ports;
use crate::maps::{join, split};
use crate::packet;
use crate::service::{SLOTS_MAX, VIPS_MAX};

/// VIP ranges of a cluster.
pub const RANGES_MAX: usize = 4;
/// Activators that a node chooses from.
pub const ACTIVATORS_MAX: usize = 8;
/// Ranges that cluster IPs are taken from.
pub const SERVICE_RANGES_MAX: usize = 4;

/// Instead of an interface: newer programs stand behind these. No packet is led past the host's forwarding, for these may know
/// what becomes of it.
pub const HANDING_OVER: u32 = u32::MAX;
/// Instead of an interface: older programs stand before these.
pub const TAKING_OVER: u32 = u32::MAX - 1;

/// Addresses that begin alike. All zero is none.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// The first address; IPv4 is mapped.
    pub prefix: [u8; 16],
    /// Ones where all its addresses are alike.
    pub mask: [u8; 16],
}

impl Net {
    /// Whether there is such a range at all.
    #[inline(always)]
    pub const fn is_some(&self) -> bool {
        self.mask[0] != 0
    }

    /// Whether the address is in it; no address is in none.
    #[inline(always)]
    pub fn contains(&self, address: &[u8; 16]) -> bool {
        let [address, prefix, mask] =
            [address, &self.prefix, &self.mask].map(|bytes| u128::from_ne_bytes(*bytes));
        self.is_some() && (address ^ prefix) & mask == 0
    }
}

/// A VIP range: addresses that become indexes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub prefix: [u8; 16],
    /// The bits of the low word that are the same for the whole range.
    pub mask: u32,
    /// The index of its first address.
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

/// The node's own facts. The map has two slots, and the word `current` names the one in force: a change is seen whole.
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
    /// The parts of the cluster IPs' ranges whose addresses have slots of their own.
    pub services: [Range; SERVICE_RANGES_MAX],
    /// The ranges that cluster IPs are taken from.
    pub service_ranges: [Net; SERVICE_RANGES_MAX],
    /// The pods of the cluster: IPv4's, IPv6's.
    pub pods: [Net; 2],
    /// The node's network namespace, as `SO_NETNS_COOKIE` tells.
    pub netns: u64,
    /// The node prefix, a /96; the low 32 bits are zero.
    pub node_prefix: [u8; 16],
    /// The node's own address.
    pub node_address: [u8; 16],
    /// Its IPv4 address, mapped; all zero: none.
    pub node_address4: [u8; 16],
    /// How many of `services` are in use.
    pub services_len: u32,
    /// 1: whoever calls a cluster IP hides behind the node's address.
    pub hides_all: u32,
    /// The outer interface.
    pub uplink: u32,
    /// Its link-layer address.
    pub uplink_mac: [u8; 6],
    /// 1: there may be pods whose own link no program sees.
    pub unseen_pods: u8,
    /// 1: solicitations are left alone, for the network routes the node prefix.
    pub quiet: u8,
    /// The interface by which pods' packets reach the host's forwarding, in whose name routes are looked up for those that
    /// are led past it; 0: none is. Or [`HANDING_OVER`], [`TAKING_OVER`].
    pub forwarder: u32,
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
    /// Packets between pods are led past the host's forwarding.
    #[inline(always)]
    pub const fn forwards(&self) -> bool {
        self.forwarder != 0 && self.forwarder < TAKING_OVER
    }

    /// Which of the node's ports are drawn for who hides.
    #[inline(always)]
    pub const fn ports(&self) -> Ports {
        match self.forwarder {
            HANDING_OVER => Ports::Odd,
            TAKING_OVER => Ports::Even,
            _ => Ports::All,
        }
    }

    /// The index of an app's VIP.
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

    /// The slot that belongs to an address of the cluster IPs' ranges.
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

    /// A cluster IP may be this address.
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

    /// The pods' range of the address's family, if the cluster has one.
    #[inline(always)]
    pub fn pods_of(&self, address: &[u8; 16]) -> Option<&Net> {
        let range = if packet::is_v4(address) {
            &self.pods[0]
        } else {
            &self.pods[1]
        };
        range.is_some().then_some(range)
    }

    /// The address is taken for a pod's.
    #[inline(always)]
    pub fn is_pod(&self, address: &[u8; 16]) -> bool {
        self.pods_of(address)
            .is_some_and(|range| range.contains(address))
    }

    /// The node's own address of the same family; all zero: it has none.
    #[inline(always)]
    pub fn node_address_for(&self, address: &[u8; 16]) -> &[u8; 16] {
        if packet::is_v4(address) {
            &self.node_address4
        } else {
            &self.node_address
        }
    }

    /// The activator of a VIP: all nodes with the same list agree.
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

    /// The address lies in the node prefix.
    #[inline(always)]
    pub fn is_local(&self, address: &[u8; 16]) -> bool {
        split(address).0 == split(&self.node_prefix).0
    }
}

impl Activator {
    /// Where the activator stands for a VIP.
    #[inline(always)]
    pub fn address_for(&self, vip: u32) -> [u8; 16] {
        join(&self.prefix, vip.to_be_bytes())
    }
}

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
