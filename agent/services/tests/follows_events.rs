//! The changes that each kind of event causes.
#![expect(clippy::unwrap_used, reason = "a test's own objects are readable")]

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{
    Changes, Node, NodeAddresses, NodePortAddresses, Problem, Protocol, ServiceKey, Services,
    Strictness, Vip,
};
use dormouse_agent_services_oracle::{Affinities, Decision, Packet, decide};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

fn services() -> Services {
    let addresses = NodeAddresses {
        primary: vec!["2001:db8::2".parse().unwrap()],
        local: vec!["2001:db8::2".parse().unwrap()],
    };
    let node = Node {
        name: "node-a".to_owned(),
        addresses,
        pod_ranges: Vec::new(),
        service_ranges: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    Services::new(node, Strictness::KubeProxy)
}

fn service(name: &str, created: &str, spec: &Value) -> core::Service {
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": created},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"],
            "ipFamilies": ["IPv6"], "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
        },
    });
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

/// A slice of a service; each endpoint is an address, a node and a zone it is meant for.
fn slice(name: &str, service: &str, endpoints: &[(&str, &str, &str)]) -> EndpointSlice {
    let endpoint = |(address, node, zone): &(&str, &str, &str)| {
        let zones = if zone.is_empty() {
            json!([])
        } else {
            json!([{"name": zone}])
        };
        json!({"addresses": [address], "nodeName": node, "hints": {"forZones": zones}})
    };
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv6", "endpoints": endpoints,
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
    });
    serde_json::from_value(object).unwrap()
}

fn node_in(zone: &str) -> core::Node {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    let object = json!({"metadata": {"name": "node-a", "labels": labels}});
    serde_json::from_value(object).unwrap()
}

