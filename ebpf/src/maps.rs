//! The layouts of maps: backends, node prefixes, frontends, slot options, source ranges, session affinity, fragments, pods,
//! sockets, drop counters and events. Slots are in [`crate::service`], flows in [`crate::flow`].

/// Rows of the map `backend`: backends that one node can hold.
pub const BACKENDS_MAX: u32 = 1 << 20;
/// Rows of the map `prefix`: nodes whose pods can be backends.
pub const PREFIXES_MAX: u32 = 1 << 20;
/// Entries of the map `pod`: addresses of the node's pods.
pub const PODS_MAX: u32 = 1 << 14;
/// Entries of the map `counts`: VIPs that one node has served.
pub const FOLLOWED_MAX: u32 = 1 << 16;
/// Entries of the map `reverse_peer`, one for each unconnected socket and backend that it sends to; the least recently used
/// is evicted when it is full.
pub const REVERSE_PEERS_MAX: u32 = 1 << 17;
/// Bytes of the ring buffer `events`.
pub const EVENTS_BYTES: u32 = 256 * 1024;
/// Entries of the map `frontend`: frontends that have no slot by their index (further ports of a cluster IP, node ports,
/// external and load balancer addresses), and what else is known of single addresses.
pub const FRONTENDS_MAX: u32 = 1 << 18;
/// Entries of the map `slot_option`.
pub const SLOT_OPTIONS_MAX: u32 = 1 << 16;
/// Entries of the map `source_range`, of all load balancers together.
pub const SOURCE_RANGES_MAX: u32 = 1 << 16;
/// Entries of the map `affinity`, one for each client and affinity group; the least recently used is evicted when it is
/// full.
pub const AFFINITY_MAX: u32 = 1 << 16;
/// Entries of the map `fragment`: fragmented packets in flight; the least recently used is evicted when it is full.
pub const FRAGMENTS_MAX: u32 = 1 << 13;
/// Entries of the map `drops`; the least recently used is evicted when it is full.
pub const DROPS_MAX: u32 = 1 << 14;
/// Words of the Bloom filter `frontend_filter`, which spares most packets the lookup in `frontend`: one bit for each hash of
/// an address.
pub const FRONTEND_FILTER_WORDS: u32 = 1 << 10;

/// Words of one Bloom filter of `flow_filter`, which spares most packets the lookup in `flow`: one bit for each hash of a
/// flow's source address.
///
/// The map holds two filters, and after them a word with the number of the one that is read. Programs set bits in both. The
/// agent rebuilds the one that is not read from the flows that exist, then switches to it.
pub const FLOW_FILTER_WORDS: u32 = 1 << 12;

/// One backend, a row of the map `backend`. The agent writes it while no backend set contains its id, and never changes it
/// while one does.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// The row of its node's prefix in the map `prefix`.
    pub prefix: u32,
    /// The low 32 bits of its address.
    pub host: [u8; 4],
    /// Its port.
    pub port: u16,
    /// Counts the backends that have had this id, modulo 2^16. A flow, socket or affinity entry with another generation names
    /// a backend that is gone.
    pub generation: u16,
    /// [`FOR_CLUSTER`] and [`FOR_LOCAL`]; above them its rank among its slot's backends in the order of their texts.
    pub flags: u16,
    /// Its weight relative to the other backends of its set; 0: no flow is assigned to it.
    pub weight: u16,
}

/// The backend serves traffic with policy Cluster.
pub const FOR_CLUSTER: u16 = 1;
/// The backend serves traffic with policy Local.
pub const FOR_LOCAL: u16 = 2;
/// The lowest bit of a backend's rank in its flags; ranks that do not fit share the last one.
pub const RANK_SHIFT: u32 = 2;

/// The key of the map `frontend`: an address, with or without a port; `kind` says which fact is looked up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrontendKey {
    /// The address; IPv4 is mapped.
    pub address: [u8; 16],
    /// The port; 0 where only the address counts.
    pub port: u16,
    /// IP protocol number; 0 where only the address counts.
    pub protocol: u8,
    /// One of the constants `FRONTEND_*`.
    pub kind: u8,
}

