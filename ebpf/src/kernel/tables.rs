//! The maps, pinned by name, and the accesses that all programs share.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::{Key, LpmTrie};
use aya_ebpf::maps::{
    Array, HashMap, LruHashMap, LruPerCpuHashMap, PerCpuArray, PerCpuHashMap, RingBuf,
};
use dormouse_ebpf::config::Config;
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::decide::{Choice, Request, Tables, record_affinity};
use dormouse_ebpf::deny::DENIED_MAX;
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey, NAT_CURSORS, OPENING as IS_OPENING};
use dormouse_ebpf::load::Load;
use dormouse_ebpf::maps::{
    AFFINITY_MAX, Affinity, AffinityKey, BACKENDS_MAX, Backend, DROPS_MAX, DropKey, EVENTS_BYTES,
    FLOW_FILTER_WORDS, FOLLOWED_MAX, FRAGMENTS_MAX, FRONTEND_FILTER_WORDS, FRONTENDS_MAX,
    FragmentKey, FrontendKey, PODS_MAX, PREFIXES_MAX, Pod, Ports, Prefix, REVERSE_PEERS_MAX,
    ReversePeer, ReversePeerKey, SLOT_OPTIONS_MAX, SOURCE_RANGES_MAX, SlotOptions, SourceRange,
    flow_filter_bit,
};
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Solicitation};
use dormouse_ebpf::neighbors::{KNOWN_MAX, Known};
use dormouse_ebpf::opening::opening_max;
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::reject::{QUOTE_MAX, Rejections};
use dormouse_ebpf::service::{
    ROW_LEN, Route, SETS_MAX, SLOTS_MAX, Service, Set, Target, VIPS_MAX, wakes,
};
use dormouse_ebpf::verdict::{VERDICTS_LEN, Verdict};
use dormouse_ebpf::wake_limit::{WAKE_SOURCES_MAX, WakeLimit, WakeSource};

use super::words::Words;

#[map(name = "svc")]
static SLOTS: Array<Service> = Array::pinned(SLOTS_MAX, BPF_F_MMAPABLE);
#[map(name = "touch")]
pub(crate) static TOUCH: Array<u64> = Array::pinned(VIPS_MAX, BPF_F_MMAPABLE);
#[map(name = "lease")]
static LEASE: Array<u64> = Array::pinned(1, BPF_F_MMAPABLE);
#[map(name = "current")]
static CURRENT: Array<u64> = Array::pinned(1, BPF_F_MMAPABLE);
#[map(name = "backend_set")]
static SETS: Array<[u32; ROW_LEN as usize]> = Array::pinned(SETS_MAX / ROW_LEN, BPF_F_MMAPABLE);
#[map(name = "backend")]
static BACKENDS: Array<Backend> = Array::pinned(BACKENDS_MAX, BPF_F_MMAPABLE);
/// Load of backends, by id.
#[map(name = "load")]
pub(crate) static LOADS: Array<Load> = Array::pinned(BACKENDS_MAX, BPF_F_MMAPABLE);
#[map(name = "prefix")]
static PREFIXES: Array<Prefix> = Array::pinned(PREFIXES_MAX, BPF_F_MMAPABLE);
#[map(name = "frontend_filter")]
static FRONTEND_FILTER: Array<u64> = Array::pinned(FRONTEND_FILTER_WORDS, BPF_F_MMAPABLE);
#[map(name = "frontend")]
static FRONTENDS: HashMap<FrontendKey, u32> = HashMap::pinned(FRONTENDS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "slot_option")]
static SLOT_OPTIONS: HashMap<u32, SlotOptions> =
    HashMap::pinned(SLOT_OPTIONS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "source_range")]
static SOURCE_RANGES: LpmTrie<SourceRange, u32> =
    LpmTrie::pinned(SOURCE_RANGES_MAX, BPF_F_NO_PREALLOC);
#[map(name = "affinity")]
static AFFINITY: LruHashMap<AffinityKey, Affinity> = LruHashMap::pinned(AFFINITY_MAX, 0);
#[map(name = "fragment")]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, Ports> = LruHashMap::pinned(FRAGMENTS_MAX, 0);
#[map(name = "config")]
static CONFIG: Array<Config> = Array::pinned(2, 0);
#[map(name = "pod")]
pub(crate) static PODS: HashMap<[u8; 16], Pod> = HashMap::pinned(PODS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "flow_filter")]
static FLOW_FILTER: Array<u64> = Array::pinned(2 * FLOW_FILTER_WORDS + 1, BPF_F_MMAPABLE);
#[map(name = "flow")]
static FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(FLOWS_MAX, 0);
/// Flows of connections that are not established yet.
#[map(name = "opening")]
static OPENING: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(opening_max(FLOWS_MAX), 0);
/// VIPs of the backends that unconnected sockets send to.
#[map(name = "reverse_peer")]
pub(crate) static REVERSE_PEERS: LruHashMap<ReversePeerKey, ReversePeer> =
    LruHashMap::pinned(REVERSE_PEERS_MAX, 0);
