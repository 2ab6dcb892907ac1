//! Packets to VIPs that are neither TCP, UDP nor SCTP: no backend gets them, and they end here. The host has no route to a VIP
//! but the default one, by which its router would send them back until their hop limit is used up.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Decision, without_backend};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::reject::may_reject;
use dormouse_ebpf::verdict::Verdict;

use super::reject::reject;
use super::scratch::Scratch;
use super::tables::Kernel;
use super::transmit::{DROP, NEXT};
use super::verdicts;

/// The packet is to be rejected; no verdict of programs.
const REJECT: i32 = 1;

/// Rejects a packet to a VIP, as kube-proxy does, or drops it; leaves all others to the kernel.
#[inline(always)]
pub(crate) fn end_at_vip(ctx: &TcContext, scratch: &mut Scratch, config: &Config) -> i32 {
    match judge(scratch, config) {
        REJECT => reject(ctx, scratch),
        verdict => verdict,
    }
}

// Not inlined: the programs have no stack left for it.
#[inline(never)]
fn judge(scratch: &Scratch, config: &Config) -> i32 {
    let target = &scratch.packet.target;
    let vip = config.vip(target);
    let slot = vip.unwrap_or(NO_SLOT);
    let decision = match vip {
        Some(_) => Decision::Reject(Verdict::RejectedProtocol),
        None => without_backend(&Kernel, config, target, false),
    };
    match decision {
        Decision::Reject(_) if may_reject(&scratch.packet) => {
            verdicts::note_drop(Verdict::RejectedProtocol, slot);
            REJECT
        }
        Decision::Reject(_) => {
            verdicts::note_drop(Verdict::DroppedProtocol, slot);
            DROP
        }
        Decision::Drop(verdict) => {
            verdicts::note_drop(verdict, slot);
            DROP
        }
        _ => NEXT,
    }
}