/// By address, port and protocol: the slot of a frontend; [`FRONTEND_SOURCE_RANGES`] may be set in it.
pub const FRONTEND_VIP: u8 = 0;
/// By address: it is the cluster IP of a Service that is served.
pub const FRONTEND_CLUSTER_IP: u8 = 1;
/// By address: it is on an interface of this node.
pub const FRONTEND_LOCAL_ADDRESS: u8 = 2;
/// By address, port and protocol: it is a backend on this node.
pub const FRONTEND_LOCAL_BACKEND: u8 = 3;
/// By address: it is an external IP or a load balancer's address of a Service.
pub const FRONTEND_EXTERNAL_IP: u8 = 4;
/// In the value of a [`FRONTEND_VIP`]: the frontend has `loadBalancerSourceRanges`, entries of the map `source_range`.
pub const FRONTEND_SOURCE_RANGES: u32 = 1 << 31;

/// Options that few slots need, an entry of the map `slot_option`. Written by the agent before the slot's word says that it
/// has options.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotOptions {
    /// The timeout of session affinity, in seconds; 0: no affinity.
    pub affinity_s: u32,
    /// The affinity group: slots with the same number share their clients' affinity.
    pub group: u32,
    /// The slot for pods and the node itself, if the slot is [split](crate::service::Route::split); else 0.
    pub internal_slot: u32,
    /// Zero.
    pub pad: u32,
}

/// One of a slot's `loadBalancerSourceRanges`, a key of the LPM trie `source_range`; the key's prefix is 32 bits longer than
/// the range's, for the slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceRange {
    /// The slot, in network order.
    pub slot: [u8; 4],
    /// The first address; IPv4 is mapped.
    pub address: [u8; 16],
}

/// The key of the map `affinity`: a client of an affinity group.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AffinityKey {
    /// The client's address; IPv4 is mapped.
    pub client: [u8; 16],
    /// See [`SlotOptions::group`].
    pub group: u32,
}

/// A client's session affinity: its last two backends, because Cluster and Local traffic may need different ones. Written
/// by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// When they were last selected, CLOCK_BOOTTIME; 0: never.
    pub seen_ns: [u64; 2],
    /// The backends' ids.
    pub ids: [u32; 2],
    /// The backends' generations when they were selected.
    pub generations: [u32; 2],
}

/// The key of the map `fragment`: a fragmented packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// The source address; IPv4 is mapped.
    pub source: [u8; 16],
    /// The destination address; IPv4 is mapped.
    pub target: [u8; 16],
    /// The identification field of its fragments.
    pub id: u32,
    /// IP protocol number; 0 for IPv6, which identifies packets without it.
    pub protocol: u32,
}

/// The ports of a fragmented packet, which only its first fragment has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The source port.
    pub source: u16,
    /// The destination port.
    pub target: u16,
}

/// The key of the map `drops`: dropped and rejected packets are counted by slot and verdict.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DropKey {
    /// The slot; [`NO_SLOT`]: none.
    pub slot: u32,
    /// One of [`crate::verdict::Verdict`].
    pub verdict: u32,
}

/// In place of a slot: none.
pub const NO_SLOT: u32 = u32::MAX;

/// The bit of an address in the frontend filter: the word's index, and the bit in that word.
#[inline(always)]
pub const fn frontend_filter_bit(address: &[u8; 16]) -> (u32, u64) {
    let hash = filter_hash(address);
    (
        (hash >> 32) as u32 & (FRONTEND_FILTER_WORDS - 1),
        1 << (hash >> 58),
    )
}

/// The bit of a source address in a flow filter: the word's index, and the bit in that word.
#[inline(always)]
pub const fn flow_filter_bit(address: &[u8; 16]) -> (u32, u64) {
    let hash = filter_hash(address);
    (
        (hash >> 32) as u32 & (FLOW_FILTER_WORDS - 1),
        1 << (hash >> 58),
    )
}

