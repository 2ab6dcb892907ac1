//! The maps, pinned by name, and the reads that every program makes.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::{Key, LpmTrie};
use aya_ebpf::maps::{
    Array, HashMap, LruHashMap, LruPerCpuHashMap, PerCpuArray, PerCpuHashMap, RingBuf,
};
use dormouse_ebpf::config::Config;
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::decide::{Asked, Choice, Tables, remember};
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey};
use dormouse_ebpf::load::Load;
use dormouse_ebpf::maps::{
    ADMITTED_MAX, Admitted, BACKENDS_MAX, Backend, DROPS_MAX, DropKey, EVENTS_BYTES, EXTRAS_MAX,
    Extra, FILTER_WORDS, FLOWING_WORDS, FOLLOWED_MAX, FOREIGN_MAX, FRAGMENTS_MAX, ForeignKey,
    FragmentKey, PEERS_MAX, PODS_MAX, PREFIXES_MAX, Peer, PeerKey, Pod, Ports, Prefix, STICKY_MAX,
    Sticky, StickyKey, flowing_bit,
};
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Solicitation};
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::refuse::{QUOTE_MAX, Refusals};
use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, SLOTS_MAX, Service, Set, VIPS_MAX};
use dormouse_ebpf::verdict::{VERDICTS_LEN, Verdict};

#[map(name = "svc")]
static SLOTS: Array<Service> = Array::pinned(SLOTS_MAX, BPF_F_MMAPABLE);
#[map(name = "touch")]
pub(crate) static TOUCH: Array<u64> = Array::pinned(VIPS_MAX, BPF_F_MMAPABLE);
#[map(name = "lease")]
static LEASE: Array<u64> = Array::pinned(1, BPF_F_MMAPABLE);
#[map(name = "current")]
static CURRENT: Array<u64> = Array::pinned(1, BPF_F_MMAPABLE);
#[map(name = "vec")]
static SETS: Array<[u32; ROW_LEN as usize]> = Array::pinned(SETS_MAX / ROW_LEN, BPF_F_MMAPABLE);
#[map(name = "backend")]
static BACKENDS: Array<Backend> = Array::pinned(BACKENDS_MAX, BPF_F_MMAPABLE);
/// What backends are given: by their ids, made zero by the agent with each generation.
#[map(name = "load")]
pub(crate) static LOADS: Array<Load> = Array::pinned(BACKENDS_MAX, BPF_F_MMAPABLE);
#[map(name = "prefix")]
static PREFIXES: Array<Prefix> = Array::pinned(PREFIXES_MAX, BPF_F_MMAPABLE);
#[map(name = "filter")]
static FILTER: Array<u64> = Array::pinned(FILTER_WORDS, BPF_F_MMAPABLE);
#[map(name = "foreign")]
static FOREIGN: HashMap<ForeignKey, u32> = HashMap::pinned(FOREIGN_MAX, BPF_F_NO_PREALLOC);
#[map(name = "extra")]
static EXTRAS: HashMap<u32, Extra> = HashMap::pinned(EXTRAS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "admitted")]
static ADMITTED: LpmTrie<Admitted, u32> = LpmTrie::pinned(ADMITTED_MAX, BPF_F_NO_PREALLOC);
#[map(name = "sticky")]
static STICKY: LruHashMap<StickyKey, Sticky> = LruHashMap::pinned(STICKY_MAX, 0);
#[map(name = "fragment")]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, Ports> = LruHashMap::pinned(FRAGMENTS_MAX, 0);
#[map(name = "config")]
static CONFIG: Array<Config> = Array::pinned(2, 0);
#[map(name = "pod")]
pub(crate) static PODS: HashMap<[u8; 16], Pod> = HashMap::pinned(PODS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "flowing")]
static FLOWING: Array<u64> = Array::pinned(2 * FLOWING_WORDS + 1, BPF_F_MMAPABLE);
#[map(name = "flow")]
static FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(FLOWS_MAX, 0);
/// What stands before the addresses that unconnected sockets send to.
#[map(name = "peer")]
pub(crate) static PEERS: LruHashMap<PeerKey, Peer> = LruHashMap::pinned(PEERS_MAX, 0);
/// Made by the agent for each VIP that it serves; here only added to.
#[map(name = "counts")]
pub(crate) static COUNTS: PerCpuHashMap<u32, Counts> =
    PerCpuHashMap::pinned(FOLLOWED_MAX, BPF_F_NO_PREALLOC);
/// Connections whose end nobody saw: counted by the agent, in a map of its own.
#[map(name = "expired")]
pub(crate) static EXPIRED: HashMap<u32, Counts> = HashMap::pinned(FOLLOWED_MAX, BPF_F_NO_PREALLOC);
#[map(name = "events")]
pub(crate) static EVENTS: RingBuf = RingBuf::pinned(EVENTS_BYTES, 0);
#[map(name = "stats")]
static STATS: PerCpuArray<u64> = PerCpuArray::pinned(VERDICTS_LEN, 0);
/// Refused and dropped packets by slot.
#[map(name = "drops")]
static DROPS: LruPerCpuHashMap<DropKey, u64> = LruPerCpuHashMap::pinned(DROPS_MAX, 0);

