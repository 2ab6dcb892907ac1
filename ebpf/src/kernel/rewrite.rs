//! Rewrites the addresses and ports of a packet, with every checksum, whether software or a network card computes it.

use core::arch::asm;
use core::mem::offset_of;

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM};
use aya_ebpf::helpers::generated::bpf_csum_diff;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::checksum::crc32c_replace;
use dormouse_ebpf::flow::Flow;
use dormouse_ebpf::packet::{self, L3, Packet, V4_CHECKSUM, v4_of};

use super::words::Words;

/// Bytes of two addresses.
const ADDRESSES: usize = 32;
/// The offset of the checksum in an SCTP header (RFC 9260 3.1).
const SCTP_CHECKSUM: usize = 8;

/// One end of a packet.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Source,
    Target,
}

impl End {
    /// The offset of its address in an IP header of the family.
    #[inline(always)]
    pub(crate) const fn address_at(self, v4: bool) -> usize {
        match (self, v4) {
            (Self::Source, true) => 12,
            (Self::Target, true) => 16,
            (Self::Source, false) => 8,
            (Self::Target, false) => 24,
        }
    }

    /// The offset of its port in a transport header.
    #[inline(always)]
    pub(crate) const fn port_at(self) -> usize {
        match self {
            Self::Source => 0,
            Self::Target => 2,
        }
    }
}

/// The new address and port of one end.
#[derive(Clone, Copy)]
pub(crate) struct NewEnd<'a> {
    pub(crate) end: End,
    pub(crate) address: &'a [u8; 16],
    pub(crate) port: u16,
}

/// The new address of one end, and its [`difference`] to the old one.
pub(crate) struct NewAddress<'a> {
    pub(crate) end: End,
    pub(crate) address: &'a [u8; 16],
    pub(crate) difference: u64,
}

/// The place of an IP header in the frame, and its family.
pub(crate) struct IpHeader {
    pub(crate) at: usize,
    pub(crate) v4: bool,
}

/// Gives a packet both ends of its flow. A later fragment has no ports, and no checksum over the addresses.
#[inline(always)]
pub(crate) fn translate(ctx: &TcContext, packet: &Packet, flow: &Flow) -> Option<()> {
    if packet.source != flow.source || packet.target != flow.target {
        put_addresses(ctx, packet, flow)?;
    }
    if packet.l4 == 0 {
        return Some(());
    }
    let (old, new) = (
        [packet.source_port, packet.target_port],
        [flow.source_port, flow.target_port],
    );
    if old == new {
        return Some(());
    }
    put_ports(ctx, packet, old, new)
}

/// Stores both addresses.
#[inline(always)]
fn put_addresses(ctx: &TcContext, packet: &Packet, flow: &Flow) -> Option<()> {
    let difference = difference(packet_addresses(packet), flow_addresses(flow))?;
    if packet.l4 != 0 && packet.protocol != packet::SCTP {
        l4(ctx, packet, difference, BPF_F_PSEUDO_HDR.into())?;
    }
    let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
    if packet.v4 == 0 {
        let place = L3 + End::Source.address_at(false);
        return ctx.store(place, flow_addresses(flow), flags).ok();
    }
    ctx.l3_csum_replace(L3 + V4_CHECKSUM, 0, difference, 0)
        .ok()?;
    let addresses = [&flow.source, &flow.target].map(|address| u32::from_ne_bytes(v4_of(address)));
    let place = L3 + End::Source.address_at(true);
    ctx.store(place, &Words(addresses), flags).ok()
}

/// Both addresses of a packet, the source first.
#[inline(always)]
const fn packet_addresses(packet: &Packet) -> &[u8; ADDRESSES] {
    const { assert!(offset_of!(Packet, source) == 0 && offset_of!(Packet, target) == 16) };
    // SAFETY: the first bytes of the struct.
    unsafe { &*core::ptr::from_ref(packet).cast() }
}

/// Both addresses of a flow, the source first.
#[inline(always)]
const fn flow_addresses(flow: &Flow) -> &[u8; ADDRESSES] {
    const { assert!(offset_of!(Flow, source) == 0 && offset_of!(Flow, target) == 16) };
    // SAFETY: the first bytes of the struct.
    unsafe { &*core::ptr::from_ref(flow).cast() }
}