/// Two multiplications, because it runs for every packet; the upper bits are mixed best.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
const fn filter_hash(address: &[u8; 16]) -> u64 {
    let whole = u128::from_be_bytes(*address);
    let upper = ((whole >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (whole as u64 ^ upper).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A node prefix, a /96: a row of the map `prefix`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// The upper 96 bits.
    pub bytes: [u8; 12],
    /// Zero.
    pub pad: [u8; 4],
}

/// A pod of this node: an entry of the map `pod`, whose key is one of the pod's addresses; IPv4 is mapped. Written by the
/// agent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The host's end of its veth pair.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// 1: `tcx_pod_in` is attached to its link and sees what it sends.
    pub seen: u8,
    /// 1: packets to it may be redirected into its namespace, past the host's end of its link.
    pub direct: u8,
}

/// The key of the map `reverse_peer`: an unconnected socket, and the backend address that its datagrams were translated to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReversePeerKey {
    /// The socket's cookie.
    pub cookie: u64,
    /// The address of the backend or activator.
    pub address: [u8; 16],
    /// The port of the backend or activator.
    pub port: u32,
    /// Zero.
    pub pad: u32,
}

/// The VIP that recvmsg(2) puts back in place of a backend: the reverse NAT of unconnected sockets. Written by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReversePeer {
    /// The VIP.
    pub address: [u8; 16],
    /// The VIP's port.
    pub port: u32,
}

/// The DNAT of a connected socket, in its BPF socket storage. Written by connect(2), freed with the socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// The VIP that the process connected to; IPv4 is mapped.
    pub vip: [u8; 16],
    /// The address that the socket was connected to instead.
    pub address: [u8; 16],
    /// The VIP's port.
    pub vip_port: u16,
    /// The port that the socket was connected to instead; 0: it is not translated.
    pub port: u16,
    /// The slot that the backend was selected from.
    pub slot: u32,
    /// The backend's id; [`crate::decide::NO_BACKEND`]: an activator.
    pub backend: u32,
    /// The backend's generation.
    pub generation: u32,
    /// [`SOCKET_COUNTED`], [`SOCKET_SERVICE`].
    pub kind: u32,
}

/// In [`Socket::kind`]: the connection is counted as open in the map `counts`.
pub const SOCKET_COUNTED: u32 = 1;
/// In [`Socket::kind`]: the VIP is a Service's, whose connections end with their backend.
pub const SOCKET_SERVICE: u32 = 2;

/// A bit of the word in the map `lease`: apps' entries are used although the node lease has expired, because neither control
/// nor an activator answers. With it, the word is later than every clock.
pub const LEASE_STALE: u64 = 1 << 63;

/// An entry of the ring buffer `events`: written by the kernel, read by the agent.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The VIP's index.
    pub vip: u32,
    /// One of [`crate::service::EventKind`].
    pub kind: u8,
    /// The packet's IP protocol number; 0: not known, from programs before this field.
    pub protocol: u8,
    /// The packet's destination port; 0 with protocol 0.
    pub port: u16,
    /// CLOCK_BOOTTIME of the packet.
    pub at_ns: u64,
}

const _: () =
    assert!(size_of::<Backend>() == 16 && size_of::<Prefix>() == 16 && size_of::<Event>() == 16);
const _: () = assert!(size_of::<FrontendKey>() == 20 && size_of::<SourceRange>() == 20);
const _: () = assert!(size_of::<AffinityKey>() == 20 && size_of::<Affinity>() == 32);
const _: () = assert!(
    size_of::<FragmentKey>() == 40 && size_of::<DropKey>() == 8 && size_of::<Socket>() == 52
);

/// A node prefix and the low 32 bits of an address in it.
#[inline(always)]
pub fn join(prefix: &[u8; 16], host: [u8; 4]) -> [u8; 16] {
    let upper = u128::from_be_bytes(*prefix) >> 32 << 32;
    (upper | u128::from(u32::from_be_bytes(host))).to_be_bytes()
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
    //! The layouts that the agent reads and writes as bytes.

    // SAFETY (of all below): `repr(C)`, `Copy`, without references, valid for every bit pattern.
    macro_rules! plain {
        ($($layout:ty),*) => { $(
            // SAFETY: `repr(C)`, `Copy`, no references, no padding that matters, valid for every bit pattern.
            unsafe impl aya::Pod for $layout {}
        )* };
    }
    plain!(
        super::Socket,
        super::FrontendKey,
        super::SlotOptions,
        super::SourceRange,
        super::AffinityKey,
        super::Affinity,
        super::FragmentKey,
        super::Ports,
        super::DropKey,
        super::Pod,
        super::ReversePeerKey,
        super::ReversePeer,
        super::Event
    );
    plain!(
        crate::flow::FlowKey,
        crate::flow::Flow,
        crate::counts::Counts
    );
}