/// Entries are made by the agent for each VIP that it serves; programs only add to them.
#[map(name = "counts")]
pub(crate) static COUNTS: PerCpuHashMap<u32, Counts> =
    PerCpuHashMap::pinned(FOLLOWED_MAX, BPF_F_NO_PREALLOC);
/// Connections whose end no program has seen, counted by the agent when it removes their flows. No program reads it; it is
/// here so that it is created and pinned with the others.
#[map(name = "expired_counts")]
pub(crate) static EXPIRED_COUNTS: HashMap<u32, Counts> =
    HashMap::pinned(FOLLOWED_MAX, BPF_F_NO_PREALLOC);
#[map(name = "events")]
pub(crate) static EVENTS: RingBuf = RingBuf::pinned(EVENTS_BYTES, 0);
#[map(name = "stats")]
static STATS: PerCpuArray<u64> = PerCpuArray::pinned(VERDICTS_LEN, 0);
/// Rejected and dropped packets by slot and verdict.
#[map(name = "drops")]
static DROPS: LruPerCpuHashMap<DropKey, u64> = LruPerCpuHashMap::pinned(DROPS_MAX, 0);

#[map(name = "wake_limit")]
static WAKE_LIMIT: Array<WakeLimit> = Array::pinned(1, 0);
/// Token buckets of wakes by source, as the times at which they are full. Pinned: an agent's restart fills none.
#[map(name = "wake_budget")]
pub(crate) static WAKE_BUDGETS: LruHashMap<WakeSource, u64> =
    LruHashMap::pinned(WAKE_SOURCES_MAX, 0);

/// The deny list, in two maps: an entry's value is its end, CLOCK_BOOTTIME.
#[map(name = "deny_a")]
pub(crate) static DENY_A: LpmTrie<[u8; 16], u64> = LpmTrie::pinned(DENIED_MAX, BPF_F_NO_PREALLOC);
#[map(name = "deny_b")]
pub(crate) static DENY_B: LpmTrie<[u8; 16], u64> = LpmTrie::pinned(DENIED_MAX, BPF_F_NO_PREALLOC);

/// Cursors through the NAT ports. Not pinned: the flows themselves keep the ports in use.
#[map(name = "nat_cursor")]
pub(crate) static NAT_CURSOR: Array<u64> = Array::with_max_entries(NAT_CURSORS, 0);

/// Destinations outside that need no new neighbour.
#[map(name = "known_neighbor")]
pub(crate) static KNOWN: PerCpuArray<Known> = PerCpuArray::with_max_entries(KNOWN_MAX, 0);
/// Token buckets for new neighbours, as the times at which they are full, by the index of a pod's link; 0: of all pods.
#[map(name = "neighbor_budget")]
pub(crate) static NEIGHBOR_BUDGETS: LruHashMap<u32, u64> =
    LruHashMap::with_max_entries(PODS_MAX, 0);

/// Memory for what does not fit on the stack of 512 bytes; on a CPU one program at a time uses it, without preemption.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) packet: Packet,
    pub(crate) quoted: Packet,
    pub(crate) key: FlowKey,
    pub(crate) back: FlowKey,
    pub(crate) flow: Flow,
    pub(crate) reply: Flow,
    pub(crate) request: Request,
    pub(crate) choice: Choice,
    pub(crate) quote: [u8; QUOTE_MAX],
    pub(crate) rejections: Rejections,
    pub(crate) solicited: Solicitation,
    pub(crate) advertised: [u8; ADVERTISEMENT_LEN],
    /// 1: no rate limit applies at the host's end of the sender's link, so the packet may bypass the host's forwarding.
    pub(crate) direct: u64,
    /// 1 while a program uses it that another one may interrupt.
    pub(crate) busy: u64,
}

#[map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(SCRATCH_USERS, 0);

/// Programs that may run on one CPU at the same time, one interrupting the other.
const SCRATCH_USERS: u32 = 3;
/// The user at ingress of the uplink or a pod's link, in a soft interrupt.
pub(crate) const ARRIVING: u32 = 0;
/// The user at egress, which may run for a packet that an ingress program has redirected.
pub(crate) const LEAVING: u32 = 1;
/// The user at a socket's egress.
pub(crate) const SENDING: u32 = 2;

