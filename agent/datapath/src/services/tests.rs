//! The maps give the same decisions as the Services themselves, after any changes; a new agent changes nothing.

mod bench;
mod properties;
mod scale;
mod tables;
mod turns;

use std::net::SocketAddr;

use dormouse_agent_services::Strictness;
use dormouse_ebpf::maps::{FRONTEND_CLUSTER_IP, FRONTEND_EXTERNAL_IP, FRONTEND_VIP};
use dormouse_ebpf::service::Mode;
use serde_json::json;

use super::frontends::{address_key, key};
use super::group::Role;
use bench::{Bench, endpoint, service, slice, vip};

/// Ids and generations of the backends of a VIP, by address.
fn rows(bench: &Bench, at: &str) -> Vec<(String, u32, u16)> {
    let set = bench.arrays().slot(bench.internal(at)).1;
    let mut members = Vec::new();
    crate::pool::members(bench.arrays(), set, &mut members);
    let row = |member: &crate::pool::Member| {
        let (address, port) = member.row.key;
        let id = member.id.unwrap();
        let generation = bench.arrays().backend(id).unwrap().generation;
        (
            SocketAddr::new(super::frontends::address(address), port).to_string(),
            id,
            generation,
        )
    };
    members.iter().map(row).collect()
}

#[test]
fn the_first_port_of_a_cluster_ip_has_the_direct_slot_and_the_others_are_in_the_hash() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    bench.apply(&service("s", "172.30.0.7", &json!({"ports": ports})));
    bench.apply(&slice("s", "a", &[endpoint("10.244.1.1", true)]));
    bench.serve();
    let registry = bench.registry();
    let direct = registry.direct_slot("172.30.0.7".parse().unwrap()).unwrap();
    assert_eq!(bench.internal("172.30.0.7:80"), direct);
    assert_eq!(
        registry
            .frontends
            .get(&key(&vip("172.30.0.7:80"), FRONTEND_VIP)),
        None
    );
    assert!(
        registry
            .frontends
            .get(&key(&vip("172.30.0.7:81"), FRONTEND_VIP))
            .is_some()
    );
    bench.apply(&service(
        "s",
        "172.30.0.7",
        &json!({"ports": [{"name": "b", "port": 81}]}),
    ));
    bench.serve();
    assert_eq!(
        bench.arrays().slot(direct).0,
        super::backend_set::shut(None),
        "it is still served"
    );
    bench.delete(&service("s", "172.30.0.7", &json!({})));
    bench.serve();
    assert_eq!(bench.arrays().slot(direct).0.pack(), 0);
    assert_eq!(bench.used(), [0; 3]);
}

#[test]
fn a_cluster_ip_outside_of_the_ranges_has_an_address_entry() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    bench.apply(&service("s", "10.9.9.9", &json!({})));
    bench.serve();
    let known = address_key("10.9.9.9".parse().unwrap(), FRONTEND_CLUSTER_IP);
    assert_eq!(bench.registry().frontends.get(&known), Some(1));
    bench.delete(&service("s", "10.9.9.9", &json!({})));
    bench.serve();
    assert_eq!(bench.registry().frontends.len(), bench.locals());
}

#[test]
fn an_external_address_has_an_entry_while_a_service_has_it() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let external = json!({"externalIPs": ["192.0.2.50"]});
    bench.apply(&service("s", "10.9.9.9", &external));
    bench.apply(&service("t", "10.9.9.8", &external));
    bench.serve();
    let known = address_key("192.0.2.50".parse().unwrap(), FRONTEND_EXTERNAL_IP);
    assert_eq!(bench.registry().frontends.get(&known), Some(1));
    bench.delete(&service("s", "10.9.9.9", &external));
    bench.serve();
    assert_eq!(bench.registry().frontends.get(&known), Some(1));
    bench.restart();
    assert_eq!(bench.registry().frontends.get(&known), Some(1));
    bench.delete(&service("t", "10.9.9.8", &external));
    bench.serve();
    assert_eq!(bench.registry().frontends.len(), bench.locals());
}