/// Stores an address in an IP header.
#[inline(always)]
pub(crate) fn put_address(ctx: &TcContext, header: IpHeader, new: NewAddress<'_>) -> Option<()> {
    // With a checksum over the whole packet (CHECKSUM_COMPLETE) the address and its effect cancel out.
    let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
    let place = header.at + new.end.address_at(header.v4);
    if header.v4 {
        ctx.l3_csum_replace(header.at + V4_CHECKSUM, 0, new.difference, 0)
            .ok()?;
        ctx.store(place, &v4_of(new.address), flags).ok()
    } else {
        ctx.store(place, new.address, flags).ok()
    }
}

/// Updates the checksum of TCP or UDP by the change of its sum.
#[inline(always)]
fn l4(ctx: &TcContext, packet: &Packet, difference: u64, flags: u64) -> Option<()> {
    // A UDP checksum of 0 means "none", and stays so.
    let (at, flags) = if packet.protocol == packet::UDP {
        (6, flags | u64::from(BPF_F_MARK_MANGLED_0))
    } else {
        (16, flags)
    };
    ctx.l4_csum_replace(packet.l4 as usize + at, 0, difference, flags)
        .ok()
}

/// Stores both ports.
#[inline(always)]
fn put_ports(ctx: &TcContext, packet: &Packet, old: [u16; 2], new: [u16; 2]) -> Option<()> {
    if packet.protocol == packet::SCTP {
        put_crc(ctx, packet, End::Source, (old[0], new[0]))?;
        put_crc(ctx, packet, End::Target, (old[1], new[1]))?;
    } else {
        let sum = |ports: [u16; 2]| {
            ports
                .map(|port| u64::from(port.to_be()))
                .iter()
                .sum::<u64>()
        };
        let difference = sum(new) + sum(old.map(|port| !port));
        l4(ctx, packet, difference, 0)?;
    }
    let place = packet.l4 as usize + End::Source.port_at();
    ctx.store(place, &new.map(u16::to_be), 0).ok()
}

/// SCTP's checksum covers ports, but no addresses.
#[inline(always)]
fn put_crc(ctx: &TcContext, packet: &Packet, end: End, (old, new): (u16, u16)) -> Option<()> {
    if old == new {
        return Some(());
    }
    let at = packet.l4 as usize + SCTP_CHECKSUM;
    let crc = u32::from_le_bytes(ctx.load(at).ok()?);
    let len = (L3 as u32 + u32::from(packet.len)).checked_sub(u32::from(packet.l4))?;
    let following = len.checked_sub(end.port_at() as u32 + 2)?;
    let crc = crc32c_replace(crc, old.to_be_bytes(), new.to_be_bytes(), following);
    ctx.store(at, &crc.to_le_bytes(), 0).ok()
}

/// The change of an internet checksum's sum when `to` replaces `from`; the common bytes of mapped addresses cancel out.
#[inline(always)]
pub(crate) fn difference<const N: usize>(from: &[u8; N], to: &[u8; N]) -> Option<u64> {
    const { assert!(N.is_multiple_of(4), "as the helper wants") };
    // SAFETY: the helper reads `N` bytes of each.
    let sum = unsafe {
        bpf_csum_diff(
            from.as_ptr().cast_mut().cast(),
            N as u32,
            to.as_ptr().cast_mut().cast(),
            N as u32,
            0,
        )
    };
    u64::try_from(sum).ok()
}

/// An address as four words in network order, as kernel structs have it.
#[inline(always)]
pub(crate) fn words(address: &[u8; 16]) -> [u32; 4] {
    let word = |at: usize| {
        single(u32::from_ne_bytes([
            address[at],
            address[at + 1],
            address[at + 2],
            address[at + 3],
        ]))
    };
    [word(0), word(4), word(8), word(12)]
}

/// Hides a word's origin from the optimiser, which would copy two words at once: to the stack the verifier allows that at
/// aligned addresses only, and those of kernel structs' fields are not.
#[inline(always)]
pub(crate) fn single(mut word: u32) -> u32 {
    // SAFETY: one instruction on a register, which keeps its value.
    unsafe { asm!("{word} = {word}", word = inout(wreg) word, options(nomem, nostack)) };
    word
}

/// The inverse of [`words`].
#[inline(always)]
pub(crate) fn address(words: [u32; 4]) -> [u8; 16] {
    let [a, b, c, d] = words.map(u32::to_ne_bytes);
    [
        a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2],
        d[3],
    ]
}
