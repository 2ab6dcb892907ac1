//! Properties of every sequence of events, with valid and invalid objects.
#![expect(
    clippy::unwrap_used,
    reason = "a test's own objects and addresses are readable"
)]

mod mirror;

use std::net::IpAddr;

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{
    Node, NodeAddresses, NodePortAddresses, Prefix, Protocol, Services, Strictness,
};
use dormouse_agent_services_oracle::{Affinities, Decision, Fate, Packet, decide};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use dormouse_agent_services_samples::objects::{self, ADDRESSES, TestObject, World};
use mirror::Mirror;

fn node() -> Node {
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let ranges = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| Prefix::parse(text).unwrap())
            .collect()
    };
    Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: addresses(&["192.168.0.2", "2001:db8::2"]),
            local: addresses(&[
                "127.0.0.1",
                "192.168.0.2",
                "192.168.1.2",
                "::1",
                "2001:db8::2",
            ]),
        },
        pod_ranges: ranges(&["10.244.0.0/16", "fd00:10:244::/48"]),
        service_ranges: ranges(&["172.30.0.0/16", "fd00:172:30::/112"]),
        node_port_addresses: NodePortAddresses::Within(Vec::new()),
        masquerade_all: false,
    }
}

/// Every packet between the addresses that objects name.
fn packets() -> Vec<Packet> {
    let sources = [
        "203.0.113.2",
        "10.244.1.1",
        "192.168.0.2",
        "fd00:10:244:1::1",
        "198.18.0.1",
    ];
    let read = |text: &&str| text.parse::<IpAddr>().ok();
    let mut packets = Vec::new();
    for source in sources.iter().filter_map(read) {
        for destination in ADDRESSES.iter().filter_map(read) {
            for port in [80, 443, 30_080] {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    packets.push(Packet {
                        source,
                        destination,
                        port,
                        protocol,
                    });
                }
            }
        }
    }
    packets
}

fn verdicts(services: &Services) -> Vec<String> {
    let decide = |packet: &Packet| match decide(services, packet, &Affinities::default(), 0) {
        Decision::Translate(translation) => {
            let port = translation.port;
            let fates: Vec<_> = translation
                .backends()
                .map(|backend| (backend, translation.fate(backend)))
                .collect();
            assert!(!fates.is_empty(), "{packet:?} may go nowhere");
            assert!(fates.iter().all(|(backend, _)| {
                port.backends.at((backend.address, backend.port)) == Some(*backend)
            }));
            // If no backend is reachable, the packet is refused or dropped at once.
            let first = fates.first().map(|(_, fate)| *fate);
            let alike = fates.iter().all(|(_, fate)| Some(*fate) == first);
            assert!(!alike || matches!(first, Some(Fate::Deliver { .. })));
            format!("{} {fates:?}", port.id)
        }
        other => format!("{other:?}"),
    };
    packets().iter().map(decide).collect()
}

fn apply(services: &mut Services, object: &TestObject, present: bool) {
    let object = match object {
        TestObject::Service(service) => Object::Service(service),
        TestObject::Slice(slice) => Object::EndpointSlice(slice),
        TestObject::Node(node) => Object::Node(node),
    };
    services.apply(&if present {
        Event::Applied(object)
    } else {
        Event::Deleted(object)
    });
}

/// Random objects that no service is made of would prove nothing.
#[test]
fn random_events_make_services_with_backends() {
    let mut runner = TestRunner::deterministic();
    let events = prop::collection::vec(objects::event(), 40);
    let (mut ports, mut backends) = (0, 0);
    for _ in 0..20 {
        let mut services = Services::new(node(), Strictness::KubeProxy);
        for (object, present) in events.new_tree(&mut runner).unwrap().current() {
            apply(&mut services, &object, present);
        }
        services.sync();
        ports += services.ports().count();
        backends += services
            .ports()
            .map(|port| port.backends.len())
            .sum::<usize>();
    }
    assert!(ports > 60, "{ports} service ports");
    assert!(backends > 20, "{backends} backends");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn event_by_event_or_all_at_once_comes_to_the_same(
        steps in prop::collection::vec(prop::collection::vec(objects::event(), 0..8), 1..12),
        strictness in prop::sample::select(vec![Strictness::SourceRanges, Strictness::KubeProxy]),
    ) {
        let mut followed = Services::new(node(), strictness);
        let mut mirror = Mirror::default();
        let mut world = World::default();
        for step in &steps {
            for (object, present) in step {
                apply(&mut followed, object, *present);
                world.apply(object, *present);
            }
            mirror.follow(&followed.sync(), &followed);
        }
        let mut rebuilt = Services::new(node(), strictness);
        let mut fresh = Mirror::default();
        for object in world.objects() {
            apply(&mut rebuilt, object, true);
        }
        fresh.follow(&rebuilt.sync(), &rebuilt);
        prop_assert_eq!(followed.table(), rebuilt.table());
        prop_assert_eq!(verdicts(&followed), verdicts(&rebuilt));
        prop_assert_eq!(&mirror, &fresh);
        prop_assert_eq!(mirror.ports(), mirror::served(&followed));
    }

    #[test]
    fn a_sync_without_events_changes_nothing(
        events in prop::collection::vec(objects::event(), 0..12),
    ) {
        let mut services = Services::new(node(), Strictness::KubeProxy);
        for (object, present) in &events {
            apply(&mut services, object, *present);
        }
        services.sync();
        prop_assert_eq!(services.sync(), dormouse_agent_services::Changes::default());
    }

    #[test]
    fn an_event_touches_no_service_but_its_own(
        events in prop::collection::vec(objects::event(), 0..24),
        last in objects::event(),
    ) {
        let mut services = Services::new(node(), Strictness::KubeProxy);
        for (object, present) in &events {
            apply(&mut services, object, *present);
        }
        services.sync();
        apply(&mut services, &last.0, last.1);
        let changes = services.sync();
        let touched: std::collections::BTreeSet<_> = changes
            .ports
            .iter()
            .flat_map(|change| change.before().into_iter().chain(change.after()))
            .map(|port| port.id.service.clone())
            .collect();
        // A slice may leave one service for another.
        let most = match last.0 {
            TestObject::Service(_) => 1,
            TestObject::Slice(_) => 2,
            TestObject::Node(_) => usize::MAX,
        };
        prop_assert!(touched.len() <= most, "{touched:?}");
    }
}
