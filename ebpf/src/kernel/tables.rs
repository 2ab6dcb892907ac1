//! The maps, pinned by name, and the reads that every program makes.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey};
use dormouse_ebpf::maps::{
    BACKENDS_MAX, Backend, Config, EVENTS_BYTES, FOLLOWED_MAX, PODS_MAX, PREFIXES_MAX, Peer,
    PeerKey, Pod, Prefix, SOCKETS_MAX,
};
use dormouse_ebpf::packet::Transport;
use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, Service, VIPS_MAX};
use dormouse_ebpf::verdict::{VERDICTS_LEN, Verdict};

#[map(name = "svc")]
pub(crate) static SERVICES: Array<Service> = Array::pinned(VIPS_MAX, BPF_F_MMAPABLE);
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
#[map(name = "prefix")]
static PREFIXES: Array<Prefix> = Array::pinned(PREFIXES_MAX, BPF_F_MMAPABLE);
#[map(name = "config")]
static CONFIG: Array<Config> = Array::pinned(2, 0);
#[map(name = "pod")]
pub(crate) static PODS: HashMap<[u8; 16], Pod> = HashMap::pinned(PODS_MAX, BPF_F_NO_PREALLOC);
#[map(name = "flow")]
pub(crate) static FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(FLOWS_MAX, 0);
#[map(name = "peer")]
pub(crate) static PEERS: LruHashMap<PeerKey, Peer> = LruHashMap::pinned(SOCKETS_MAX, 0);
/// Sockets whose connection is counted: cookie -> VIP index.
#[map(name = "socket")]
pub(crate) static SOCKETS: LruHashMap<u64, u32> = LruHashMap::pinned(SOCKETS_MAX, 0);
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

/// Room for what does not fit on the stack of 512 bytes; one program at a time uses it on a CPU, below any preemption.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) packet: Transport,
    pub(crate) key: FlowKey,
    pub(crate) back: FlowKey,
    pub(crate) flow: Flow,
    pub(crate) reply: Flow,
}

#[map(name = "scratch_in")]
static SCRATCH_IN: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// The room of the uplink's ingress.
#[inline(always)]
pub(crate) fn scratch_in() -> Option<&'static mut Scratch> {
    // SAFETY: this CPU's own value, and the only program that asks for it runs once at a time on a CPU.
    SCRATCH_IN
        .get_ptr_mut(0)
        .map(|scratch| unsafe { &mut *scratch })
}

/// Counts a verdict.
#[inline(always)]
pub(crate) fn note(verdict: Verdict) {
    if let Some(count) = STATS.get_ptr_mut(verdict as u32) {
        add(count, 1);
    }
}

/// Adds to a word that this CPU may be adding to already, below this program.
#[inline(always)]
pub(crate) fn add(word: *mut u64, by: u64) {
    // SAFETY: callers pass an aligned word of a map value, which lives as long as the program runs.
    unsafe { super::atomic::add(word, by) }
}

/// Reads a word that the agent stores whole.
#[inline(always)]
pub(crate) fn read(word: *const u64) -> u64 {
    // SAFETY: callers pass an aligned word of a map value; the volatile read is one load.
    unsafe { core::ptr::read_volatile(word) }
}

/// The end of the node lease, CLOCK_BOOTTIME.
#[inline(always)]
pub(crate) fn lease_until_ns() -> u64 {
    LEASE.get_ptr(0).map_or(0, read)
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

/// The id in a place of the arena.
#[inline(always)]
pub(crate) fn set_id(place: u32) -> Option<u32> {
    let row = SETS.get_ptr(place / ROW_LEN)?.cast::<u32>();
    // SAFETY: the row has ROW_LEN ids, and the remainder is below that.
    Some(unsafe { core::ptr::read_volatile(row.add((place & (ROW_LEN - 1)) as usize)) })
}

/// A backend's address and port.
#[inline(always)]
pub(crate) fn backend(id: u32) -> Option<([u8; 16], u16)> {
    let backend = BACKENDS.get(id)?;
    let prefix = PREFIXES.get(backend.prefix)?;
    let mut address = [0; 16];
    let mut at = 0;
    while at < 12 {
        address[at] = prefix.bytes[at];
        at += 1;
    }
    Some((
        dormouse_ebpf::maps::join(&address, backend.host),
        backend.port,
    ))
}