/// The scratch memory of one user.
#[inline(always)]
pub(crate) fn scratch(user: u32) -> Option<&'static mut Scratch> {
    // SAFETY: this CPU's own value, and its users run once at a time on a CPU.
    SCRATCH
        .get_ptr_mut(user)
        .map(|scratch| unsafe { &mut *scratch })
}

/// Counts a verdict.
#[inline(always)]
pub(crate) fn note(verdict: Verdict) {
    if let Some(count) = STATS.get_ptr_mut(verdict as u32) {
        add(count, 1);
    }
}

/// Counts a verdict for a rejected or dropped packet, also by slot.
#[inline(always)]
pub(crate) fn note_drop(verdict: Verdict, slot: u32) {
    note(verdict);
    let key = DropKey {
        slot,
        verdict: verdict as u32,
    };
    if let Some(count) = DROPS.get_ptr_mut(&key) {
        add(count, 1);
    } else {
        let _ = DROPS.insert(&key, &1, 0);
    }
}

/// Adds to a word that the program which this one interrupts may be adding to.
#[inline(always)]
pub(crate) fn add(word: *mut u64, by: u64) {
    // SAFETY: callers pass an aligned word of a map value, which lives as long as the program runs.
    unsafe { super::atomic::add(word, by) }
}

/// Records the client's backend for session affinity.
#[inline(always)]
pub(crate) fn store_affinity(client: &[u8; 16], choice: &Choice) {
    let key = AffinityKey {
        client: *client,
        group: choice.group,
    };
    let affinity = record_affinity(&Kernel, Kernel.affinity(&key), choice, now_ns());
    let _ = AFFINITY.insert(&key, &affinity, 0);
}

/// Looks up the flow of a packet. Most packets have none, and the Bloom filter over flows' sources spares most of those the
/// lookup.
#[inline(always)]
pub(crate) fn flow(key: &FlowKey) -> Option<*mut Flow> {
    let (word, bit) = flow_filter_bit(&key.source);
    let active = FLOW_FILTER.get_ptr(2 * FLOW_FILTER_WORDS).map_or(0, read) as u32 & 1;
    let word = FLOW_FILTER.get_ptr(active * FLOW_FILTER_WORDS + word)?;
    if read(word) & bit == 0 {
        return None;
    }
    if let Some(flow) = FLOWS.get_ptr_mut(key) {
        return Some(flow);
    }
    let flow = opening_flow(key);
    (!flow.is_null()).then_some(flow)
}

/// Looks up a flow that is opening, or has just become established: it is inserted into one table before it is removed from the
/// other. Null if there is none.
#[inline(never)]
fn opening_flow(key: &FlowKey) -> *mut Flow {
    if let Some(flow) = OPENING.get_ptr_mut(key) {
        return flow;
    }
    FLOWS.get_ptr_mut(key).unwrap_or(core::ptr::null_mut())
}

/// Looks up a flow among the established ones only.
#[inline(always)]
pub(crate) fn established_flow(key: &FlowKey) -> Option<*mut Flow> {
    FLOWS.get_ptr_mut(key)
}

/// Inserts a flow, after its source into the filters, into the table that its kind names. False if the table is full, or, with
/// BPF_NOEXIST, if the key exists.
#[inline(never)]
pub(crate) fn insert_flow(key: &FlowKey, flow: &Flow, flags: u32) -> bool {
    let (word, bit) = flow_filter_bit(&key.source);
    let mut filter = 0;
    while filter < 2 {
        if let Some(word) = FLOW_FILTER.get_ptr_mut(filter * FLOW_FILTER_WORDS + word)
            && read(word) & bit == 0
        {
            // SAFETY: an aligned word of a map value, which lives as long as the program runs.
            unsafe { super::atomic::set(word, bit) };
        }
        filter += 1;
    }
    if !flow.is(IS_OPENING) {
        return FLOWS.insert(key, flow, u64::from(flags)).is_ok();
    }
    // One of an earlier connection would be found first.
    let is_replaced = FLOWS.get_ptr(key).is_some();
    if is_replaced && flags == BPF_NOEXIST {
        return false;
    }
    let inserted = OPENING.insert(key, flow, u64::from(flags)).is_ok();
    if inserted && is_replaced {
        remove_established(key);
    }
    inserted
}

/// Removes a flow, if it exists.
#[inline(never)]
pub(crate) fn remove_flow(key: &FlowKey) {
    remove_opening(key);
    remove_established(key);
}

