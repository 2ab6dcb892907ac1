//! The driver's hook of the uplink: drops what can never be right or is from outside a Service's source ranges, and answers
//! Neighbour Solicitations for pods, before the kernel has a socket buffer. All else passes untouched to `tcx_uplink_in`, which
//! applies the same rules to frames that this program does not see. Frames with a VLAN tag pass: they are another interface's.
//! Minimum kernel: 5.18 (helpers for buffers of several pieces).

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::screen::{Screened, screen};
use crate::kernel::source_ranges::refuses;
use crate::kernel::xdp::{dropped, frame, is_for_this_host, send_back};
use crate::kernel::{ndp, tables};

#[xdp(frags)]
fn xdp_uplink(ctx: XdpContext) -> u32 {
    let (Some(scratch), Some(config)) = (tables::scratch(tables::ARRIVING), tables::config())
    else {
        return XDP_PASS;
    };
    if !is_for_this_host(&ctx, config) {
        return XDP_PASS;
    }
    match screen(&frame(&ctx), scratch, config) {
        Screened::Passes(found) if refuses(scratch, found, config) => {
            dropped(Verdict::DroppedRange, scratch.choice.slot)
        }
        Screened::Passes(_) => XDP_PASS,
        Screened::Drops(verdict) => dropped(verdict, NO_SLOT),
        Screened::Solicits => {
            ndp::write_for_pod(scratch, config);
            match send_back(&ctx, &mut scratch.advertised) {
                Some(sent) => {
                    tables::note(Verdict::Advertised);
                    sent
                }
                // It is as it was: the classifier answers it.
                None => XDP_PASS,
            }
        }
    }
}
