//! The frame that says where a pod is.

use std::net::Ipv6Addr;

/// Ethernet, IPv6 and the advertisement with its one option, in bytes.
pub(super) const ADVERTISEMENT_LEN: usize = 86;
const ICMP_START: usize = 54;
const ICMP_LEN: u8 = 32;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const NEXT_HEADER_ICMPV6: u8 = 58;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Override without Solicited and Router: the address is ours, nobody asked, and a pod is no router.
const FLAGS: u8 = 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// An unsolicited Neighbour Advertisement (RFC 4861, 7.2.6): `target` is at `mac`. Sent from the target itself, as its
/// own kernel would.
pub(super) fn advertisement(target: Ipv6Addr, mac: [u8; 6]) -> [u8; ADVERTISEMENT_LEN] {
    let mut frame = [0; ADVERTISEMENT_LEN];
    frame[0..6].copy_from_slice(&ALL_NODES_MAC);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[19] = ICMP_LEN;
    frame[20] = NEXT_HEADER_ICMPV6;
    frame[21] = 255;
    frame[22..38].copy_from_slice(&target.octets());
    frame[38..54].copy_from_slice(&ALL_NODES.octets());
    frame[54] = NEIGHBOR_ADVERTISEMENT;
    frame[58] = FLAGS;
    frame[62..78].copy_from_slice(&target.octets());
    frame[78] = TARGET_LINK_LAYER_ADDRESS;
    frame[79] = 1;
    frame[80..86].copy_from_slice(&mac);
    let checksum = checksum(&frame);
    frame[56..58].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Over the pseudo header (both addresses, length, next header) and the message.
fn checksum(frame: &[u8; ADVERTISEMENT_LEN]) -> u16 {
    let words = frame[22..].chunks_exact(2);
    let sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let mut sum = sum + u32::from(ICMP_LEN) + u32::from(NEXT_HEADER_ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

const _: () = assert!(ICMP_START + ICMP_LEN as usize == ADVERTISEMENT_LEN);

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
