//! The frame of an unsolicited Neighbour Advertisement.

use std::net::Ipv6Addr;

use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Neighbor, Solicitation, advertise};

/// An unsolicited Neighbour Advertisement (RFC 4861, 7.2.6): `target` is at `mac`. It is sent from the target's address, as
/// the target's own kernel would, like the program's answer to a solicitation from the unspecified address.
pub(super) fn advertisement(target: Ipv6Addr, mac: [u8; 6]) -> [u8; ADVERTISEMENT_LEN] {
    let unspecified = Solicitation {
        source: Ipv6Addr::UNSPECIFIED.octets(),
        mac: [0; 6],
        target: target.octets(),
    };
    let mut frame = [0; ADVERTISEMENT_LEN];
    let node = Neighbor {
        mac: &mac,
        is_router: false,
    };
    advertise(&unspecified, node, &mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertisement_is_the_one_that_rfc_4861_describes() {
        let frame = advertisement(
            "2001:db8:d0::1:1:0".parse().unwrap(),
            [0x02, 0x00, 0x5e, 0x10, 0x00, 0x01],
        );
        #[rustfmt::skip]
        let expected = [
            // Ethernet: to all nodes, from the uplink, IPv6.
            0x33, 0x33, 0, 0, 0, 1, 0x02, 0x00, 0x5e, 0x10, 0x00, 0x01, 0x86, 0xdd,
            // IPv6: 32 bytes of ICMPv6, hop limit 255, from the pod, to ff02::1.
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0x20, 0x01, 0x0d, 0xb8, 0x00, 0xd0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0,
            0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            // Neighbour Advertisement, code 0, checksum, only Override, the target.
            136, 0, 0x99, 0x78, 0x20, 0, 0, 0,
            0x20, 0x01, 0x0d, 0xb8, 0x00, 0xd0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0,
            // Target link-layer address.
            2, 1, 0x02, 0x00, 0x5e, 0x10, 0x00, 0x01,
        ];
        assert_eq!(frame, expected);
    }
}
