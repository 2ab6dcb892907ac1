//! The layouts of the other maps: backends, prefixes, pods, sockets, events and the node's own facts.

use crate::service::VIPS_MAX;

/// Backends on a node.
pub const BACKENDS_MAX: u32 = 1 << 20;
/// Node prefixes known to a node.
pub const PREFIXES_MAX: u32 = 1 << 20;
/// Pods on a node.
pub const PODS_MAX: u32 = 1 << 14;
/// VIPs with counters: all that one node has served.
pub const FOLLOWED_MAX: u32 = 1 << 16;
/// Sockets of pods whose VIP is remembered; the least recently used goes when it is full.
pub const SOCKETS_MAX: u32 = 1 << 17;
/// Bytes of the ring of events.
pub const EVENTS_BYTES: u32 = 256 * 1024;
/// VIP ranges of a cluster.
pub const RANGES_MAX: usize = 4;
/// Activators that a node chooses from.
pub const ACTIVATORS_MAX: usize = 8;

/// One backend. Written while no set names it, never changed while one does.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// The id of its node's prefix.
    pub prefix: u32,
    /// The low 32 bits of its address.
    pub host: [u8; 4],
    /// Its port.
    pub port: u16,
    /// Counts the backends that had this id.
    pub generation: u16,
    /// Zone and flags; none yet.
    pub flags: u16,
    /// Its weight among the others; not used yet.
    pub weight: u16,
}

/// One node prefix, a /96.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// The upper 96 bits.
    pub bytes: [u8; 12],
    /// Zero.
    pub pad: [u8; 4],
}

/// A pod of this node. Its key is its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The host's end of its link.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Zero.
    pub pad: [u8; 2],
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
    /// The node prefix, a /96; the low 32 bits are zero.
    pub node_prefix: [u8; 16],
    /// The node's own address.
    pub node_address: [u8; 16],
    /// The outer interface.
    pub uplink: u32,
    /// Its link-layer address.
    pub uplink_mac: [u8; 6],
    /// 1 where an answer leaves by a redirection to the uplink itself, 0 where by XDP_TX. A veth that sends by XDP_TX
    /// wakes its peer only if that runs XDP too (`veth_xdp_flush`), by redirection always.
    pub redirects: u8,
    /// Zero.
    pub pad: u8,
}

/// What a socket of a pod really talks to: the key under which its VIP is remembered.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerKey {
    /// The socket.
    pub cookie: u64,
    /// The backend or acting address.
    pub address: [u8; 16],
    /// Its port.
    pub port: u32,
    /// Zero.
    pub pad: u32,
}

/// What a socket of a pod believes it talks to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The VIP.
    pub address: [u8; 16],
    /// The VIP's port.
    pub port: u32,
}

/// What the kernel tells the agent.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The VIP's index.
    pub vip: u32,
    /// One of [`crate::service::EventKind`].
    pub kind: u32,
    /// CLOCK_BOOTTIME of the packet.
    pub at_ns: u64,
}

const _: () =
    assert!(size_of::<Backend>() == 16 && size_of::<Prefix>() == 16 && size_of::<Event>() == 16);

impl Range {
    /// The index of an address of this range.
    #[inline(always)]
    pub fn index_of(&self, address: &[u8; 16]) -> Option<u32> {
        let (upper, low) = split(address);
        let (own_upper, own_low) = split(&self.prefix);
        let inside = upper == own_upper && (low ^ own_low) & self.mask == 0;
        let index = self.base.wrapping_add(low & !self.mask);
        (inside && index < VIPS_MAX).then_some(index)
    }
}

impl Config {
    /// The index of a VIP of any range.
    #[inline(always)]
    pub fn vip(&self, address: &[u8; 16]) -> Option<u32> {
        let mut place = 0;
        while place < RANGES_MAX {
            if place >= self.ranges_len as usize {
                return None;
            }
            if let Some(index) = self.ranges[place].index_of(address) {
                return Some(index);
            }
            place += 1;
        }
        None
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

/// A node prefix and the low 32 bits of an address in it.
#[inline(always)]
pub fn join(prefix: &[u8; 16], host: [u8; 4]) -> [u8; 16] {
    let mut address = *prefix;
    address[12] = host[0];
    address[13] = host[1];
    address[14] = host[2];
    address[15] = host[3];
    address
}

/// The upper 96 bits and the low 32.
#[inline(always)]
fn split(address: &[u8; 16]) -> ([u32; 3], u32) {
    let word = |at: usize| {
        u32::from_be_bytes([
            address[at],
            address[at + 1],
            address[at + 2],
            address[at + 3],
        ])
    };
    ([word(0), word(4), word(8)], word(12))
}

#[cfg(not(target_arch = "bpf"))]
mod host {
    //! Which layouts the agent may read from and write to maps as bytes.

    // SAFETY (of all below): `repr(C)`, `Copy`, without references, valid for every bit pattern.
    macro_rules! plain {
        ($($layout:ty),*) => { $(
            // SAFETY: `repr(C)`, `Copy`, no references, no padding that matters, valid for every bit pattern.
            unsafe impl aya::Pod for $layout {}
        )* };
    }
    plain!(
        super::Pod,
        super::Config,
        super::PeerKey,
        super::Peer,
        super::Event
    );
    plain!(
        crate::flow::FlowKey,
        crate::flow::Flow,
        crate::counts::Counts
    );
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
        assert_eq!(RANGE.index_of(&vip(1)), Some(1));
        assert_eq!(RANGE.index_of(&vip(0xf_ffff)), Some(0xf_ffff));
        assert_eq!(RANGE.index_of(&vip(0x10_0000)), None);
        assert_eq!(RANGE.index_of(&[0x20; 16]), None);
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
        assert_eq!(range.index_of(&vip(0)), Some(VIPS_MAX - 1));
        assert_eq!(range.index_of(&vip(1)), None);
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
