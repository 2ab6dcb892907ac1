//! The layouts of the other maps: backends, prefixes, foreign VIPs, clients that keep their backend, pods, sockets, events.

/// Backends on a node.
pub const BACKENDS_MAX: u32 = 1 << 20;
/// Node prefixes known to a node.
pub const PREFIXES_MAX: u32 = 1 << 20;
/// Pods on a node.
pub const PODS_MAX: u32 = 1 << 14;
/// VIPs with counters: all that one node has served.
pub const FOLLOWED_MAX: u32 = 1 << 16;
/// Pairs of an unconnected socket and an address it sends to whose VIP is remembered; the least recently used goes when it
/// is full.
pub const PEERS_MAX: u32 = 1 << 17;
/// Bytes of the ring of events.
pub const EVENTS_BYTES: u32 = 256 * 1024;
/// VIPs that are found by their address and port: further ports, node ports, addresses outside of all ranges.
pub const FOREIGN_MAX: u32 = 1 << 18;
/// Slots with something extra.
pub const EXTRAS_MAX: u32 = 1 << 16;
/// Source ranges of all load balancers' addresses.
pub const ADMITTED_MAX: u32 = 1 << 16;
/// Clients that keep their backend; the least recently used goes when it is full.
pub const STICKY_MAX: u32 = 1 << 16;
/// Fragmented packets under way; the least recently used goes when it is full.
pub const FRAGMENTS_MAX: u32 = 1 << 13;
/// Reasons and slots with dropped packets; the least recently used goes when it is full.
pub const DROPS_MAX: u32 = 1 << 14;
/// Words of the filter before the foreign VIPs: a bit for each hash of an address.
pub const FILTER_WORDS: u32 = 1 << 10;

/// Words of a filter before the flows: a bit for each hash of an address that flows come from.
///
/// There are two filters, and behind them a word that says which one is asked. Programs mark in both; the agent makes the
/// other one anew from the flows that there are, and has that one asked.
pub const FLOWING_WORDS: u32 = 1 << 12;

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
    /// Counts the backends that had this id: whoever remembers another one remembers a backend that is gone.
    pub generation: u16,
    /// [`FOR_CLUSTER`] and [`FOR_LOCAL`]; above them its place among its slot's backends in the order of their texts.
    pub flags: u16,
    /// Its weight among the others.
    pub weight: u16,
}

/// Traffic with policy Cluster may use the backend.
pub const FOR_CLUSTER: u16 = 1;
/// Traffic with policy Local may use it.
pub const FOR_LOCAL: u16 = 2;
/// Where a backend's place begins in its flags; later places than fit share the last.
pub const PLACE_SHIFT: u32 = 2;

/// What is found by an address: see the constants `FOREIGN_*`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForeignKey {
    /// The address; IPv4 is mapped.
    pub address: [u8; 16],
    /// The port; 0 where only the address counts.
    pub port: u16,
    /// IP protocol number; 0 where only the address counts.
    pub protocol: u8,
    /// What is asked.
    pub kind: u8,
}

/// The slot of a VIP, by address, port and protocol; [`FOREIGN_RANGED`] may be set in it.
pub const FOREIGN_VIP: u8 = 0;
/// The address is the cluster IP of a service that is served.
pub const FOREIGN_CLUSTER_IP: u8 = 1;
/// The address is on an interface of this node.
pub const FOREIGN_LOCAL: u8 = 2;
/// The address and port are those of a backend on this node.
pub const FOREIGN_LOCAL_BACKEND: u8 = 3;
/// In the value of a [`FOREIGN_VIP`]: only sources that are admitted to the slot may use it.
pub const FOREIGN_RANGED: u32 = 1 << 31;

/// What few slots have besides their two words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// How long a client keeps its backend, in seconds.
    pub sticky_s: u32,
    /// Slots with the same number share what they remember of clients.
    pub group: u32,
    /// The slot for pods and the node itself.
    pub inside: u32,
    /// Zero.
    pub pad: u32,
}

/// A source range of a slot, as an LPM trie wants it; a range's prefix is 32 bits longer than written, for the slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The slot, in network order.
    pub slot: [u8; 4],
    /// The first address; IPv4 is mapped.
    pub address: [u8; 16],
}

