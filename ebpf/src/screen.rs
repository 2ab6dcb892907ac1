//! The screen of the uplink: packets from outside that can never be right, whatever the node serves.
//!
//! The uplink's XDP program and its classifier apply it alike: where XDP is off, the same packets are dropped, only later.

use crate::config::Config;
use crate::ndp::is_link_local;
use crate::packet::{Packet, Read, is_link_local4, is_v4, v4_of};
use crate::verdict::Verdict;

/// Why a packet from outside is dropped; none: it is not. `is_pod`: whether an address is a pod's of this node.
#[inline(always)]
pub fn screen(
    found: Read,
    packet: &Packet,
    config: &Config,
    is_pod: impl FnOnce(&[u8; 16]) -> bool,
) -> Option<Verdict> {
    if is_spoofed(packet, config, is_pod) {
        return Some(Verdict::DroppedSpoofed);
    }
    let is_of_link = matches!(found, Read::Transport | Read::Fragment)
        && is_of_link(&packet.source)
        && config.vip(&packet.target).is_some();
    if is_of_link {
        return Some(Verdict::DroppedMartian);
    }
    invalid(found, packet)
}

/// Why a packet is dropped, wherever it comes from; none: it is not.
#[inline(always)]
pub const fn invalid(found: Read, packet: &Packet) -> Option<Verdict> {
    match found {
        Read::Malformed => Some(Verdict::DroppedMalformed),
        Read::Transport | Read::Fragment if packet.is_martian() => Some(Verdict::DroppedMartian),
        _ => None,
    }
}

/// Whether the source is a pod's of this node, or an app's VIP; endpoints of a Service may have addresses of a service range. For IPv4 only known pods are checked, because nodes have no known IPv4 prefix.
///
/// Clients here get no reply from a VIP: their sockets are connected to backends, or their packets translated on their links. Pods
/// without a program on their link may get one: another node has translated their packets.
#[inline(always)]
fn is_spoofed(packet: &Packet, config: &Config, is_pod: impl FnOnce(&[u8; 16]) -> bool) -> bool {
    let source = &packet.source;
    config.is_local(source)
        || config.unseen_pods == 0 && config.vip(source).is_some()
        || packet.v4 == 1 && is_pod(source)
}

/// Whether routers forward no packet of this source (RFC 4291 2.5.6, RFC 3927 2.7).
#[inline(always)]
fn is_of_link(source: &[u8; 16]) -> bool {
    if is_v4(source) {
        is_link_local4(v4_of(source))
    } else {
        is_link_local(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Net, Range};
    use crate::packet::mapped;

    const VIP: [u8; 16] = [0xfd, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    const POD: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    const CLIENT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const NEIGHBOR: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const POD4: [u8; 4] = [10, 1, 1, 9];

    fn config() -> Config {
        let mut config = Config {
            ranges_len: 1,
            ..Config::default()
        };
        config.ranges[0] = Range {
            prefix: VIP,
            mask: 0xfff0_0000,
            base: 0,
        };
        config.ranges[0].prefix[15] = 0;
        config.node_prefix[..12].copy_from_slice(&POD[..12]);
        config.service_ranges[0] = Net {
            prefix: mapped([10, 96, 0, 0]),
            mask: (!0_u128 << 16).to_be_bytes(),
        };
        config
    }

    fn screened(found: Read, source: [u8; 16], target: [u8; 16]) -> Option<Verdict> {
        screened_by(&config(), found, source, target)
    }

    fn screened_by(
        config: &Config,
        found: Read,
        source: [u8; 16],
        target: [u8; 16],
    ) -> Option<Verdict> {
        let packet = Packet {
            source,
            target,
            v4: is_v4(&source).into(),
            ..Packet::default()
        };
        screen(found, &packet, config, |address| *address == mapped(POD4))
    }

    #[test]
    fn sources_of_pods_here_and_vips_are_spoofed_whatever_the_packet_is() {
        let spoofed = Some(Verdict::DroppedSpoofed);
        for found in [
            Read::Transport,
            Read::Fragment,
            Read::Error,
            Read::Other,
            Read::Malformed,
        ] {
            for source in [POD, VIP, mapped(POD4)] {
                assert_eq!(screened(found, source, CLIENT), spoofed, "{source:?}");
            }
        }
        assert_eq!(screened(Read::Transport, CLIENT, VIP), None);
        let endpoint = mapped([10, 96, 3, 4]);
        assert_eq!(screened(Read::Transport, endpoint, CLIENT), None);
        assert_eq!(
            screened(
                Read::Transport,
                mapped([10, 1, 1, 8]),
                mapped([10, 96, 3, 4])
            ),
            None
        );
    }

    #[test]
    fn pods_without_a_program_get_replies_from_vips() {
        let config = Config {
            unseen_pods: 1,
            ..config()
        };
        let source = |source| screened_by(&config, Read::Transport, source, CLIENT);
        assert_eq!(source(VIP), None);
        assert_eq!(source(POD), Some(Verdict::DroppedSpoofed));
    }

    #[test]
    fn link_local_sources_reach_hosts_of_their_link_and_no_vip() {
        let martian = Some(Verdict::DroppedMartian);
        let metadata = mapped([169, 254, 169, 254]);
        assert_eq!(screened(Read::Transport, NEIGHBOR, VIP), martian);
        assert_eq!(screened(Read::Fragment, NEIGHBOR, VIP), martian);
        // A router's session, DHCPv6, a cloud's metadata service: to the node, a pod or a Service.
        let service = mapped([10, 96, 3, 4]);
        assert_eq!(screened(Read::Transport, metadata, service), None);
        assert_eq!(screened(Read::Transport, NEIGHBOR, POD), None);
        assert_eq!(screened(Read::Transport, metadata, mapped(POD4)), None);
        assert_eq!(screened(Read::Other, NEIGHBOR, VIP), None, "an echo");
    }

    #[test]
    fn malformed_packets_and_martians_are_invalid_and_neighbour_discovery_is_not() {
        assert_eq!(
            screened(Read::Malformed, CLIENT, POD),
            Some(Verdict::DroppedMalformed)
        );
        let group = [0xff; 16];
        for found in [Read::Transport, Read::Fragment] {
            assert_eq!(screened(found, group, POD), Some(Verdict::DroppedMartian));
        }
        // Duplicate address detection comes from `::`.
        assert_eq!(screened(Read::Other, [0; 16], POD), None);
    }
}