/// Removes a flow from the established ones.
#[inline(always)]
pub(crate) fn remove_established(key: &FlowKey) {
    let _ = FLOWS.remove(key);
}

/// Removes a flow from the opening ones.
#[inline(always)]
pub(crate) fn remove_opening(key: &FlowKey) {
    let _ = OPENING.remove(key);
}

/// Reads a word that the agent writes with one store.
#[inline(always)]
pub(crate) fn read(word: *const u64) -> u64 {
    // SAFETY: callers pass an aligned word of a map value; the volatile read is one load.
    unsafe { core::ptr::read_volatile(word) }
}

/// The node's facts in force.
#[inline(always)]
pub(crate) fn config() -> Option<&'static Config> {
    let slot = CURRENT.get_ptr(0).map_or(0, read);
    CONFIG.get(slot as u32 & 1)
}

/// The limit of wakes; none: there is no limit.
#[inline(always)]
pub(crate) fn wake_limit() -> Option<&'static WakeLimit> {
    WAKE_LIMIT.get(0).filter(|limit| limit.interval_ns != 0)
}

/// CLOCK_BOOTTIME.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_ktime_get_boot_ns() }
}

#[inline(always)]
pub(crate) fn random() -> u32 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_prandom_u32() }
}

/// The maps, as [`Tables`] for decisions.
pub(crate) struct Kernel;

impl Tables for Kernel {
    #[inline(always)]
    fn config(&self) -> Option<&Config> {
        config()
    }

    #[inline(always)]
    fn route(&self, slot: u32) -> Option<u64> {
        SLOTS.get_ptr(slot).map(|slot| read(slot.cast()))
    }

    #[inline(always)]
    fn set(&self, slot: u32) -> Option<u64> {
        // SAFETY: a slot has two words; this is the second.
        SLOTS
            .get_ptr(slot)
            .map(|slot| read(unsafe { slot.cast::<u64>().add(1) }))
    }

    #[inline(always)]
    fn id(&self, place: u32) -> Option<u32> {
        let row = SETS.get_ptr(place / ROW_LEN)?.cast::<u32>();
        // SAFETY: the row has ROW_LEN ids, and the remainder is below that.
        Some(unsafe { core::ptr::read_volatile(row.add((place & (ROW_LEN - 1)) as usize)) })
    }

    #[inline(always)]
    fn backend(&self, id: u32) -> Option<Backend> {
        BACKENDS.get(id).copied()
    }

    #[inline(always)]
    fn prefix(&self, id: u32) -> Option<[u8; 16]> {
        let prefix = PREFIXES.get_ptr(id)?;
        // SAFETY: a map value of two aligned words. Volatile reads are loads of whole words.
        let [upper, middle] = unsafe { prefix.cast::<[u64; 2]>().read_volatile() };
        Some((u128::from(upper) | u128::from(middle) << 64).to_le_bytes())
    }

    #[inline(always)]
    fn frontend_filter(&self, word: u32) -> u64 {
        FRONTEND_FILTER.get_ptr(word).map_or(0, read)
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        // SAFETY: the value is copied out, a single word.
        unsafe { FRONTENDS.get(key) }.copied()
    }

    #[inline(always)]
    fn has_pod(&self, address: &[u8; 16]) -> bool {
        PODS.get_ptr(address).is_some()
    }

    #[inline(always)]
    fn slot_options(&self, slot: u32) -> Option<SlotOptions> {
        // SAFETY: the value is copied out; the agent replaces it as a whole before the slot's word names it.
        unsafe { SLOT_OPTIONS.get(&slot) }.copied()
    }

    #[inline(always)]
    fn in_source_range(&self, slot: u32, source: &[u8; 16]) -> bool {
        let admitted = SourceRange {
            slot: slot.to_be_bytes(),
            address: *source,
        };
        let key = Words(Key::new(160, admitted));
        SOURCE_RANGES.get(&key.0).is_some()
    }

    #[inline(always)]
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        // SAFETY: the value is copied out; a half of another choice fails its generation.
        unsafe { AFFINITY.get(key) }.copied()
    }

    #[inline(always)]
    fn lease_until_ns(&self) -> u64 {
        LEASE.get_ptr(0).map_or(0, read)
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    #[inline(always)]
    fn takes_token(&self, vip: u32, route: Route, target: Target) -> bool {
        let noted = TOUCH.get_ptr(vip).map(read);
        noted.is_some_and(|noted| wakes(route, noted, target).is_some()) && wake_limit().is_some()
    }

    #[inline(always)]
    fn rendezvous(&self, set: Set, hash: u64) -> Option<u32> {
        super::rendezvous::pick(set, hash)
    }
}
