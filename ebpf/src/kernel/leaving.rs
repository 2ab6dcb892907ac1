//! What leaves by the uplink or reaches a pod: an answer has the name that its client knows.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_local;
use dormouse_ebpf::flow::{ACTIVATED, Flow, FlowKey, SERVICE};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, FIRST, Frame as _, L3, Read, mapped};
use dormouse_ebpf::verdict::Verdict;

use super::follow::follow;
use super::nat::Way;
use super::send::{NEXT, dropped};
use super::skb::frame;
use super::standing::is_reply;
use super::tables::{Kernel, Scratch};
use super::{errors, fragments, tables};

/// What leaves by the uplink: an answer has the name that its client knows, and addresses that only a service could have
/// lead nowhere.
#[inline(always)]
pub(crate) fn out(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    let Some(config) = tables::config() else {
        return NEXT;
    };
    let verdict = named_again(ctx, scratch, found, config);
    if verdict == NEXT && config.is_service_address(&scratch.packet.target) {
        return dropped(Verdict::DroppedUnallocated, NO_SLOT);
    }
    verdict
}

/// What reaches a pod: only the node itself can have answered to a name that no other hook has seen.
#[inline(always)]
pub(crate) fn into_pod(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    match tables::config() {
        Some(config) => named_again(ctx, scratch, found, config),
        None => NEXT,
    }
}

/// Whether a packet may need another name: the node sent it, or a pod whose own link no program sees. Looked at before
/// anything else, since most of what leaves is neither.
#[inline(always)]
pub(crate) fn is_unseen(ctx: &TcContext) -> bool {
    let Some(config) = tables::config() else {
        return false;
    };
    let Some(source) = source(ctx) else {
        return false;
    };
    // SAFETY: a field of the context; only what the node sends itself has come in nowhere.
    let came_in = unsafe { (*ctx.skb.skb).ingress_ifindex } != 0;
    // What came in from a pod was seen there; what the node gave its own address on the way was not.
    if came_in && config.unseen_pods == 0 {
        return is_local(&Kernel, config, &source);
    }
    if let Some(pod) = tables::PODS.get_ptr(&source) {
        // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
        return unsafe { (*pod).seen } == 0;
    }
    is_local(&Kernel, config, &source)
}

/// Where an IP packet comes from.
#[inline(always)]
fn source(ctx: &TcContext) -> Option<[u8; 16]> {
    let frame = frame(ctx);
    match frame.ethertype()? {
        ETHERTYPE_IPV4 => frame.load(L3 + 12).map(|bytes| mapped(bytes.0)),
        ETHERTYPE_IPV6 => frame.load(L3 + 8).map(|bytes| bytes.0),
        _ => None,
    }
}

/// Gives what the node sends the name that its client knows, and leads what a socket still sends to a backend that is
/// gone to the one that took its place.
#[inline(always)]
fn named_again(ctx: &TcContext, scratch: &mut Scratch, found: Read, config: &Config) -> i32 {
    match found {
        Read::Transport => {}
        Read::Fragment if fragments::recall(&mut scratch.packet) => {}
        Read::Error => return errors::translate(ctx, scratch, config, Way::Out),
        _ => return NEXT,
    }
    if scratch.packet.fragment == FIRST {
        fragments::remember(&scratch.packet);
    }
    scratch.key = FlowKey::of(&scratch.packet);
    match tables::flow(&scratch.key) {
        Some(flow) if is_reply(flow) || is_led_anew(flow) => {
            follow(ctx, scratch, flow, config, Way::Out)
        }
        _ => NEXT,
    }
}

/// The flow leads what a socket of the node sends: only such flows begin on the way out.
#[inline(always)]
fn is_led_anew(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).kind & !(SERVICE | ACTIVATED) == 0 }
}
