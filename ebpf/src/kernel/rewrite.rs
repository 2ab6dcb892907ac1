//! Rewrites the addresses and ports of a packet, with every checksum, whether software or a network card computes it.

use core::arch::asm;

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM};
use aya_ebpf::helpers::generated::bpf_csum_diff;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::checksum::crc32c_replace;
use dormouse_ebpf::packet::{self, L3, Packet, V4_CHECKSUM, v4_of};

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

/// A change of one end's port.
struct PortChange {
    end: End,
    old: u16,
    new: u16,
}

/// A change of a transport checksum, as bpf_l4_csum_replace takes it.
struct SumChange {
    from: u64,
    to: u64,
    flags: u64,
}

/// Replaces the address and port of one end of a packet. A later fragment has no port, and no checksum over the address.
#[inline(always)]
pub(crate) fn replace(ctx: &TcContext, packet: &Packet, new: NewEnd<'_>) -> Option<()> {
    let NewEnd { end, address, port } = new;
    let (old, old_port) = match end {
        End::Source => (&packet.source, packet.source_port),
        End::Target => (&packet.target, packet.target_port),
    };
    if *old != *address {
        let difference = difference(old, address)?;
        if packet.l4 != 0 && packet.protocol != packet::SCTP {
            let change = SumChange {
                from: 0,
                to: difference,
                flags: BPF_F_PSEUDO_HDR.into(),
            };
            l4(ctx, packet, change)?;
        }
        let header = IpHeader {
            at: L3,
            v4: packet.v4 == 1,
        };
        let new = NewAddress {
            end,
            address,
            difference,
        };
        put_address(ctx, header, new)?;
    }
    if port != old_port && packet.l4 != 0 {
        let change = PortChange {
            end,
            old: old_port,
            new: port,
        };
        put_port(ctx, packet, &change)?;
    }
    Some(())
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

/// Updates the checksum of TCP or UDP.
#[inline(always)]
fn l4(ctx: &TcContext, packet: &Packet, change: SumChange) -> Option<()> {
    let SumChange { from, to, flags } = change;
    // A UDP checksum of 0 means "none", and stays so.
    let (at, flags) = if packet.protocol == packet::UDP {
        (6, flags | u64::from(BPF_F_MARK_MANGLED_0))
    } else {
        (16, flags)
    };
    ctx.l4_csum_replace(packet.l4 as usize + at, from, to, flags)
        .ok()
}

#[inline(always)]
fn put_port(ctx: &TcContext, packet: &Packet, change: &PortChange) -> Option<()> {
    let PortChange { end, old, new } = *change;
    if packet.protocol == packet::SCTP {
        put_crc(ctx, packet, change)?;
    } else {
        let sum = SumChange {
            from: old.to_be().into(),
            to: new.to_be().into(),
            flags: 2,
        };
        l4(ctx, packet, sum)?;
    }
    ctx.store(packet.l4 as usize + end.port_at(), &new.to_be_bytes(), 0)
        .ok()
}

/// SCTP's checksum covers ports, but no addresses.
#[inline(always)]
fn put_crc(ctx: &TcContext, packet: &Packet, change: &PortChange) -> Option<()> {
    let PortChange { end, old, new } = *change;
    let at = packet.l4 as usize + SCTP_CHECKSUM;
    let crc = u32::from_le_bytes(ctx.load(at).ok()?);
    let len = (L3 as u32 + u32::from(packet.len)).checked_sub(u32::from(packet.l4))?;
    let following = len.checked_sub(end.port_at() as u32 + 2)?;
    let crc = crc32c_replace(crc, old.to_be_bytes(), new.to_be_bytes(), following);
    ctx.store(at, &crc.to_le_bytes(), 0).ok()
}

/// The change of an internet checksum's sum when `to` replaces `from`; the common bytes of mapped addresses cancel out.
#[inline(always)]
pub(crate) fn difference(from: &[u8; 16], to: &[u8; 16]) -> Option<u64> {
    // SAFETY: both are 16 bytes, a multiple of four as the helper wants.
    let sum = unsafe {
        bpf_csum_diff(
            from.as_ptr().cast_mut().cast(),
            16,
            to.as_ptr().cast_mut().cast(),
            16,
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