/// A client of slots that keep clients at their backends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StickyKey {
    /// Its address; IPv4 is mapped.
    pub client: [u8; 16],
    /// See [`Extra::group`].
    pub group: u32,
}

/// The last two backends of a client: one for each policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sticky {
    /// When they were last chosen, CLOCK_BOOTTIME; 0: never.
    pub seen_ns: [u64; 2],
    /// Their ids.
    pub ids: [u32; 2],
    /// Their generations.
    pub generations: [u32; 2],
}

/// A packet that travels in fragments.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// From.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
    /// Its identification.
    pub id: u32,
    /// IP protocol number.
    pub protocol: u32,
}

/// The ports that only its first fragment names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// From which port.
    pub source: u16,
    /// To which port.
    pub target: u16,
}

/// Dropped packets of one slot for one reason.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DropKey {
    /// The slot; [`NO_SLOT`]: none.
    pub slot: u32,
    /// One of [`crate::verdict::Verdict`].
    pub verdict: u32,
}

/// No slot.
pub const NO_SLOT: u32 = u32::MAX;

/// The bit of an address in the filter before the foreign VIPs: its word, and the bit in that.
#[inline(always)]
pub const fn filter_bit(address: &[u8; 16]) -> (u32, u64) {
    let hash = filter_hash(address);
    ((hash >> 32) as u32 & (FILTER_WORDS - 1), 1 << (hash >> 58))
}

/// The bit of an address in a filter of those that flows come from: its word, and the bit in that.
#[inline(always)]
pub const fn flowing_bit(address: &[u8; 16]) -> (u32, u64) {
    let hash = filter_hash(address);
    ((hash >> 32) as u32 & (FLOWING_WORDS - 1), 1 << (hash >> 58))
}

/// Two multiplications: every packet asks filters, and they need no better. The upper bits are the good ones.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
const fn filter_hash(address: &[u8; 16]) -> u64 {
    let whole = u128::from_be_bytes(*address);
    let upper = ((whole >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (whole as u64 ^ upper).wrapping_mul(0xbf58_476d_1ce4_e5b9)
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

/// A pod of this node, by each of its addresses; IPv4 is mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The host's end of its link.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// 1: what it sends is seen on its link, by `tcx_pod_in`.
    pub seen: u8,
    /// 1: what is for it may be led past the host's end of its link.
    pub direct: u8,
}

/// What an unconnected socket really sends to: the key under which its VIP is remembered.
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

/// What it believes it sends to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The VIP.
    pub address: [u8; 16],
    /// The VIP's port.
    pub port: u32,
}

/// A socket that connect(2) led from a VIP to what stands behind it. Lies behind the socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// The VIP that its process named; IPv4 is mapped.
    pub vip: [u8; 16],
    /// Where it was led.
    pub address: [u8; 16],
    /// The VIP's port.
    pub vip_port: u16,
    /// The port there; 0: it is led nowhere.
    pub port: u16,
    /// The slot that decided.
    pub slot: u32,
    /// The backend's id; [`crate::decide::NO_BACKEND`]: an activator.
    pub backend: u32,
    /// Its generation.
    pub generation: u32,
    /// [`SOCKET_COUNTED`], [`SOCKET_SERVICE`].
    pub kind: u32,
}

/// Its connection is counted as open.
pub const SOCKET_COUNTED: u32 = 1;
/// It talks to a Service: the connection ends with its backend.
pub const SOCKET_SERVICE: u32 = 2;

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
const _: () = assert!(size_of::<ForeignKey>() == 20 && size_of::<Admitted>() == 20);
const _: () = assert!(size_of::<StickyKey>() == 20 && size_of::<Sticky>() == 32);
const _: () = assert!(
    size_of::<FragmentKey>() == 40 && size_of::<DropKey>() == 8 && size_of::<Socket>() == 52
);

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
pub(crate) fn split(address: &[u8; 16]) -> ([u32; 3], u32) {
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
        super::Socket,
        super::ForeignKey,
        super::Extra,
        super::Admitted,
        super::StickyKey,
        super::Sticky,
        super::FragmentKey,
        super::Ports,
        super::DropKey,
        super::Pod,
        crate::config::Config,
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
