//! Random Services.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::objects::{TestObject, addresses, metadata, mostly, number, protocol, read, words};

/// The families of a Service and its cluster IPs, mostly of a kind.
fn cluster_ips() -> impl Strategy<Value = (Vec<&'static str>, Vec<&'static str>)> {
    let good = (select(vec![0, 1]), select(vec![0, 1, 2, 2, 2])).prop_map(|(number, kind)| {
        let v4 = ("IPv4", ["172.30.0.1", "172.30.0.2"][number]);
        let v6 = ("IPv6", ["fd00:172:30::1", "fd00:172:30::2"][number]);
        let both = [vec![v4], vec![v6], vec![v4, v6]];
        both[kind].iter().copied().unzip()
    });
    let families = prop::collection::vec(select(vec!["IPv4", "IPv6", "IPv5"]), 0..3);
    prop_oneof![12 => good, 1 => (families, addresses(3))]
}

fn policy() -> impl Strategy<Value = Value> {
    mostly(&["Cluster", "Cluster", "Local"], &["-", "Nearby"])
}

fn service_port() -> impl Strategy<Value = Value> {
    let name = mostly(&["", "http"], &["-", "dns"]);
    (name, protocol(), number(), prop::option::of(number())).prop_map(
        |(name, protocol, port, node_port)| {
            json!({"name": name, "protocol": protocol, "port": port, "nodePort": node_port})
        },
    )
}

/// Random Services, some of them invalid.
pub fn service() -> impl Strategy<Value = TestObject> {
    let types = mostly(
        &["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"],
        &["ExternalName", "-"],
    );
    let ranges = select(vec![
        "10.0.0.0/8",
        " 203.0.113.0/25",
        "0.0.0.0/0",
        "fd00::/8",
        "x",
        "1.1.1.1/99",
    ]);
    let ranges = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(ranges, 0..3)];
    let ports = prop::collection::vec(service_port(), 0..6);
    let modes = words(&["-", "VIP", "Proxy"]);
    let affinity = (
        words(&["None", "ClientIP", "-"]),
        prop::option::of(-1..90_000i32),
    );
    (
        (metadata(&["a", "b"]), types, ports, ranges),
        (cluster_ips(), addresses(2), addresses(2), modes),
        (
            policy(),
            policy(),
            affinity,
            prop::option::weighted(0.8, number()),
        ),
    )
        .prop_map(
            |(
                head,
                ((families, ips), external, ingress, mode),
                (inside, outside, affinity, health),
            )| {
                let (metadata, kind, ports, ranges) = head;
                let ingress = ingress.iter().map(|ip| json!({"ip": ip, "ipMode": mode}));
                let ingress: Vec<_> = ingress.collect();
                read(
                    TestObject::Service,
                    json!({
                        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                        "spec": {
                            "type": kind, "clusterIP": ips.first().copied(), "clusterIPs": ips,
                            "ipFamilies": families, "ports": ports, "externalIPs": external,
                            "loadBalancerSourceRanges": ranges, "healthCheckNodePort": health,
                            "internalTrafficPolicy": inside, "externalTrafficPolicy": outside,
                            "sessionAffinity": affinity.0,
                            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": affinity.1}},
                        },
                        "status": {"loadBalancer": {"ingress": ingress}},
                    }),
                )
            },
        )
}
