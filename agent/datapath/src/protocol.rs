//! Names of IP protocols, as tcpdump writes them and packet filters take them.

use std::borrow::Cow;

use dormouse_ebpf::packet::{ICMP, ICMPV6, SCTP, TCP, UDP};

/// Protocols that a node's packets have, by number.
const NAMES: [(u8, &str); 11] = [
    (ICMP, "icmp"),
    (2, "igmp"),
    (TCP, "tcp"),
    (UDP, "udp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (ICMPV6, "icmp6"),
    (89, "ospf"),
    (112, "vrrp"),
    (SCTP, "sctp"),
];

/// The lower-case name of an IP protocol number; of one without a name, the number.
pub fn protocol_name(number: u8) -> Cow<'static, str> {
    let named = NAMES.iter().find(|(known, _)| *known == number);
    named.map_or_else(|| number.to_string().into(), |(_, name)| (*name).into())
}

/// The IP protocol number of a name, in any case.
pub fn protocol_number(name: &str) -> Option<u8> {
    let named = NAMES
        .iter()
        .find(|(_, known)| known.eq_ignore_ascii_case(name));
    named.map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_its_number() {
        for (number, name) in NAMES {
            assert_eq!(protocol_name(number), name);
            assert_eq!(protocol_number(&name.to_uppercase()), Some(number));
        }
        assert_eq!(
            (protocol_name(58), protocol_name(1)),
            ("icmp6".into(), "icmp".into())
        );
        assert_eq!(protocol_name(253), "253");
        assert_eq!(
            (protocol_number("253"), protocol_number("any")),
            (None, None)
        );
    }
}
