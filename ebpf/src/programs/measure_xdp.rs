//! The cost of dropping a packet in the driver: a sender, and programs to compare `xdp_uplink` with, run by
//! `cargo xtask bench north-south`.

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::macros::xdp;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::deny::DENIED_MAX;
use dormouse_ebpf::packet::L3;

use crate::kernel::tables;
use crate::kernel::words::Words;

/// Offset of the source address in an IPv6 frame.
const SOURCE: usize = L3 + 8;
/// Offset in it of the 32 bits before the interface identifier.
const LOW: usize = 4;

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
