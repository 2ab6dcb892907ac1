//! Turns a packet into its own refusal and sends it back by the interface that it came from.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_skb_change_head, bpf_skb_change_tail, bpf_skb_load_bytes,
};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{Aligned, Frame as _, L3, Packet, TCP};
use dormouse_ebpf::refuse::{
    QUOTE_MAX, Refusal, may_refuse, reset_v4, reset_v6, unreachable_v4, unreachable_v6,
};

use super::send::{DROP, refused};
use super::skb::frame;
use super::tables::Scratch;

/// Refuses a conversation. A connection's first segment is reset: an error that arrives while connect(2) still holds the
/// socket, as it does between namespaces, would be heard only at the next attempt, a second later.
#[inline(never)]
pub(crate) fn refuse(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if scratch.packet.protocol == TCP && scratch.packet.opens() {
        reset(ctx, scratch)
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
fn quote_v4(ctx: &TcContext, scratch: &mut Scratch, len: u32) -> bool {
    let answer = &mut scratch.refusals.unreachable_v4;
    unreachable_v4(&scratch.packet, &scratch.quote, len as u16, answer);
    prepend(ctx, answer).is_some()
}

#[inline(never)]
fn quote_v6(ctx: &TcContext, scratch: &mut Scratch, len: u32) -> bool {
    let answer = &mut scratch.refusals.unreachable_v6;
    unreachable_v6(&scratch.packet, &scratch.quote, len as u16, answer);
    prepend(ctx, answer).is_some()
}

/// Puts IP and ICMP headers before the quote, below the Ethernet header.
#[inline(always)]
fn prepend<const IP: usize>(ctx: &TcContext, answer: &Refusal<IP, 8>) -> Option<()> {
    let ethernet = frame(ctx).load::<L3>(0)?.0;
    // SAFETY: the helper takes the hook's context.
    if unsafe { bpf_skb_change_head(ctx.as_ptr().cast(), IP as u32 + 8, 0) } != 0 {
        return None;
    }
    ctx.store(0, &ethernet, 0).ok()?;
    put(ctx, answer)
}

/// Answers a segment of a connection that cannot go on.
#[inline(always)]
pub(crate) fn reset(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    let packet = &scratch.packet;
    if packet.protocol != TCP || !may_refuse(packet) || packet.l4 == 0 {
        return DROP;
    }
    let written = if packet.v4 == 1 {
        write_v4(ctx, scratch)
    } else {
        write_v6(ctx, scratch)
    };
    if written { turn(ctx) } else { refused() }
}

// Functions of their own: both answers at once are more than a program's stack holds.

#[inline(never)]
fn write_v4(ctx: &TcContext, scratch: &mut Scratch) -> bool {
    let Some((header, len)) = segment(ctx, &scratch.packet) else {
        return false;
    };
    let answer = &mut scratch.refusals.reset_v4;
    reset_v4(&scratch.packet, &header.0, len, answer);
    overwrite(ctx, answer).is_some()
}

#[inline(never)]
fn write_v6(ctx: &TcContext, scratch: &mut Scratch) -> bool {
    let Some((header, len)) = segment(ctx, &scratch.packet) else {
        return false;
    };
    let answer = &mut scratch.refusals.reset_v6;
    reset_v6(&scratch.packet, &header.0, len, answer);
    overwrite(ctx, answer).is_some()
}

/// The header of a segment, and how many sequence numbers it takes.
#[inline(always)]
fn segment(ctx: &TcContext, packet: &Packet) -> Option<(Aligned<20>, u32)> {
    let header = frame(ctx).load::<20>(packet.l4 as usize)?;
    let Aligned([.., offset, flags, _, _, _, _, _, _]) = header;
    let data = (L3 as u32 + u32::from(packet.len))
        .saturating_sub(u32::from(packet.l4) + u32::from(offset >> 4) * 4);
    Some((
        header,
        data + u32::from(flags & 1) + u32::from(flags >> 1 & 1),
    ))
}

#[inline(always)]
fn overwrite<const IP: usize>(ctx: &TcContext, answer: &Refusal<IP, 20>) -> Option<()> {
    resize(ctx, L3 + IP + 20)?;
    put(ctx, answer)
}

#[inline(always)]
fn put<const IP: usize, const UPPER: usize>(
    ctx: &TcContext,
    answer: &Refusal<IP, UPPER>,
) -> Option<()> {
    ctx.store(L3, &answer.ip, 0).ok()?;
    ctx.store(L3 + IP, &answer.upper, 0).ok()
}

#[inline(always)]
fn resize(ctx: &TcContext, len: usize) -> Option<()> {
    // SAFETY: the helper takes the hook's context.
    (unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), len as u32, 0) } == 0).then_some(())
}

/// Sends the frame back where it came from.
#[inline(never)]
fn turn(ctx: &TcContext) -> i32 {
    let frame = frame(ctx);
    let (Some(to), Some(from)) = (frame.load::<6>(0), frame.load::<6>(6)) else {
        return refused();
    };
    if ctx.store(0, &from.0, 0).is_err() || ctx.store(6, &to.0, 0).is_err() {
        return refused();
    }
    // SAFETY: a field of the context; the helper only notes where the frame goes.
    (unsafe { bpf_redirect((*ctx.skb.skb).ifindex, 0) }) as i32
}
