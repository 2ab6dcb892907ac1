//! Claims of nodes, and addresses of their pods.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;

const PREFIX: &str = "2001:db8:d0:0:0:1::/96";

fn claims() -> Claims {
    let reserved = ["fd00:10::/108", "fd00:20::/108", "2001:db8:a1::/96"];
    let reserved = reserved.map(|text| text.parse().unwrap());
    Claims::new(reserved.into(), vec!["2001:db8::c".parse().unwrap()])
}

fn claim(claims: &mut Claims, node: &str, prefix: &str, address: &str) -> Result<(), Refused> {
    let claim = Claim::parse(node, prefix, address)?;
    claims.check(node, &claim)?;
    claims.hold(node, claim);
    Ok(())
}

#[test]
fn a_node_claims_no_prefix_and_no_address_that_it_cannot_have() {
    let mut claims = claims();
    for prefix in [
        "::/0",
        "2000::/3",
        "2001:db8::/64",
        "2001:db8:d0::1/96",
        "10.0.0.0/24",
        "fe80::/96",
        "::/96",
        "2001:db8:a1::/96",
        "2001:db8:a1::7:0/112",
        "fd00:10::/96",
        "fd00:20::/112",
        "2001:db8::/96",
        &"x".repeat(2_000),
    ] {
        let refused = claim(&mut claims, "n1", prefix, "").unwrap_err();
        assert!(refused.to_string().len() < 200, "{refused}");
    }
    for address in [
        "::1",
        "::",
        "ff02::1",
        "fe80::1",
        "127.0.0.1",
        "fd00:10::7",
        "x",
    ] {
        assert!(claim(&mut claims, "n1", "", address).is_err(), "{address}");
    }
    claim(&mut claims, "n1", "", "").unwrap();
    // A node on the host of control.
    claim(&mut claims, "n1", PREFIX, "2001:db8::c").unwrap();
}

#[test]
fn the_second_node_with_a_prefix_or_an_address_is_refused_until_the_first_is_gone() {
    let mut claims = claims();
    claim(&mut claims, "n1", PREFIX, "2001:db8::1").unwrap();
    claim(&mut claims, "n1", PREFIX, "2001:db8::1").unwrap();
    for (prefix, address) in [
        (PREFIX, ""),
        ("2001:db8:d0:0:0:1::8000/113", ""),
        ("", "2001:db8::1"),
        ("", "2001:db8:d0::1:0:1"),
    ] {
        let refused = claim(&mut claims, "n2", prefix, address).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("n1") && refused.contains("n2"),
            "{refused}"
        );
    }
    claim(&mut claims, "n2", "2001:db8:d0:0:0:2::/96", "").unwrap();
    // A node moves.
    claim(&mut claims, "n1", "2001:db8:d0:0:0:3::/96", "2001:db8::3").unwrap();
    claim(&mut claims, "n3", PREFIX, "2001:db8::1").unwrap();
    claims.release("n3");
    claim(&mut claims, "n4", PREFIX, "2001:db8::1").unwrap();
}

#[test]
fn a_pod_has_an_address_of_its_nodes_prefix_only() {
    let mut claims = claims();
    claim(&mut claims, "n1", PREFIX, "2001:db8::1").unwrap();
    claim(&mut claims, "n2", "2001:db8:d0:0:0:2::/96", "2001:db8::2").unwrap();
    claim(&mut claims, "n3", "", "").unwrap();
    let is_pods = |node: &str, address: &str, host_network| {
        let place = claims.place_of(node);
        let address = address.parse().unwrap();
        claims
            .check_pod((node, &place), address, host_network)
            .is_ok()
    };
    for other in [
        "::1",
        "fd00:10::7",
        "fd00:20::7",
        "2001:db8:a1::7",
        "2001:db8::c",
        "2001:db8:d0::2:0:7",
        "fd00:ec2::254",
        "127.0.0.1",
    ] {
        for node in ["n1", "n3", "gone"] {
            for host_network in [false, true] {
                assert!(!is_pods(node, other, host_network), "{node} {other}");
            }
        }
    }
    assert!(is_pods("n1", "2001:db8:d0::1:0:7", false));
    assert!(!is_pods("n1", "2001:db8::1", false));
    assert!(is_pods("n1", "2001:db8::1", true));
    assert!(!is_pods("n1", "2001:db8:d0::1:0:7", true));
    assert!(is_pods("n1", "10.0.0.7", false));
    // Another plugin gives the pods of this node their addresses.
    assert!(is_pods("n3", "2001:db8:9::7", false));
}

#[test]
fn a_service_answers_outside_at_no_address_of_control_or_of_pods() {
    let mut claims = claims();
    claim(&mut claims, "n1", PREFIX, "2001:db8::1").unwrap();
    for (address, want) in [
        ("2001:db8::c", false),
        ("fd00:10::7", false),
        ("fd00:20::1", false),
        ("2001:db8:a1::1", false),
        ("2001:db8:d0::1:0:0", false),
        ("2001:db8:d0::1:ffff:ffff", false),
        ("::1", false),
        ("169.254.169.254", false),
        ("2001:db8:d0::2:0:0", true),
        ("2001:db8::1", true),
        ("192.0.2.7", true),
    ] {
        let allowed = claims.check_external(address.parse().unwrap());
        assert_eq!(allowed.is_ok(), want, "{address}: {allowed:?}");
    }
}

proptest! {
    #[test]
    fn a_node_with_a_prefix_gives_all_its_addresses_and_no_other(bits: u128, low: u32) {
        let mut claims = claims();
        claim(&mut claims, "n1", PREFIX, "").unwrap();
        let place = claims.place_of("n1");
        let check = |bits| claims.check_pod(("n1", &place), Ipv6Addr::from_bits(bits).into(), false);
        let prefix: Prefix = PREFIX.parse().unwrap();
        let IpAddr::V6(first) = prefix.first() else { unreachable!() };
        prop_assert!(check(first.to_bits() | u128::from(low)).is_ok());
        let is_inside = bits >> 32 == first.to_bits() >> 32;
        prop_assert_eq!(check(bits).is_ok(), is_inside);
    }

    #[test]
    fn no_two_nodes_have_prefixes_that_overlap(all in proptest::collection::vec((0u8..5, 0u128..4, 96u8..=100, 0u128..16), 1..40)) {
        let mut claims = Claims::default();
        let mut held: BTreeMap<u8, Prefix> = BTreeMap::new();
        for (node, high, length, low) in all {
            let host = u128::MAX >> length;
            let bits = (0x2001_0db8 << 96 | high << 32 | low << 28) & !host;
            let prefix: Prefix = format!("{}/{length}", Ipv6Addr::from_bits(bits)).parse().unwrap();
            let name = format!("n{node}");
            let free = held.iter().all(|(other, one)| *other == node || !one.overlaps(&prefix));
            prop_assert_eq!(claim(&mut claims, &name, &prefix.to_string(), "").is_ok(), free);
            if free {
                held.insert(node, prefix);
            }
        }
    }
}
