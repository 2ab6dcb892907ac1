//! What a node uses, by flags and by what its Node object says.

use serde_json::{Value, json};

use super::*;
use crate::profile::named;

const ADDRESS: &str = "2001:db8::1";
const ADDRESS4: &str = "192.0.2.1";

fn described(cidrs: &[&str], addresses: &[&str]) -> Described {
    Described {
        name: "n1".to_owned(),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
        addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        in_metadata: None,
    }
}

fn local() -> Vec<IpAddr> {
    vec![ADDRESS.parse().unwrap(), ADDRESS4.parse().unwrap()]
}

fn chosen(profile: &str, described: &Described) -> Result<Place, Missing> {
    let profile = named(profile).unwrap();
    choose(&Given::default(), profile, "n1", Some(described), &local())
}

fn ranges(profile: &str, cidrs: &[&str]) -> Result<PodRanges, NoPods> {
    chosen(profile, &described(cidrs, &[ADDRESS])).unwrap().pods
}

fn prefix(text: &str) -> NodePrefix {
    text.parse().unwrap()
}

#[test]
fn the_object_is_read_with_both_families_and_internal_addresses_only() {
    let of = |spec: Value| {
        let addresses = json!([
            {"type": "Hostname", "address": "n1"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
            {"type": "InternalIP", "address": ADDRESS},
            {"type": "InternalIP", "address": ADDRESS4},
        ]);
        let node =
            json!({"metadata": {"name": "n1"}, "spec": spec, "status": {"addresses": addresses}});
        Described::of(&serde_json::from_value(node).unwrap())
    };
    let both = ["10.244.7.0/24", "2001:db8:7::/64"];
    let wanted = described(&both, &[ADDRESS, ADDRESS4]);
    assert_eq!(of(json!({"podCIDR": both[0], "podCIDRs": both})), wanted);
    assert_eq!(of(json!({"podCIDR": both[0]})).pod_cidrs, [both[0]]);
    assert_eq!(of(json!({})).pod_cidrs, [""; 0]);
}

#[test]
fn of_a_range_of_64_bits_or_fewer_the_node_uses_the_first_96() {
    for (cidr, delivered) in [
        ("2001:db8:7::/64", "2001:db8:7::/64"),
        ("2001:db8:7::/56", "2001:db8:7::/64"),
        ("2001:db8:7::/80", "2001:db8:7::/80"),
        ("2001:db8:7::/96", "2001:db8:7::/96"),
    ] {
        let ranges = ranges("routed", &[cidr]).unwrap();
        assert_eq!(ranges.prefix, prefix("2001:db8:7::/96"), "{cidr}");
        assert_eq!(ranges.delivered, prefix(delivered), "{cidr}");
        assert_eq!(ranges.range4, None);
    }
    // The rest of the link's network is not the node's.
    let on_link = ranges("on-link", &["2001:db8:7::/64"]).unwrap();
    assert_eq!(on_link.delivered, prefix("2001:db8:7::/96"));
}

#[test]
fn both_families_are_used() {
    let ranges = ranges("routed", &["10.244.7.0/24", "2001:db8:7::/64"]).unwrap();
    assert_eq!(ranges.range4, Some("10.244.7.0/24".parse().unwrap()));
    let place = chosen(
        "routed",
        &described(&["2001:db8:7::/64"], &[ADDRESS4, ADDRESS]),
    )
    .unwrap();
    assert_eq!(place.address, ADDRESS.parse().ok());
    assert_eq!(place.address4, ADDRESS4.parse().ok());
}

#[test]
fn without_an_ipv6_range_only_services_are_served() {
    let place = chosen("routed", &described(&["10.244.7.0/24"], &[ADDRESS4])).unwrap();
    assert!(
        matches!(place.pods, Err(NoPods::NoIpv6 { .. })),
        "{place:?}"
    );
    assert_eq!(
        (place.address, place.address4),
        (None, ADDRESS4.parse().ok())
    );
    for wrong in ["2001:db8:7::/112", "nonsense", "2001:db8:7::/129"] {
        let error = ranges("routed", &[wrong]).unwrap_err().to_string();
        assert!(
            error.contains(wrong) && error.contains("only Services"),
            "{error}"
        );
    }
}

#[test]
fn without_an_ipv6_range_the_prefix_of_the_own_address_is_used_where_the_network_assigns_it() {
    for (cidrs, range4) in [
        (&[][..], None),
        (&["10.244.7.0/24"], "10.244.7.0/24".parse().ok()),
    ] {
        let object = described(cidrs, &[ADDRESS]);
        let place = chosen("gcp", &object).unwrap();
        let used = place.pods.clone().unwrap();
        assert_eq!(used.prefix, prefix("2001:db8::/96"));
        assert_eq!((used.delivered, used.range4), (used.prefix, range4));
        let given = Given::default();
        assert_eq!(
            changed(&given, named("gcp").unwrap(), &place, &object),
            None
        );
        // The object's range counts first.
        let both = described(&["2001:db8:7::/96"], &[ADDRESS]);
        let place = chosen("gcp", &both).unwrap();
        assert_eq!(place.pods.unwrap().prefix, prefix("2001:db8:7::/96"));
    }
    let missing = chosen("gcp", &described(&[], &[ADDRESS4])).unwrap_err();
    let text = missing.to_string();
    assert!(
        text.contains("podCIDRs") && text.contains("--network-profile gcp"),
        "{text}"
    );
    // A cluster without IPv6.
    let place = chosen("gcp", &described(&["10.244.7.0/24"], &[ADDRESS4])).unwrap();
    assert!(
        matches!(place.pods, Err(NoPods::NoIpv6 { .. })),
        "{place:?}"
    );
}

#[test]
fn without_an_ipv6_range_the_prefix_of_the_metadata_is_used_where_the_network_has_it_there() {
    let told = |cidrs: &[&str]| Described {
        in_metadata: Some("2001:db8:9::/80".to_owned()),
        ..described(cidrs, &[ADDRESS])
    };
    for cidrs in [&[][..], &["10.244.7.0/24"]] {
        let place = chosen("aws", &told(cidrs)).unwrap();
        let ranges = place.pods.clone().unwrap();
        assert_eq!(ranges.delivered, prefix("2001:db8:9::/80"));
        assert_eq!(ranges.range4.is_some(), !cidrs.is_empty());
        // The object does not have it.
        let object = described(cidrs, &[ADDRESS]);
        let now = changed(&Given::default(), named("aws").unwrap(), &place, &object);
        assert_eq!(now, None);
    }
    let given = told(&["2001:db8:7::/80"]);
    let ranges = chosen("aws", &given).unwrap().pods.unwrap();
    assert_eq!(ranges.delivered, prefix("2001:db8:7::/80"));
    assert!(matches!(
        chosen("aws", &described(&[], &[ADDRESS])),
        Err(Missing::Metadata { .. })
    ));
    assert!(matches!(
        chosen("routed", &told(&[])),
        Err(Missing::PodCidrs(_))
    ));
}

#[test]
fn what_is_missing_is_named() {
    for (cidrs, addresses, wanted) in [
        (&[][..], &[ADDRESS][..], "podCIDRs"),
        (&["2001:db8:7::/64"], &[], "InternalIP"),
        (&["2001:db8:7::/64"], &[ADDRESS4], "InternalIP"),
        (&["10.244.7.0/24"], &[], "InternalIP"),
        (&["2001:db8:7::/64"], &["2001:db8::2"], "2001:db8::2"),
        (&["10.244.7.0/24"], &["192.0.2.2"], "192.0.2.2"),
    ] {
        let missing = chosen("routed", &described(cidrs, addresses))
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains(wanted) && missing.contains("n1"),
            "{missing}"
        );
        assert!(missing.contains("give --"), "{missing}");
    }
    let nothing = choose(
        &Given::default(),
        named("routed").unwrap(),
        "n1",
        None,
        &local(),
    );
    assert_eq!(nothing, Err(Missing::Node("n1".to_owned())));
}

