//! Only a packet's first fragment names its ports: they are remembered for the others.

use dormouse_ebpf::maps::{FragmentKey, Ports};
use dormouse_ebpf::packet::Packet;

use super::tables;

#[inline(always)]
const fn key(packet: &Packet) -> FragmentKey {
    FragmentKey {
        source: packet.source,
        target: packet.target,
        id: packet.id,
        // IPv6 tells fragments apart without it (RFC 8200 4.5): a later one may name an extension header there.
        protocol: if packet.v4 == 1 {
            packet.protocol as u32
        } else {
            0
        },
    }
}

/// Remembers the ports of a first fragment.
#[inline(always)]
pub(crate) fn remember(packet: &Packet) {
    let ports = Ports {
        source: packet.source_port,
        target: packet.target_port,
    };
    let _ = tables::FRAGMENTS.insert(&key(packet), &ports, 0);
}

/// Gives a later fragment the ports of its first. False if that was not seen.
#[inline(always)]
pub(crate) fn recall(packet: &mut Packet) -> bool {
    // SAFETY: the value is copied out, a single word.
    let Some(ports) = (unsafe { tables::FRAGMENTS.get(&key(packet)) }) else {
        return false;
    };
    packet.source_port = ports.source;
    packet.target_port = ports.target;
    true
}
