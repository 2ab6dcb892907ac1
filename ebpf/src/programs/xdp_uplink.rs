//! The driver's hook of the uplink: drops what can never be right and what a Service's source ranges exclude, answers Neighbour Solicitations
//! for pods, and sends steady packets of connections to other nodes on, before the kernel has a socket buffer. All else passes untouched to
//! `tcx_uplink_in`, which applies the same rules to frames that this program does not see. Frames with a VLAN tag pass: they are another interface's. Minimum kernel: 5.18 (helpers for buffers of several pieces).

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::flow::FlowKey;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::Read;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::scratch::{self, Scratch};
use crate::kernel::screen::{Screened, screen};
use crate::kernel::source_ranges::refuses;
use crate::kernel::xdp::{Receiver, dropped, frame, receiver, send_back};
use crate::kernel::{flows, ndp, steady, tables, verdicts};

#[xdp(frags)]
fn xdp_uplink(ctx: XdpContext) -> u32 {
    run(&ctx)
}

#[inline(always)]
pub(super) fn run(ctx: &XdpContext) -> u32 {
    let (Some(scratch), Some(config)) = (Scratch::of(scratch::ARRIVING), tables::config()) else {
        return XDP_PASS;
    };
    let receiver = receiver(ctx, config);
    if receiver == Receiver::Another {
        return XDP_PASS;
    }
    match screen(&frame(ctx), scratch, config) {
        Screened::Passes(Read::Transport) if receiver == Receiver::ThisHost => {
            transport(ctx, scratch, config)
        }
        Screened::Passes(_) => XDP_PASS,
        Screened::Drops(verdict) => dropped(verdict, NO_SLOT),
        Screened::Solicits => {
            ndp::write_for_pod(scratch, config);
            match send_back(ctx, &mut scratch.advertised) {
                Some(sent) => {
                    verdicts::note(Verdict::Advertised);
                    sent
                }
                // It is as it was: the classifier answers it.
                None => XDP_PASS,
            }
        }
    }
}

/// Handles TCP, UDP and SCTP.
#[inline(always)]
fn transport(ctx: &XdpContext, scratch: &mut Scratch, config: &Config) -> u32 {
    scratch.key = FlowKey::of(&scratch.packet);
    let flow = flows::find(&scratch.key);
    if let Some(flow) = flow
        && let Some(sent) = steady::forward(ctx, scratch, config, flow)
    {
        return sent;
    }
    if refuses(scratch, flow, config) {
        return dropped(Verdict::DroppedRange, scratch.choice.slot);
    }
    XDP_PASS
}