/// Room for what does not fit on the stack of 512 bytes; one program at a time uses it on a CPU, below any preemption.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) packet: Packet,
    pub(crate) quoted: Packet,
    pub(crate) key: FlowKey,
    pub(crate) back: FlowKey,
    pub(crate) flow: Flow,
    pub(crate) reply: Flow,
    pub(crate) asked: Asked,
    pub(crate) choice: Choice,
    pub(crate) quote: [u8; QUOTE_MAX],
    pub(crate) refusals: Refusals,
    pub(crate) solicited: Solicitation,
    pub(crate) advertised: [u8; ADVERTISEMENT_LEN],
    /// 1: nothing that the packet's sender is bound by stands at the host's end of its link.
    pub(crate) direct: u64,
    /// 1 while a program uses it that another may interrupt.
    pub(crate) busy: u64,
}

#[map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(SCRATCHES, 0);

/// Programs that may run on one CPU, one interrupting the other.
const SCRATCHES: u32 = 3;
/// What arrives: from the uplink or from a pod, in a soft interrupt.
pub(crate) const ARRIVING: u32 = 0;
/// What leaves by the uplink, which may be sent by a program of what arrives.
pub(crate) const LEAVING: u32 = 1;
/// What sockets send.
pub(crate) const SENDING: u32 = 2;

/// The room of one program.
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

/// Counts a packet that was refused or dropped, and whose.
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

/// Adds to a word that this CPU may be adding to already, below this program.
#[inline(always)]
pub(crate) fn add(word: *mut u64, by: u64) {
    // SAFETY: callers pass an aligned word of a map value, which lives as long as the program runs.
    unsafe { super::atomic::add(word, by) }
}

/// Remembers the client's backend.
#[inline(always)]
pub(crate) fn keep(client: &[u8; 16], choice: &Choice) {
    let key = StickyKey {
        client: *client,
        group: choice.group,
    };
    let sticky = remember(Kernel.sticky(&key), choice, now_ns());
    let _ = STICKY.insert(&key, &sticky, 0);
}

/// The flow of such packets. Most packets have none, and most of those are told by an address that no flow comes from.
#[inline(always)]
pub(crate) fn flow(key: &FlowKey) -> Option<*mut Flow> {
    let (word, bit) = flowing_bit(&key.source);
    let asked = FLOWING.get_ptr(2 * FLOWING_WORDS).map_or(0, read) as u32 & 1;
    let word = FLOWING.get_ptr(asked * FLOWING_WORDS + word)?;
    if read(word) & bit == 0 {
        return None;
    }
    FLOWS.get_ptr_mut(key)
}

/// Writes down a flow, after marking where it comes from. False if there is one and `flags` wants none, or no room.
#[inline(always)]
pub(crate) fn begin_flow(key: &FlowKey, flow: &Flow, flags: u32) -> bool {
    let (word, bit) = flowing_bit(&key.source);
    let mut filter = 0;
    while filter < 2 {
        if let Some(word) = FLOWING.get_ptr_mut(filter * FLOWING_WORDS + word)
            && read(word) & bit == 0
        {
            // SAFETY: an aligned word of a map value, which lives as long as the program runs.
            unsafe { super::atomic::set(word, bit) };
        }
        filter += 1;
    }
    FLOWS.insert(key, flow, u64::from(flags)).is_ok()
}

/// Forgets a flow, if there is one.
#[inline(always)]
pub(crate) fn end_flow(key: &FlowKey) {
    let _ = FLOWS.remove(key);
}

/// Reads a word that the agent stores whole.
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

/// What the optimiser writes by whole words, which the verifier wants aligned on the stack.
#[repr(C, align(8))]
struct Words<T>(T);

/// The maps, as decisions read them.
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
        let prefix = PREFIXES.get(id)?;
        let mut address = [0; 16];
        let mut at = 0;
        while at < 12 {
            address[at] = prefix.bytes[at];
            at += 1;
        }
        Some(address)
    }

    #[inline(always)]
    fn filter(&self, word: u32) -> u64 {
        FILTER.get_ptr(word).map_or(0, read)
    }

    #[inline(always)]
    fn foreign(&self, key: &ForeignKey) -> Option<u32> {
        // SAFETY: the value is copied out, a single word.
        unsafe { FOREIGN.get(key) }.copied()
    }

    #[inline(always)]
    fn extra(&self, slot: u32) -> Option<Extra> {
        // SAFETY: the value is copied out; the agent replaces it as a whole before the slot says so.
        unsafe { EXTRAS.get(&slot) }.copied()
    }

    #[inline(always)]
    fn admits(&self, slot: u32, source: &[u8; 16]) -> bool {
        let admitted = Admitted {
            slot: slot.to_be_bytes(),
            address: *source,
        };
        let key = Words(Key::new(160, admitted));
        ADMITTED.get(&key.0).is_some()
    }

    #[inline(always)]
    fn sticky(&self, key: &StickyKey) -> Option<Sticky> {
        // SAFETY: the value is copied out; a half of another choice fails its generation.
        unsafe { STICKY.get(key) }.copied()
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
    fn favourite(&self, set: Set, hash: u64) -> Option<u32> {
        super::favourite::favourite(set, hash)
    }
}