#[test]
fn flags_count_before_the_object() {
    let given = Given {
        prefix: Some(GivenPrefix::Delivered(prefix("2001:db8:9::/96"))),
        address: "2001:db8::9".parse().ok(),
        ..Given::default()
    };
    assert!(!given.needs_node());
    let profile = named("routed").unwrap();
    let object = described(&["2001:db8:7::/64", "10.244.7.0/24"], &[ADDRESS, ADDRESS4]);
    let place = choose(&given, profile, "n1", Some(&object), &local()).unwrap();
    let ranges = place.pods.unwrap();
    assert_eq!(
        (ranges.prefix, ranges.range4),
        (prefix("2001:db8:9::/96"), None)
    );
    assert_eq!(place.address, given.address);
    let alone = choose(&given, profile, "n1", None, &[]).unwrap();
    assert_eq!(alone.address, given.address);
    let none = Given {
        prefix: Some(GivenPrefix::None),
        ..given
    };
    let place = choose(&none, profile, "n1", None, &[]).unwrap();
    assert_eq!(place.pods, Err(NoPods::Asked));
}

#[test]
fn another_range_and_an_overlap_with_the_uplinks_network_are_problems() {
    let profile = named("routed").unwrap();
    let object = described(&["2001:db8:7::/64"], &[ADDRESS]);
    let given = Given::default();
    let place = chosen("routed", &object).unwrap();
    let found = |profile, object: &Described, network: &str| {
        let networks = [Prefix::parse(network).unwrap()];
        let found = problems(&given, profile, &place, object, &networks).into_iter();
        found.map(|problem| problem.reason).collect::<Vec<_>>()
    };
    assert_eq!(found(profile, &object, "2001:db8:1::/64"), [""; 0]);
    assert_eq!(
        found(profile, &object, "2001:db8:7::/64"),
        ["PodCIDROverlap"]
    );
    assert_eq!(
        found(profile, &object, "2001:db8:7::5/128"),
        ["PodCIDROverlap"]
    );
    assert_eq!(
        found(named("on-link").unwrap(), &object, "2001:db8:7::/64"),
        ["PodCIDRChanged"]
    );
    let other = described(&["2001:db8:8::/64"], &[ADDRESS]);
    assert_eq!(
        found(profile, &other, "2001:db8:1::/64"),
        ["PodCIDRChanged"]
    );
    // A Node that was created again has none at first.
    assert_eq!(
        found(profile, &described(&[], &[]), "2001:db8:1::/64"),
        [""; 0]
    );
}

