//! Replies of the node's pods to clients outside: they come from the VIP again. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::{FlowKey, FlowKind};
use dormouse_ebpf::packet::transport;

use super::tcx_uplink_in::refresh;
use crate::kernel::rewrite::{End, Frame, NEXT, refused, replace};
use crate::kernel::{count, tables};

#[classifier]
fn tcx_uplink_out(ctx: TcContext) -> i32 {
    leave(&ctx).unwrap_or(NEXT)
}

#[inline(always)]
fn leave(ctx: &TcContext) -> Option<i32> {
    let packet = transport(&Frame(ctx))?;
    if !tables::config()?.is_local(&packet.source) {
        return None;
    }
    let key = FlowKey::of(&packet);
    let flow = tables::FLOWS.get_ptr_mut(&key)?;
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, vip, port) = unsafe { ((*flow).kind, (*flow).address, (*flow).port) };
    if kind != FlowKind::FromPod as u32 {
        return None;
    }
    refresh(flow);
    if packet.closes()
        && let Some(forward) = tables::FLOWS.get_ptr_mut(&key.forward_to(vip, port))
    {
        count::flow_closed(forward);
    }
    Some(replace(ctx, &packet, End::Source, &vip, port).map_or_else(refused, |()| NEXT))
}
