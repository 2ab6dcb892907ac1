//! Turns a packet into its own refusal and sends it back by the interface that it came from.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_skb_change_head, bpf_skb_change_tail, bpf_skb_load_bytes,
};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{L3, Packet, TCP};
use dormouse_ebpf::refuse::{
    QUOTE_MAX, may_refuse, reset_v4, reset_v6, unreachable_v4, unreachable_v6,
};

use super::rewrite::{DROP, refused};
use super::tables::Scratch;

/// Refuses a conversation. A connection's first segment is reset: an error that arrives while connect(2) still holds the
/// socket, as it does between namespaces, would be heard only at the next attempt, a second later.
#[inline(never)]
pub(crate) fn refuse(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if scratch.packet.protocol == TCP && scratch.packet.opens() {
        reset(ctx, &scratch.packet)
    } else {
        unreachable(ctx, scratch)
    }
}

/// Answers with port unreachable, where such an answer is allowed.
#[inline(always)]
pub(crate) fn unreachable(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if !may_refuse(&scratch.packet) {
        return DROP;
    }
    let len = quote(ctx, scratch);
    let written = len != 0
        && if scratch.packet.v4 == 1 {
            quote_v4(ctx, scratch, len)
        } else {
            quote_v6(ctx, scratch, len)
        };
    if written { turn(ctx) } else { refused() }
}

/// Copies the begin of the packet, and cuts the rest off. Returns how much of it is left, 0 if the kernel refused.
#[inline(never)]
fn quote(ctx: &TcContext, scratch: &mut Scratch) -> u32 {
    let len = ctx.len().wrapping_sub(L3 as u32);
    let len = if len > QUOTE_MAX as u32 {
        QUOTE_MAX as u32
    } else {
        len
    };
    // The verifier wants to see that it is never 0.
    let len = (len.wrapping_sub(1) & (QUOTE_MAX as u32 - 1)) + 1;
    scratch.quote = [0; QUOTE_MAX];
    // SAFETY: `len` bytes have room in the quote.
    let read = unsafe {
        bpf_skb_load_bytes(
            ctx.as_ptr().cast(),
            L3 as u32,
            scratch.quote.as_mut_ptr().cast(),
            len,
        )
    };
    if read == 0 && resize(ctx, L3 + len as usize).is_some() {
        len
    } else {
        0
    }
}

#[inline(never)]
fn quote_v4(ctx: &TcContext, scratch: &Scratch, len: u32) -> bool {
    let header = unreachable_v4(&scratch.packet, &scratch.quote, len as u16);
    prepend(ctx, &header).is_some()
}

#[inline(never)]
fn quote_v6(ctx: &TcContext, scratch: &Scratch, len: u32) -> bool {
    let header = unreachable_v6(&scratch.packet, &scratch.quote, len as u16);
    prepend(ctx, &header).is_some()
}

/// Puts IP and ICMP headers before the quote, below the Ethernet header.
#[inline(always)]
fn prepend<const N: usize>(ctx: &TcContext, header: &[u8; N]) -> Option<()> {
    let frame: [u8; L3] = ctx.load(0).ok()?;
    // SAFETY: the helper takes the hook's context.
    if unsafe { bpf_skb_change_head(ctx.as_ptr().cast(), N as u32, 0) } != 0 {
        return None;
    }
    ctx.store(0, &frame, 0).ok()?;
    ctx.store(L3, header, 0).ok()
}

/// Answers a segment of a connection that cannot go on.
#[inline(always)]
pub(crate) fn reset(ctx: &TcContext, packet: &Packet) -> i32 {
    if packet.protocol != TCP || !may_refuse(packet) || packet.l4 == 0 {
        return DROP;
    }
    let written = if packet.v4 == 1 {
        write_v4(ctx, packet)
    } else {
        write_v6(ctx, packet)
    };
    if written { turn(ctx) } else { refused() }
}

// Functions of their own: both answers at once are more than a program's stack holds.

#[inline(never)]
fn write_v4(ctx: &TcContext, packet: &Packet) -> bool {
    segment(ctx, packet)
        .and_then(|(header, len)| overwrite(ctx, &reset_v4(packet, &header, len)))
        .is_some()
}

#[inline(never)]
fn write_v6(ctx: &TcContext, packet: &Packet) -> bool {
    segment(ctx, packet)
        .and_then(|(header, len)| overwrite(ctx, &reset_v6(packet, &header, len)))
        .is_some()
}

/// The header of a segment, and how many sequence numbers it takes.
#[inline(always)]
fn segment(ctx: &TcContext, packet: &Packet) -> Option<([u8; 20], u32)> {
    let header: [u8; 20] = ctx.load(packet.l4 as usize).ok()?;
    let [.., offset, flags, _, _, _, _, _, _] = header;
    let data = (L3 as u32 + u32::from(packet.len))
        .saturating_sub(u32::from(packet.l4) + u32::from(offset >> 4) * 4);
    Some((
        header,
        data + u32::from(flags & 1) + u32::from(flags >> 1 & 1),
    ))
}

#[inline(always)]
fn overwrite<const N: usize>(ctx: &TcContext, ip: &[u8; N]) -> Option<()> {
    resize(ctx, L3 + N)?;
    ctx.store(L3, ip, 0).ok()
}

#[inline(always)]
fn resize(ctx: &TcContext, len: usize) -> Option<()> {
    // SAFETY: the helper takes the hook's context.
    (unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), len as u32, 0) } == 0).then_some(())
}

/// Sends the frame back where it came from.
#[inline(never)]
fn turn(ctx: &TcContext) -> i32 {
    let Ok([a, b, c, d, e, f, g, h, i, j, k, l]) = ctx.load::<[u8; 12]>(0) else {
        return refused();
    };
    let back = [g, h, i, j, k, l, a, b, c, d, e, f];
    if ctx.store(0, &back, 0).is_err() {
        return refused();
    }
    // SAFETY: a field of the context; the helper only notes where the frame goes.
    (unsafe { bpf_redirect((*ctx.skb.skb).ifindex, 0) }) as i32
}
