//! Source ranges of Services at the uplink's XDP program: connections that the classifier would drop for them are dropped before.

use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::outside_source_ranges;
use dormouse_ebpf::packet::WHOLE;

use super::nat::is_left;
use super::tables::{Kernel, Scratch};

/// The slot of the Service whose source ranges do not hold the source of a packet without a flow. A fragment is the classifier's: it
/// keeps the ports for the later ones.
#[inline(never)]
pub(crate) fn excluded(scratch: &mut Scratch, config: &Config) -> Option<u32> {
    let packet = &scratch.packet;
    if packet.fragment != WHOLE || is_left(packet, config) {
        return None;
    }
    scratch.request.source = packet.source;
    scratch.request.target = packet.target;
    scratch.request.port = packet.target_port;
    scratch.request.protocol = packet.protocol;
    outside_source_ranges(&Kernel, config, &scratch.request, &mut scratch.choice)
}
