//! The cost of a packet in the driver: senders, and programs to compare `xdp_uplink` with, run by `cargo xtask bench north-south`.

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::macros::xdp;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::deny::DENIED_MAX;
use dormouse_ebpf::next_hop::MACS;
use dormouse_ebpf::packet::{L3, L4};
use dormouse_ebpf::steady::UDP6;

use crate::kernel::tables;
use crate::kernel::words::Words;

/// Offset of the source address in an IPv6 frame.
const SOURCE: usize = L3 + 8;
/// Offset in it of the 32 bits before the interface identifier.
const LOW: usize = 4;

/// Flows of the second sender, and the places in a UDP datagram over IPv6 of what differs: the last word of the source, and the source port.
const FLOWS: u32 = 1 << 12;
const SOURCE_END: usize = SOURCE + 14;
const SOURCE_PORT: usize = L4;

/// The source address of an IPv6 frame.
#[inline(always)]
fn source(ctx: &XdpContext) -> Option<*mut [u8; 16]> {
    let at = ctx.data() + SOURCE;
    (at + 16 <= ctx.data_end()).then_some(at as *mut [u8; 16])
}

/// Sends a frame out by the interface of the run, with a random source: one /64 of as many as a deny list has entries.
#[xdp(frags)]
fn measure_send(ctx: XdpContext) -> u32 {
    let Some(source) = source(&ctx) else {
        return XDP_ABORTED;
    };
    let network = (tables::random() & (DENIED_MAX - 1)).to_be_bytes();
    // SAFETY: inside the frame, as checked.
    unsafe {
        source
            .cast::<u8>()
            .add(LOW)
            .cast::<[u8; 4]>()
            .write_unaligned(network)
    };
    XDP_TX
}

/// Sends a datagram out by the interface of the run, of a random flow: as much as is added to its source is taken from its source port, and the
/// checksum stays right. Frames come back as their receiver has changed them, so each has a copy of its headers.
#[xdp(frags)]
fn measure_flows(ctx: XdpContext) -> u32 {
    let Some(head) = head::<{ 2 * UDP6 }>(&ctx) else {
        return XDP_ABORTED;
    };
    let mut byte = 0;
    while byte < UDP6 {
        head[byte] = head[UDP6 + byte];
        byte += 1;
    }
    let flow = (tables::random() & (FLOWS - 1)) as u16;
    let port = u16::MAX - flow;
    [head[SOURCE_END], head[SOURCE_END + 1]] = flow.to_be_bytes();
    [head[SOURCE_PORT], head[SOURCE_PORT + 1]] = port.to_be_bytes();
    XDP_TX
}

/// The first bytes of a frame.
#[inline(always)]
fn head<const N: usize>(ctx: &XdpContext) -> Option<&mut [u8; N]> {
    let at = ctx.data();
    if at + N > ctx.data_end() {
        return None;
    }
    // SAFETY: inside the frame, as checked, which no one else uses while the program runs.
    Some(unsafe { &mut *(at as *mut [u8; N]) })
}

/// Sends a frame back to its sender: the least that forwarding costs.
#[xdp(frags)]
fn measure_forward(ctx: XdpContext) -> u32 {
    let Some(macs) = head::<MACS>(&ctx) else {
        return XDP_ABORTED;
    };
    let [to, from] = [0, MACS / 2];
    let mut byte = 0;
    while byte < MACS / 2 {
        macs.swap(to + byte, from + byte);
        byte += 1;
    }
    XDP_TX
}

/// Passes a frame.
#[xdp(frags)]
fn measure_pass(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Drops a frame.
#[xdp(frags)]
fn measure_drop(_: XdpContext) -> u32 {
    XDP_DROP
}

/// Drops a frame whose source the deny list has: one lookup, and no more.
#[xdp(frags)]
fn measure_lookup(ctx: XdpContext) -> u32 {
    let Some(source) = source(&ctx) else {
        return XDP_ABORTED;
    };
    // SAFETY: inside the frame, as checked.
    let key = Words(Key::new(128, unsafe { source.read_unaligned() }));
    match tables::DENY_A.get(&key.0) {
        Some(_) => XDP_DROP,
        None => XDP_PASS,
    }
}