#[test]
fn a_backend_keeps_its_row_as_long_as_it_is_listed_and_loses_its_generation_at_once() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let (one, two) = (endpoint("10.244.1.1", true), endpoint("10.244.2.2", true));
    bench.apply(&service("s", "172.30.0.7", &json!({})));
    bench.apply(&slice("s", "", &[one.clone(), two.clone()]));
    bench.serve();
    let before = rows(&bench, "172.30.0.7:80");
    let unready = endpoint("10.244.2.2", false);
    bench.apply(&slice("s", "", &[one.clone(), unready.clone()]));
    bench.serve();
    assert_eq!(
        rows(&bench, "172.30.0.7:80"),
        before,
        "its connections continue"
    );
    let set = bench.arrays().slot(bench.internal("172.30.0.7:80")).1;
    assert_eq!((set.count, set.leaving), (1, 1));
    bench.restart();
    assert_eq!(rows(&bench, "172.30.0.7:80"), before, "also past a restart");
    bench.apply(&slice("s", "", &[one]));
    bench.serve();
    assert_eq!(rows(&bench, "172.30.0.7:80"), before[..1]);
    let (_, id, generation) = before[1].clone();
    assert_ne!(bench.arrays().backend(id).unwrap().generation, generation);
    bench.apply(&slice("s", "", &[unready]));
    bench.serve();
    assert_eq!(
        rows(&bench, "172.30.0.7:80"),
        [],
        "one that was never ready has no connections"
    );
}

#[test]
fn nothing_is_removed_before_all_sources_are_synced() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let all = [endpoint("10.244.1.1", true), endpoint("10.244.2.2", true)];
    bench.apply(&service("s", "172.30.0.7", &json!({})));
    bench.apply(&service("t", "172.30.0.8", &json!({})));
    bench.apply(&slice("s", "", &all));
    bench.serve();
    let before = (bench.snapshot(), rows(&bench, "172.30.0.7:80"));
    bench.restart_empty();
    bench.apply(&service("s", "172.30.0.7", &json!({})));
    bench.serve();
    assert_eq!(bench.snapshot(), before.0, "its slices may still arrive");
    bench.apply(&slice("s", "", &all[..1]));
    bench.serve();
    assert_eq!(rows(&bench, "172.30.0.7:80"), before.1);
    bench.settle();
    assert_eq!(rows(&bench, "172.30.0.7:80"), before.1[..1]);
    let gone = bench
        .registry()
        .direct_slot("172.30.0.8".parse().unwrap())
        .unwrap();
    assert_eq!(bench.arrays().slot(gone).0.pack(), 0);
    assert_eq!(bench.used()[0], 1);
}

#[test]
fn the_api_servers_backends_stay_when_its_endpoints_vanish() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    bench.apply(&service("kubernetes", "172.30.0.1", &json!({})));
    bench.apply(&slice("kubernetes", "", &[endpoint("192.168.7.7", true)]));
    bench.serve();
    bench.settle();
    let before = bench.snapshot();
    bench.apply(&slice("kubernetes", "", &[]));
    bench.serve();
    assert_eq!(bench.snapshot(), before);
    bench.restart();
    assert_eq!(bench.snapshot(), before);
    bench.apply(&slice("kubernetes", "", &[endpoint("192.168.7.8", true)]));
    bench.serve();
    let rows = rows(&bench, "172.30.0.1:80");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0, "192.168.7.8:8080");
}

#[test]
fn source_ranges_apply_to_the_load_balancers_addresses_only() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let spec = json!({
        "type": "LoadBalancer", "externalIPs": ["198.18.0.2"],
        "loadBalancerSourceRanges": ["203.0.113.0/24", "192.168.0.0/16"],
    });
    let mut object = service("s", "172.30.0.7", &spec);
    bench::balance(&mut object, &["198.18.0.1"]);
    bench.apply(&object);
    bench.apply(&slice("s", "", &[endpoint("10.244.1.1", true)]));
    bench.serve();
    for (source, target, wanted) in [
        ("203.0.113.9", "198.18.0.1:80", true),
        ("203.0.114.9", "198.18.0.1:80", false),
        ("203.0.114.9", "198.18.0.2:80", true),
        ("198.18.0.1", "198.18.0.1:80", true),
        ("198.18.0.2", "198.18.0.1:80", false),
    ] {
        assert_eq!(
            bench.is_served(source, target),
            wanted,
            "{source} to {target}"
        );
    }
    assert_eq!(bench.registry().source_ranges.len(), 3);
    bench.restart();
    assert!(!bench.is_served("203.0.114.9", "198.18.0.1:80"));
    bench.delete(&object);
    bench.serve();
    assert_eq!(bench.registry().source_ranges.len(), 0);
}

#[test]
fn a_service_port_without_room_is_reported_and_the_others_are_served() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let many: Vec<_> = (0..70_000_u32)
        .map(|n| {
            endpoint(
                &format!("10.{}.{}.{}", 1 + (n >> 16), n >> 8 & 255, n & 255),
                true,
            )
        })
        .collect();
    bench.apply(&service("big", "172.30.0.7", &json!({})));
    bench.apply(&slice("big", "", &many));
    bench.apply(&service("s", "172.30.0.8", &json!({})));
    bench.apply(&slice("s", "", &[endpoint("10.244.1.1", true)]));
    let served = bench.serve();
    let shed: Vec<_> = served
        .shed
        .iter()
        .map(|(id, _)| id.service.name.to_string())
        .collect();
    assert_eq!(shed, ["big"]);
    assert!(bench.is_served("10.244.3.3", "172.30.0.8:80"));
    assert_eq!(bench.used()[0], 1, "none of it is left");
    bench.apply(&slice("big", "", &many[..2]));
    assert!(bench.serve().shed.is_empty());
    assert!(bench.is_served("10.244.3.3", "172.30.0.7:80"));
}

