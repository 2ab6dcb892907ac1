//! Changes an end of a packet, and sends packets on: the checksum stays right, whoever computes it.

use aya_ebpf::bindings::{
    BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM, bpf_redir_neigh,
};
use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_redirect_neigh};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{self, Bytes, Transport};
use dormouse_ebpf::verdict::Verdict;

use super::tables;

/// Not ours: the next program, then the kernel.
pub(crate) const NEXT: i32 = -1;
/// Done: the kernel routes it on.
pub(crate) const PASS: i32 = 0;
/// Dropped.
pub(crate) const DROP: i32 = 2;

const AF_INET6: u32 = 10;

/// A frame at a tcx hook.
pub(crate) struct Frame<'a>(pub(crate) &'a TcContext);

impl Bytes for Frame<'_> {
    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.load::<[u8; N]>(offset).ok()
    }
}

/// An end of a packet.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Source,
    Target,
}

/// Puts another address and port into one end of a packet.
#[inline(always)]
pub(crate) fn replace(
    ctx: &TcContext,
    packet: &Transport,
    end: End,
    address: &[u8; 16],
    port: u16,
) -> Option<()> {
    let (old_address, old_port, address_at, port_at) = match end {
        End::Source => (
            packet.source,
            packet.source_port,
            packet::SOURCE,
            packet::L4,
        ),
        End::Target => (
            packet.target,
            packet.target_port,
            packet::TARGET,
            packet::L4 + 2,
        ),
    };
    let checksum_at = packet.checksum_at();
    // A UDP checksum of 0 would mean "none".
    let udp = if packet.protocol == packet::UDP {
        u64::from(BPF_F_MARK_MANGLED_0)
    } else {
        0
    };
    let difference = difference(&old_address, address)?;
    ctx.l4_csum_replace(
        checksum_at,
        0,
        difference,
        u64::from(BPF_F_PSEUDO_HDR) | udp,
    )
    .ok()?;
    // With a checksum over the whole packet (CHECKSUM_COMPLETE) the address and its effect cancel out.
    ctx.store(address_at, address, u64::from(BPF_F_RECOMPUTE_CSUM))
        .ok()?;
    if port != old_port {
        let (from, to) = (u64::from(old_port.to_be()), u64::from(port.to_be()));
        ctx.l4_csum_replace(checksum_at, from, to, 2 | udp).ok()?;
        ctx.store(port_at, &port.to_be_bytes(), 0).ok()?;
    }
    Some(())
}

#[inline(always)]
fn difference(from: &[u8; 16], to: &[u8; 16]) -> Option<u64> {
    // SAFETY: both are 16 bytes on the stack, a multiple of four as the helper wants.
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

/// Sends a packet out of the uplink: to `via`, or to whom the kernel's routes say.
#[inline(always)]
pub(crate) fn send_on(
    ctx: &TcContext,
    packet: &Transport,
    uplink: u32,
    via: Option<&[u8; 16]>,
) -> i32 {
    if packet.hop_limit <= 1 {
        tables::note(Verdict::DroppedHops);
        return DROP;
    }
    if ctx
        .store(packet::HOP_LIMIT, &(packet.hop_limit - 1), 0)
        .is_err()
    {
        tables::note(Verdict::DroppedRewrite);
        return DROP;
    }
    match via {
        None => {
            // SAFETY: no parameters: the helper looks the way up.
            (unsafe { bpf_redirect_neigh(uplink, core::ptr::null_mut(), 0, 0) }) as i32
        }
        Some(via) => {
            // SAFETY: all zero is a valid value of this plain struct.
            let mut hop: bpf_redir_neigh = unsafe { core::mem::zeroed() };
            hop.nh_family = AF_INET6;
            hop.__bindgen_anon_1.ipv6_nh = words(via);
            // SAFETY: the helper reads `hop`, whose size it is told.
            (unsafe {
                bpf_redirect_neigh(uplink, &raw mut hop, size_of::<bpf_redir_neigh>() as i32, 0)
            }) as i32
        }
    }
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

/// Counts a refused change and drops the packet.
#[inline(always)]
pub(crate) fn refused() -> i32 {
    tables::note(Verdict::DroppedRewrite);
    DROP
}
