//! What programs say of a packet, and the ways on which they send it themselves.

use aya_ebpf::bindings::{BPF_F_RECOMPUTE_CSUM, bpf_redir_neigh as NextHop};
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_redirect_neigh};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{L3, Packet, V4_CHECKSUM, v4_of};
use dormouse_ebpf::verdict::Verdict;

use super::rewrite::words;
use super::tables;

/// Not ours: the next program, then the kernel.
pub(crate) const NEXT: i32 = -1;
/// Done: the kernel routes it on.
pub(crate) const PASS: i32 = 0;
/// Dropped.
pub(crate) const DROP: i32 = 2;

/// Families of addresses (socket.h).
pub(crate) const AF_INET: u32 = 2;
pub(crate) const AF_INET6: u32 = 10;

/// Sends a packet out of the uplink: to `via`, or to whom the kernel's routes say.
#[inline(always)]
pub(crate) fn send_on(
    ctx: &TcContext,
    packet: &Packet,
    uplink: u32,
    via: Option<&[u8; 16]>,
) -> i32 {
    if packet.hop_limit <= 1 {
        tables::note(Verdict::DroppedHops);
        return DROP;
    }
    if hop(ctx, packet).is_none() {
        return refused();
    }
    let Some(via) = via else {
        // SAFETY: no parameters: the helper looks the way up.
        return (unsafe { bpf_redirect_neigh(uplink, core::ptr::null_mut(), 0, 0) }) as i32;
    };
    // SAFETY: all zero is a valid value of this plain struct.
    let mut next: NextHop = unsafe { core::mem::zeroed() };
    if packet.v4 == 1 {
        next.nh_family = AF_INET;
        next.__bindgen_anon_1.ipv4_nh = u32::from_ne_bytes(v4_of(via));
    } else {
        next.nh_family = AF_INET6;
        next.__bindgen_anon_1.ipv6_nh = words(via);
    }
    send_by(uplink, &next)
}

/// Sends a packet out by an interface, to this neighbour there.
#[inline(always)]
pub(crate) fn send_by(interface: u32, next: &NextHop) -> i32 {
    let next = (&raw const *next).cast_mut();
    // SAFETY: the helper reads `next`, whose size it is told.
    (unsafe { bpf_redirect_neigh(interface, next, size_of::<NextHop>() as i32, 0) }) as i32
}

/// Sends a frame to a neighbour whose address is known.
#[inline(always)]
pub(crate) fn send_to(ctx: &TcContext, interface: u32, mac: &[u8; 6]) -> i32 {
    if ctx.store(0, mac, 0).is_err() {
        return refused();
    }
    // SAFETY: the helper only notes where the frame goes.
    (unsafe { bpf_redirect(interface, 0) }) as i32
}

/// One hop less.
#[inline(always)]
pub(crate) fn hop(ctx: &TcContext, packet: &Packet) -> Option<()> {
    let left = packet.hop_limit - 1;
    if packet.v4 == 0 {
        return ctx.store(L3 + 7, &left, BPF_F_RECOMPUTE_CSUM.into()).ok();
    }
    // The time to live is the upper byte of the word that the protocol ends.
    let word = |hops: u8| u64::from(u16::from_be_bytes([hops, packet.protocol]).to_be());
    ctx.l3_csum_replace(L3 + V4_CHECKSUM, word(packet.hop_limit), word(left), 2)
        .ok()?;
    ctx.store(L3 + 8, &left, 0).ok()
}

/// Counts a refused change and drops the packet.
#[inline(always)]
pub(crate) fn refused() -> i32 {
    tables::note(Verdict::DroppedRewrite);
    DROP
}

/// Counts a packet that is dropped.
#[inline(always)]
pub(crate) fn dropped(verdict: Verdict, slot: u32) -> i32 {
    tables::note_drop(verdict, slot);
    DROP
}
