//! The addresses that a host can have for others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds outside the link-local addresses: AWS's network, and Google's, Azure's and Alibaba's addresses.
const METADATA6: [(Ipv6Addr, u32); 2] = [
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
];
const METADATA4: [Ipv4Addr; 2] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
];

/// Why no node and no pod has an address: control, which connects to it, would reach its own host, its link, or the host of an
/// embedded IPv4 address. None: a node or a pod can have it. Of IPv6, these are global unicast and unique local addresses only.
pub fn unusable(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => unusable4(address),
        IpAddr::V6(address) => unusable6(address),
    }
}

fn unusable4(address: Ipv4Addr) -> Option<&'static str> {
    let first = address.octets()[0];
    if first == 0 {
        Some("is in 0.0.0.0/8")
    } else if address.is_loopback() {
        Some("is a loopback address")
    } else if address.is_link_local() {
        Some("is a link-local address")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if first >= 240 {
        Some("is in 240.0.0.0/4")
    } else if METADATA4.contains(&address) {
        Some("is that of a cloud's metadata service")
    } else {
        None
    }
}

fn unusable6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let is_global = segments[0] & 0xe000 == 0x2000;
    let in_network = |(network, length): &(Ipv6Addr, u32)| {
        (network.to_bits() ^ address.to_bits()) >> (128 - length) == 0
    };
    if address.is_loopback() {
        Some("is a loopback address")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address.is_unicast_link_local() {
        Some("is a link-local address")
    } else if !is_global && !address.is_unique_local() {
        Some("is neither a global unicast nor a unique local address")
    } else if segments[0] == 0x2002 || segments[..2] == [0x2001, 0] {
        Some("has an IPv4 address embedded")
    } else if METADATA6.iter().any(in_network) {
        Some("is that of a cloud's metadata service")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_unicast_addresses_of_other_hosts_can_be_used() {
        for usable in ["2001:db8::7", "fd00::7", "fc00::1", "10.0.0.7", "192.0.2.1"] {
            assert_eq!(unusable(usable.parse().unwrap()), None, "{usable}");
        }
        for other in [
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
        ] {
            assert!(unusable(other.parse().unwrap()).is_some(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_ipv4_address_can_be_used_by_an_ipv6_form_of_it(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let nat64 = Ipv6Addr::from_bits((0x64_ff9b << 96) | u128::from(bits));
            let sixto4 = Ipv6Addr::from_bits((0x2002 << 112) | (u128::from(bits) << 80));
            for form in [address.to_ipv6_mapped(), address.to_ipv6_compatible(), nat64, sixto4] {
                prop_assert!(unusable(form.into()).is_some(), "{}", form);
            }
        }
    }
}
