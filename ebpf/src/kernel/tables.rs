//! The maps, pinned by name, and the accesses that all programs share.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::{Key, LpmTrie};
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf};
use dormouse_ebpf::config::Config;
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::decide::{Choice, Tables, record_affinity};
use dormouse_ebpf::deny::DENIED_MAX;
use dormouse_ebpf::flow::NAT_CURSORS;
use dormouse_ebpf::load::Load;
use dormouse_ebpf::maps::{
    AFFINITY_MAX, Affinity, AffinityKey, BACKENDS_MAX, Backend, EVENTS_BYTES, FOLLOWED_MAX,
    FRAGMENTS_MAX, FRONTEND_FILTER_WORDS, FRONTENDS_MAX, FragmentKey, FrontendKey, PODS_MAX,
    PREFIXES_MAX, Pod, Ports, Prefix, REVERSE_PEERS_MAX, ReversePeer, ReversePeerKey,
    SLOT_OPTIONS_MAX, SOURCE_RANGES_MAX, SlotOptions, SourceRange,
};
use dormouse_ebpf::neighbors::{KNOWN_MAX, Known};
use dormouse_ebpf::service::{
    ROW_LEN, Route, SETS_MAX, SLOTS_MAX, Service, Set, Target, VIPS_MAX, wakes,
};
use dormouse_ebpf::wake_limit::{WAKE_SOURCES_MAX, WakeLimit, WakeSource};

use super::clock;
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
    let affinity = record_affinity(&Kernel, Kernel.affinity(&key), choice, clock::now_ns());
    let _ = AFFINITY.insert(&key, &affinity, 0);
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
        clock::now_ns()
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