#[test]
fn a_usable_range_after_an_unusable_one_is_a_change() {
    let profile = named("routed").unwrap();
    let (given, without) = (Given::default(), described(&["10.244.7.0/24"], &[ADDRESS]));
    let place = chosen("routed", &without).unwrap();
    let note = |cidr: &str| {
        let found = changed(&given, profile, &place, &described(&[cidr], &[ADDRESS]));
        found.map(|problem| problem.note)
    };
    assert_eq!(note("10.244.7.0/24"), None);
    assert_eq!(note("2001:db8:7::/112"), None);
    let text = note("2001:db8:7::/64").unwrap();
    assert!(text.contains("2001:db8:7::/64"), "{text}");
    // A flag is no answer of the object.
    assert!(place.pods.unwrap_err().is_by_object() && !NoPods::Asked.is_by_object());
}

#[test]
fn of_the_objects_addresses_those_of_this_machine_are_primary() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let (own, elsewhere) = (address(ADDRESS), address("192.0.2.2"));
    let object = described(&[], &[ADDRESS, "192.0.2.2"]);
    let mut given = Given::default();
    assert_eq!(given.primary(Some(&object), &local()), [own]);
    let moved = [&local()[..], &[elsewhere]].concat();
    assert_eq!(given.primary(Some(&object), &moved), [own, elsewhere]);
    given.address4 = ADDRESS4.parse().ok();
    assert_eq!(
        given.primary(Some(&object), &moved),
        [own, address(ADDRESS4)]
    );
}

#[test]
fn the_copy_is_read_for_the_same_node_only() {
    let folder = tempfile::tempdir().unwrap();
    let object = described(&["2001:db8:7::/64"], &[ADDRESS]);
    assert_eq!(saved::load(folder.path(), "n1"), None);
    saved::save(folder.path(), &object).unwrap();
    assert_eq!(saved::load(folder.path(), "n1"), Some(object));
    assert_eq!(saved::load(folder.path(), "n2"), None);
    saved::remove(folder.path()).unwrap();
    saved::remove(folder.path()).unwrap();
    assert_eq!(saved::load(folder.path(), "n1"), None);
}