fn apply_all(services: &mut Services, objects: &[Object<'_>]) -> Changes {
    for object in objects {
        assert_eq!(services.apply(&Event::Applied(*object)), []);
    }
    services.sync()
}

fn vip(text: &str) -> Vip {
    let address: std::net::SocketAddr = text.parse().unwrap();
    Vip {
        address: address.ip(),
        port: address.port(),
        protocol: Protocol::Tcp,
    }
}

fn touched(changes: &Changes) -> Vec<String> {
    let ports = changes
        .ports
        .iter()
        .filter_map(|change| change.after().or(change.before()));
    ports.map(|port| port.id.service.to_string()).collect()
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-02-01T00:00:00Z";

#[test]
fn a_change_of_zone_touches_only_services_with_hints() {
    let mut services = services();
    let a = service("a", OLD, &json!({}));
    let b = service(
        "b",
        OLD,
        &json!({"clusterIP": "fd00::2", "clusterIPs": ["fd00::2"], "ports": []}),
    );
    let hinted = slice(
        "a",
        "a",
        &[("fd01::1", "node-a", "z1"), ("fd01::2", "node-b", "z2")],
    );
    let plain = slice("b", "b", &[("fd01::3", "node-a", "")]);
    apply_all(
        &mut services,
        &[
            Object::Node(&node_in("z1")),
            Object::Service(&a),
            Object::Service(&b),
            Object::EndpointSlice(&hinted),
            Object::EndpointSlice(&plain),
        ],
    );
    let address = |services: &Services| {
        let ports = services.ports_of(&ServiceKey::new("ns", "a"));
        ports[0]
            .backends
            .iter()
            .map(|backend| backend.address.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(address(&services), ["fd01::1"]);
    let changes = apply_all(&mut services, &[Object::Node(&node_in("z2"))]);
    assert_eq!(touched(&changes), ["ns/a"]);
    assert_eq!(changes.vips, [], "backends changed, not places");
    assert_eq!(address(&services), ["fd01::2"]);
}

#[test]
fn the_older_of_two_services_wins_a_shared_address_until_it_is_deleted() {
    let mut services = services();
    let shared = json!({"externalIPs": ["2001:db8::99"]});
    let young = service("a", NEW, &shared);
    let old = service("b", OLD, &shared);
    apply_all(&mut services, &[Object::Service(&young)]);
    let place = vip("[2001:db8::99]:80");
    let owner = |services: &Services| {
        services
            .frontend(&place)
            .unwrap()
            .port
            .id
            .service
            .to_string()
    };
    assert_eq!(owner(&services), "ns/a");
    let changes = apply_all(&mut services, &[Object::Service(&old)]);
    assert_eq!(owner(&services), "ns/b");
    assert!(changes.vips.contains(&place));
    let conflicts = changes
        .problems
        .iter()
        .filter(|problem| matches!(problem, Problem::Conflict { vip, .. } if *vip == place));
    assert_eq!(conflicts.count(), 1);
    services.apply(&Event::Deleted(Object::Service(&old)));
    let changes = services.sync();
    assert_eq!(owner(&services), "ns/a");
    assert!(changes.vips.contains(&place) && changes.problems.is_empty());
}

#[test]
fn a_changed_creation_time_moves_a_shared_address() {
    let mut services = services();
    let (young, old) = (service("a", NEW, &json!({})), service("b", OLD, &json!({})));
    apply_all(
        &mut services,
        &[Object::Service(&young), Object::Service(&old)],
    );
    let remade = service("a", "2025-01-01T00:00:00Z", &json!({}));
    let changes = apply_all(&mut services, &[Object::Service(&remade)]);
    assert!(changes.vips.contains(&vip("[fd00::1]:80")));
}

#[test]
fn a_changed_health_answer_is_reported() {
    let mut services = services();
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
    let key = ServiceKey::new("ns", "a");
    let local_endpoints =
        |services: &Services| services.health_checks(&key)[1].map(|health| health.local_endpoints);
    let changes = apply_all(
        &mut services,
        &[Object::Service(&service("a", OLD, &local))],
    );
    assert_eq!(
        (changes.health, local_endpoints(&services)),
        (vec![key.clone()], Some(0))
    );
    let here = slice("a", "a", &[("fd01::1", "node-a", "")]);
    let changes = apply_all(&mut services, &[Object::EndpointSlice(&here)]);
    assert_eq!(
        (changes.health, local_endpoints(&services)),
        (vec![key.clone()], Some(1))
    );
    let more = slice(
        "a",
        "a",
        &[("fd01::1", "node-a", ""), ("fd01::2", "node-b", "")],
    );
    let changes = apply_all(&mut services, &[Object::EndpointSlice(&more)]);
    assert_eq!(
        (changes.health, local_endpoints(&services)),
        (vec![], Some(1))
    );
}

#[test]
fn node_ports_follow_the_addresses_of_the_node() {
    let mut services = services();
    apply_all(
        &mut services,
        &[Object::Service(&service("a", OLD, &json!({})))],
    );
    let (was, is) = (vip("[2001:db8::2]:30080"), vip("[2001:db8::3]:30080"));
    let changed = services.set_node_addresses(NodeAddresses {
        primary: vec![is.address],
        local: vec![was.address, is.address],
    });
    assert_eq!(changed, [was, is]);
    assert!(services.frontend(&was).is_none());
    assert!(services.frontend(&is).is_some());
}

#[test]
fn affinity_ends_with_its_timeout() {
    let mut services = services();
    let bound = json!({
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
    });
    let both = slice(
        "a",
        "a",
        &[("fd01::1", "node-a", ""), ("fd01::2", "node-b", "")],
    );
    let a = service("a", OLD, &bound);
    apply_all(
        &mut services,
        &[Object::Service(&a), Object::EndpointSlice(&both)],
    );
    let packet = Packet {
        source: "2001:db8::77".parse().unwrap(),
        destination: "fd00::1".parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
    };
    let mut affinities = Affinities::default();
    let id = services.ports().next().unwrap().id.clone();
    affinities.record(&id, packet.source, "[fd01::2]:8080".parse().unwrap(), 1_000);
    let choices = |now_ms| match decide(&services, &packet, &affinities, now_ms) {
        Decision::Translate(translation) => translation.backends().count(),
        other => panic!("{other:?}"),
    };
    assert_eq!((choices(61_000), choices(61_001)), (1, 2));
}

#[test]
fn invalid_fields_of_an_object_are_reported_and_ignored() {
    let mut services = services();
    let wrong = json!({
        "externalIPs": ["2001:db8::99", "2001:db8::x"],
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "ports": [{"port": 0}, {"port": 80}, {"port": 81}, {"port": 82, "name": "p", "protocol": "ICMP"}],
    });
    let problems = services.apply(&Event::Applied(Object::Service(&service("a", OLD, &wrong))));
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "Service ns/a: spec.externalIPs[] cannot be `2001:db8::x`",
            "Service ns/a: no entry of loadBalancerSourceRanges is a valid IPv6 range, so its IPv6 load balancer addresses \
             admit every source; add a range, or run the agent with --strict-source-ranges",
            "Service ns/a: spec.ports[].port cannot be `0`",
            "Service ns/a: spec.ports[].name cannot be ``",
            "Service ns/a: spec.ports[].protocol cannot be `ICMP`",
        ]
    );
    services.sync();
    assert_eq!(services.ports().count(), 1);
}
