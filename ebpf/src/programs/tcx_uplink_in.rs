//! Ingress of the uplink: DNAT of packets to VIPs, reverse NAT of replies, and Neighbour Solicitations for pods. Minimum
//! kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;

use crate::kernel::env::Hook;
use crate::kernel::nat::handle;
use crate::kernel::scratch::{self, Scratch};
use crate::kernel::screen::{Screened, screen};
use crate::kernel::skb::{frame, is_for_another_host, is_for_this_host};
use crate::kernel::transmit::{NEXT, dropped};
use crate::kernel::{ndp, tables};

#[classifier]
fn tcx_uplink_in(ctx: TcContext) -> i32 {
    run(&ctx)
}

#[inline(always)]
pub(super) fn run(ctx: &TcContext) -> i32 {
    if is_for_another_host(ctx) {
        return NEXT;
    }
    let (Some(scratch), Some(config)) = (Scratch::of(scratch::ARRIVING), tables::config()) else {
        return NEXT;
    };
    match screen(&frame(ctx), scratch, config) {
        Screened::Passes(_) if !is_for_this_host(ctx) => NEXT,
        Screened::Passes(found) => {
            scratch.direct = 1;
            handle(ctx, scratch, found, Hook::Uplink)
        }
        Screened::Drops(verdict) => dropped(verdict, NO_SLOT),
        Screened::Solicits => ndp::advertise_pod(ctx, scratch, config),
    }
}
