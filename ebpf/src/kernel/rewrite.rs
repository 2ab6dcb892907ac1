//! Changes the ends of a packet: every checksum stays right, whoever computes it.

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM};
use aya_ebpf::helpers::generated::bpf_csum_diff;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::checksum::crc32c_replace;
use dormouse_ebpf::packet::{self, L3, Packet, V4_CHECKSUM, v4_of};

/// Where an SCTP header has its checksum (RFC 9260 3.1).
const SCTP_CHECKSUM: usize = 8;

/// An end of a packet.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Source,
    Target,
}

impl End {
    /// Where its address lies in an IP header of the family.
    #[inline(always)]
    pub(crate) const fn address_at(self, v4: bool) -> usize {
        match (self, v4) {
            (Self::Source, true) => 12,
            (Self::Target, true) => 16,
            (Self::Source, false) => 8,
            (Self::Target, false) => 24,
        }
    }

    /// Where its port lies in a transport header.
    #[inline(always)]
    pub(crate) const fn port_at(self) -> usize {
        match self {
            Self::Source => 0,
            Self::Target => 2,
        }
    }
}

/// Puts another address and port into one end of a packet. A later fragment has no port, and no checksum over it.
#[inline(always)]
pub(crate) fn replace(
    ctx: &TcContext,
    packet: &Packet,
    end: End,
    address: &[u8; 16],
    port: u16,
) -> Option<()> {
    let (old, old_port) = match end {
        End::Source => (&packet.source, packet.source_port),
        End::Target => (&packet.target, packet.target_port),
    };
    if *old != *address {
        let difference = difference(old, address)?;
        if packet.l4 != 0 && packet.protocol != packet::SCTP {
            l4(ctx, packet, 0, difference, u64::from(BPF_F_PSEUDO_HDR))?;
        }
        put_address(ctx, L3, packet.v4 == 1, end, address, difference)?;
    }
    if port != old_port && packet.l4 != 0 {
        put_port(ctx, packet, end, (old_port, port))?;
    }
    Some(())
}

/// Stores an address into an IP header; `difference` is what it adds to a sum.
#[inline(always)]
pub(crate) fn put_address(
    ctx: &TcContext,
    at: usize,
    v4: bool,
    end: End,
    address: &[u8; 16],
    difference: u64,
) -> Option<()> {
    // With a checksum over the whole packet (CHECKSUM_COMPLETE) the address and its effect cancel out.
    let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
    let place = at + end.address_at(v4);
    if v4 {
        ctx.l3_csum_replace(at + V4_CHECKSUM, 0, difference, 0)
            .ok()?;
        ctx.store(place, &v4_of(address), flags).ok()
    } else {
        ctx.store(place, address, flags).ok()
    }
}

/// Changes the transport's checksum, where there is one.
#[inline(always)]
fn l4(ctx: &TcContext, packet: &Packet, from: u64, to: u64, flags: u64) -> Option<()> {
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
fn put_port(ctx: &TcContext, packet: &Packet, end: End, (old, new): (u16, u16)) -> Option<()> {
    if packet.protocol == packet::SCTP {
        put_crc(ctx, packet, end, (old, new))?;
    } else {
        l4(
            ctx,
            packet,
            u64::from(old.to_be()),
            u64::from(new.to_be()),
            2,
        )?;
    }
    ctx.store(packet.l4 as usize + end.port_at(), &new.to_be_bytes(), 0)
        .ok()
}

/// SCTP's checksum covers ports, but no addresses.
#[inline(always)]
fn put_crc(ctx: &TcContext, packet: &Packet, end: End, (old, new): (u16, u16)) -> Option<()> {
    let at = packet.l4 as usize + SCTP_CHECKSUM;
    let crc = u32::from_le_bytes(ctx.load(at).ok()?);
    let len = (L3 as u32 + u32::from(packet.len)).checked_sub(u32::from(packet.l4))?;
    let following = len.checked_sub(end.port_at() as u32 + 2)?;
    let crc = crc32c_replace(crc, old.to_be_bytes(), new.to_be_bytes(), following);
    ctx.store(at, &crc.to_le_bytes(), 0).ok()
}

/// What putting `to` in the place of `from` adds to a sum; of mapped addresses all but the last four bytes cancel out.
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

/// An address as the kernel's four words in network order.
#[inline(always)]
pub(crate) fn words(address: &[u8; 16]) -> [u32; 4] {
    let word = |at: usize| {
        u32::from_ne_bytes([
            address[at],
            address[at + 1],
            address[at + 2],
            address[at + 3],
        ])
    };
    [word(0), word(4), word(8), word(12)]
}

/// The other way round.
#[inline(always)]
pub(crate) fn address(words: [u32; 4]) -> [u8; 16] {
    let [a, b, c, d] = words.map(u32::to_ne_bytes);
    [
        a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2],
        d[3],
    ]
}
