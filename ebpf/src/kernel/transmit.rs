//! The verdicts of packet programs, and the ways to send a packet: by the uplink, to a neighbour, or to a known link.

use aya_ebpf::bindings::{BPF_F_RECOMPUTE_CSUM, bpf_redir_neigh};
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_redirect_neigh};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::next_hop::RouteHop;
use dormouse_ebpf::packet::{L3, Packet, V4_CHECKSUM, v4_of};
use dormouse_ebpf::verdict::Verdict;

use super::rewrite::words;
use super::verdicts;
use super::words::Words;

/// TCX_NEXT: the packet is left to the next program, then to the kernel.
pub(crate) const NEXT: i32 = -1;
/// TCX_PASS: the packet is handled, and the kernel routes it.
pub(crate) const PASS: i32 = 0;
/// TCX_DROP.
pub(crate) const DROP: i32 = 2;

/// Address families (socket.h).
pub(super) const AF_INET: u32 = 2;
pub(super) const AF_INET6: u32 = 10;

/// A neighbour as bpf_redirect_neigh takes it.
pub(crate) struct NextHop(Words<bpf_redir_neigh>);

impl NextHop {
    /// An IPv4 neighbour; the address is in network order.
    #[inline(always)]
    pub(crate) fn v4(address: u32) -> Self {
        let mut next = Self::of(AF_INET);
        next.0.0.__bindgen_anon_1.ipv4_nh = address;
        next
    }

    /// An IPv6 neighbour; the words are in network order.
    #[inline(always)]
    pub(crate) fn v6(address: [u32; 4]) -> Self {
        let mut next = Self::of(AF_INET6);
        next.0.0.__bindgen_anon_1.ipv6_nh = address;
        next
    }

    /// That of a route.
    #[inline(always)]
    pub(crate) fn to(hop: &RouteHop) -> Self {
        if hop.v4 == 1 {
            Self::v4(hop.address[0])
        } else {
            Self::v6(hop.address)
        }
    }

    #[inline(always)]
    fn of(family: u32) -> Self {
        // SAFETY: all zero is a valid value of this plain struct.
        let mut next: Self = unsafe { core::mem::zeroed() };
        next.0.0.nh_family = family;
        next
    }
}

/// Sends a packet out by the uplink: to the next hop `via`, or to that of the kernel's route.
#[inline(always)]
pub(crate) fn forward(
    ctx: &TcContext,
    packet: &Packet,
    uplink: u32,
    via: Option<&[u8; 16]>,
) -> i32 {
    let Some(via) = via else {
        return forward_on(ctx, packet, uplink, None);
    };
    let next = if packet.v4 == 1 {
        NextHop::v4(u32::from_ne_bytes(v4_of(via)))
    } else {
        NextHop::v6(words(via))
    };
    forward_on(ctx, packet, uplink, Some(&next))
}

/// Sends a packet out by an interface: to a next hop, or to that of the kernel's route.
#[inline(always)]
pub(crate) fn forward_on(
    ctx: &TcContext,
    packet: &Packet,
    interface: u32,
    next: Option<&NextHop>,
) -> i32 {
    if packet.hop_limit <= 1 {
        verdicts::note(Verdict::DroppedHops);
        return DROP;
    }
    if decrement_hop_limit(ctx, packet).is_none() {
        return refused();
    }
    match next {
        Some(next) => forward_to_neighbour(interface, next),
        // SAFETY: no parameters: the helper looks up the route.
        None => (unsafe { bpf_redirect_neigh(interface, core::ptr::null_mut(), 0, 0) }) as i32,
    }
}

/// Sends a packet out by an interface to a neighbour.
#[inline(always)]
pub(crate) fn forward_to_neighbour(interface: u32, next: &NextHop) -> i32 {
    let hop = (&raw const next.0.0).cast_mut();
    // SAFETY: the helper reads `hop`, whose size is passed.
    (unsafe { bpf_redirect_neigh(interface, hop, size_of::<bpf_redir_neigh>() as i32, 0) }) as i32
}

/// Sends a frame out by an interface to a link-layer address.
#[inline(always)]
pub(crate) fn redirect_to_mac(ctx: &TcContext, interface: u32, mac: &[u8; 6]) -> i32 {
    if ctx.store(0, mac, 0).is_err() {
        return refused();
    }
    // SAFETY: the helper only sets the frame's destination.
    (unsafe { bpf_redirect(interface, 0) }) as i32
}

/// Decrements the hop limit (TTL).
#[inline(always)]
pub(crate) fn decrement_hop_limit(ctx: &TcContext, packet: &Packet) -> Option<()> {
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

/// Drops a packet that a helper failed to change, and counts it.
#[inline(always)]
pub(crate) fn refused() -> i32 {
    verdicts::note(Verdict::DroppedRewrite);
    DROP
}

/// Drops a packet, and counts it by slot.
#[inline(always)]
pub(crate) fn dropped(verdict: Verdict, slot: u32) -> i32 {
    verdicts::note_drop(verdict, slot);
    DROP
}
