//! IP fragments: the first one has the ports, which the map `fragment` keeps for the later ones.

use dormouse_ebpf::maps::{FragmentKey, Ports};
use dormouse_ebpf::packet::Packet;

use super::tables;

#[inline(always)]
const fn key(packet: &Packet) -> FragmentKey {
    FragmentKey {
        source: packet.source,
        target: packet.target,
        id: packet.id,
        // IPv6 reassembles without it (RFC 8200 4.5): in a later fragment it may be an extension header's number.
        protocol: if packet.v4 == 1 {
            packet.protocol as u32
        } else {
            0
        },
    }
}

/// Stores the ports of a first fragment.
#[inline(always)]
pub(crate) fn store_ports(packet: &Packet) {
    let ports = Ports {
        source: packet.source_port,
        target: packet.target_port,
    };
    let _ = tables::FRAGMENTS.insert(&key(packet), &ports, 0);
}

/// Gives a later fragment the ports of its first one. False if that was not seen.
#[inline(always)]
pub(crate) fn load_ports(packet: &mut Packet) -> bool {
    // SAFETY: the value is copied out, a single word.
    let Some(ports) = (unsafe { tables::FRAGMENTS.get(&key(packet)) }) else {
        return false;
    };
    packet.source_port = ports.source;
    packet.target_port = ports.target;
    true
}