#[test]
fn the_older_of_two_services_wins_a_shared_address_and_the_other_gets_it_next() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let old = bench::created(
        service("old", "172.30.0.7", &json!({})),
        "2026-01-01T00:00:00Z",
    );
    let young = bench::created(
        service("young", "172.30.0.7", &json!({})),
        "2026-02-01T00:00:00Z",
    );
    bench.apply(&young);
    bench.apply(&slice("young", "", &[endpoint("10.244.1.1", true)]));
    bench.serve();
    bench.apply(&old);
    bench.serve();
    let slot = bench.internal("172.30.0.7:80");
    assert_eq!(
        bench.arrays().slot(slot).0.mode,
        Mode::Reject,
        "the older has no endpoint"
    );
    assert_eq!(
        bench.registry().groups.iter().count(),
        1,
        "no VIP points to the younger"
    );
    bench.delete(&old);
    bench.serve();
    assert!(bench.is_served("10.244.3.3", "172.30.0.7:80"));
    bench.check();
}

#[test]
fn sources_inside_the_cluster_have_their_own_slot_where_policy_local_differs() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let spec = json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "ports": [{"port": 80, "nodePort": 30_080}],
    });
    bench.apply(&service("s", "172.30.0.7", &spec));
    bench.apply(&slice("s", "", &[endpoint("10.244.1.1", true)]));
    bench.serve();
    assert!(bench.is_served("10.244.3.3", "192.168.0.2:30080"));
    assert!(!bench.is_served("203.0.113.1", "192.168.0.2:30080"));
    let group = *bench.registry().groups.iter().next().unwrap();
    let external = group.slot(Role::External).unwrap();
    let options = bench.registry().slot_options.get(&external).unwrap();
    assert_eq!(Some(options.internal_slot), group.slot(Role::Inside));
    assert_eq!(options.affinity_s, 10_800);
    assert_eq!(options.group, group.slot(Role::Internal).unwrap() + 1);
    bench.apply(&service("s", "172.30.0.7", &json!({"type": "NodePort"})));
    bench.serve();
    assert_eq!(bench.registry().slot_options.get(&external), None);
    bench.check();
}

#[test]
fn old_affinity_entries_do_not_apply_after_affinity_was_switched_off() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let mut number = |affinity: &str| {
        bench.apply(&service(
            "s",
            "172.30.0.7",
            &json!({"sessionAffinity": affinity}),
        ));
        bench.serve();
        bench.restart();
        let slot = bench.internal("172.30.0.7:80");
        bench
            .registry()
            .slot_options
            .get(&slot)
            .map(|options| options.group)
    };
    assert_eq!(number("None"), None, "no client had affinity");
    let first = number("ClientIP");
    assert_eq!(number("ClientIP"), first);
    number("None");
    assert_ne!(number("ClientIP"), first);
}

#[test]
fn a_backend_that_was_away_keeps_its_connections_but_not_its_affinity() {
    let mut bench = Bench::new(Strictness::KubeProxy);
    let spec = json!({"sessionAffinity": "ClientIP"});
    bench.apply(&service("s", "172.30.0.7", &spec));
    let mut seen = Vec::new();
    for time in 0..16 {
        let endpoints = [
            endpoint("10.244.1.1", time % 2 == 0),
            endpoint("10.244.2.2", true),
        ];
        bench.apply(&slice("s", "", &endpoints));
        bench.serve();
        bench.restart();
        bench.check();
        let mut rows = rows(&bench, "172.30.0.7:80");
        rows.retain(|(address, ..)| address.starts_with("10.244.1.1"));
        seen.push(rows.into_iter().map(|(_, id, _)| id).collect::<Vec<_>>());
    }
    let counts: Vec<_> = seen.iter().map(Vec::len).collect();
    assert_eq!(counts[..5], [1, 1, 2, 2, 3]);
    assert_eq!(seen[0], seen[1]);
    for later in &seen[2..5] {
        assert!(later.contains(&seen[0][0]), "its connections continue");
    }
    let most = counts.into_iter().max();
    assert_eq!(most, Some(5), "one for clients, some for connections");
}
