//! Services' source ranges in the uplink's driver: a packet that the classifier would drop for its source is dropped before the kernel
//! has a socket buffer. It changes no table but the counters.

use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Tables as _, is_out_of_range};
use dormouse_ebpf::flow::Flow;
use dormouse_ebpf::packet::WHOLE;

use super::env::Hook;
use super::nat::{continues, is_left, request};
use super::scratch::Scratch;
use super::tables::Kernel;

/// Whether a packet from outside, of TCP, UDP or SCTP, is not of the connection of its flow, and its source is in none of its frontend's source
/// ranges. `scratch.choice.slot` is then the frontend's. For packets to other addresses it costs one filter word.
///
/// Fragments are left to the classifier, which drops the later ones by the ports of the first: it has to see that one.
#[inline(always)]
pub(crate) fn refuses(scratch: &mut Scratch, flow: Option<*mut Flow>, config: &Config) -> bool {
    let packet = &scratch.packet;
    if packet.fragment != WHOLE || !Kernel.in_frontend_filter(&packet.target) {
        return false;
    }
    let is_decided = match flow {
        Some(flow) => !continues(packet, flow),
        None => !is_left(packet, config),
    };
    if !is_decided {
        return false;
    }
    request(scratch, Hook::Uplink);
    is_out_of_range(&Kernel, &scratch.request, &mut scratch.choice)
}
