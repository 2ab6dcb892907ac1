//! Rejects a packet: turns it into a TCP reset or an ICMP error, and sends that back by the interface that it came from.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_skb_change_head, bpf_skb_change_tail, bpf_skb_load_bytes,
};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{Aligned, Frame as _, L3, Packet, TCP};
use dormouse_ebpf::reject::{
    QUOTE_MAX, Rejection, may_reject, reset_v4, reset_v6, unreachable_v4, unreachable_v6,
};

use super::scratch::Scratch;
use super::skb::frame;
use super::transmit::{DROP, refused};

/// Rejects a connection. A TCP SYN is reset: an ICMP error that arrives while connect(2) still holds the socket, as it does
/// between namespaces, would take effect only at the next SYN, a second later.
#[inline(never)]
pub(crate) fn reject(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if scratch.packet.protocol == TCP && scratch.packet.opens() {
        reset(ctx, scratch)
    } else {
        unreachable(ctx, scratch)
    }
}

/// Answers with "port unreachable", where such an error is allowed.
#[inline(always)]
pub(crate) fn unreachable(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if !may_reject(&scratch.packet) {
        return DROP;
    }
    let len = quote(ctx, scratch);
    let written = len != 0
        && if scratch.packet.v4 == 1 {
            quote_v4(ctx, scratch, len)
        } else {
            quote_v6(ctx, scratch, len)
        };
    if written { send_back(ctx) } else { refused() }
}

/// Copies the first bytes of the packet, and cuts the rest off. Returns the bytes that are left, 0 if a helper failed.
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
    let answer = &mut scratch.rejections.unreachable_v4;
    unreachable_v4(&scratch.packet, &scratch.quote, len as u16, answer);
    prepend(ctx, answer).is_some()
}

#[inline(never)]
fn quote_v6(ctx: &TcContext, scratch: &mut Scratch, len: u32) -> bool {
    let answer = &mut scratch.rejections.unreachable_v6;
    unreachable_v6(&scratch.packet, &scratch.quote, len as u16, answer);
    prepend(ctx, answer).is_some()
}

/// Inserts IP and ICMP headers between the Ethernet header and the quote.
#[inline(always)]
fn prepend<const IP: usize>(ctx: &TcContext, answer: &Rejection<IP, 8>) -> Option<()> {
    let ethernet = frame(ctx).load::<L3>(0)?.0;
    // SAFETY: the helper takes the hook's context.
    if unsafe { bpf_skb_change_head(ctx.as_ptr().cast(), IP as u32 + 8, 0) } != 0 {
        return None;
    }
    ctx.store(0, &ethernet, 0).ok()?;
    put(ctx, answer)
}

/// Answers a TCP segment with a reset.
#[inline(always)]
pub(crate) fn reset(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    let packet = &scratch.packet;
    if packet.protocol != TCP || !may_reject(packet) || packet.l4 == 0 {
        return DROP;
    }
    let written = if packet.v4 == 1 {
        write_v4(ctx, scratch)
    } else {
        write_v6(ctx, scratch)
    };
    if written { send_back(ctx) } else { refused() }
}

// Not inlined: both answers together do not fit on a program's stack.

#[inline(never)]
fn write_v4(ctx: &TcContext, scratch: &mut Scratch) -> bool {
    let Some((header, len)) = segment(ctx, &scratch.packet) else {
        return false;
    };
    let answer = &mut scratch.rejections.reset_v4;
    reset_v4(&scratch.packet, &header.0, len, answer);
    overwrite(ctx, answer).is_some()
}

#[inline(never)]
fn write_v6(ctx: &TcContext, scratch: &mut Scratch) -> bool {
    let Some((header, len)) = segment(ctx, &scratch.packet) else {
        return false;
    };
    let answer = &mut scratch.rejections.reset_v6;
    reset_v6(&scratch.packet, &header.0, len, answer);
    overwrite(ctx, answer).is_some()
}

/// The header of a segment, and its length in sequence numbers.
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
fn overwrite<const IP: usize>(ctx: &TcContext, answer: &Rejection<IP, 20>) -> Option<()> {
    resize(ctx, L3 + IP + 20)?;
    put(ctx, answer)
}

#[inline(always)]
fn put<const IP: usize, const UPPER: usize>(
    ctx: &TcContext,
    answer: &Rejection<IP, UPPER>,
) -> Option<()> {
    ctx.store(L3, &answer.ip, 0).ok()?;
    ctx.store(L3 + IP, &answer.upper, 0).ok()
}

#[inline(always)]
fn resize(ctx: &TcContext, len: usize) -> Option<()> {
    // SAFETY: the helper takes the hook's context.
    (unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), len as u32, 0) } == 0).then_some(())
}

/// Sends the frame back to its sender.
#[inline(never)]
fn send_back(ctx: &TcContext) -> i32 {
    let frame = frame(ctx);
    let (Some(to), Some(from)) = (frame.load::<6>(0), frame.load::<6>(6)) else {
        return refused();
    };
    if ctx.store(0, &from.0, 0).is_err() || ctx.store(6, &to.0, 0).is_err() {
        return refused();
    }
    // SAFETY: a field of the context; the helper only sets the frame's destination.
    (unsafe { bpf_redirect((*ctx.skb.skb).ifindex, 0) }) as i32
}
