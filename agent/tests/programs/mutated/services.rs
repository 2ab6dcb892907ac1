//! The Services of the node of the mutated packets.

use std::net::{IpAddr, Ipv4Addr};

use dormouse_agent_services::Services;
use dormouse_agent_services_samples::recorded;
use dormouse_rig::address::{CLIENT, FAR_POD};
use serde_json::{Value, json};

use super::super::direct::{FAR4, NEIGHBOR, NEIGHBOR4};
use super::world::{AWAY, AWAY4, CLIENT4, NODE_PORT, PORT, RANGED, RANGED4, SERVICE, SERVICE4};

/// By each family: a Service with a load balancer and a backend here, and one with a backend on another node.
pub(super) fn add(services: &mut Services) {
    let (neighbor4, far4) = (Ipv4Addr::from(NEIGHBOR4), Ipv4Addr::from(FAR4));
    let six = balanced(RANGED.into(), &format!("{CLIENT}/128"));
    let four = balanced(RANGED4.into(), &format!("{CLIENT4}/32"));
    let inside = || (json!({"type": "ClusterIP"}), json!({}));
    let all: [(_, IpAddr, IpAddr, _); 4] = [
        ("six", SERVICE.into(), NEIGHBOR.into(), six),
        ("four", SERVICE4.into(), neighbor4.into(), four),
        ("six-away", AWAY.into(), FAR_POD.into(), inside()),
        ("four-away", AWAY4.into(), far4.into(), inside()),
    ];
    for (name, address, backend, kind) in all {
        add_service(services, name, (address, backend), kind);
    }
}

/// What makes a Service one with node ports and a load balancer that admits this range: of its spec, and its status.
fn balanced(address: IpAddr, range: &str) -> (Value, Value) {
    (
        json!({"type": "LoadBalancer", "loadBalancerSourceRanges": [range]}),
        json!({"loadBalancer": {"ingress": [{"ip": address}]}}),
    )
}

/// Adds a Service with this cluster IP and its only backend.
fn add_service(
    services: &mut Services,
    name: &str,
    (address, backend): (IpAddr, IpAddr),
    (mut spec, status): (Value, Value),
) {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let has_node_ports = spec["type"] != "ClusterIP";
    let names = ["TCP", "UDP", "SCTP"];
    let ports = names.map(|name| {
        let mut port = json!({"name": name.to_lowercase(), "protocol": name, "port": PORT, "targetPort": 8_000});
        if has_node_ports {
            port["nodePort"] = NODE_PORT.into();
        }
        port
    });
    let targets =
        names.map(|name| json!({"name": name.to_lowercase(), "protocol": name, "port": 8_000}));
    for (key, value) in [
        ("clusterIP", json!(address)),
        ("clusterIPs", json!([address])),
        ("ipFamilies", json!([family])),
        ("ports", json!(ports)),
    ] {
        spec[key] = value;
    }
    let service = json!({
        "kind": "Service",
        "metadata": {"namespace": "default", "name": name},
        "spec": spec,
        "status": status,
    });
    let slice = json!({
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "endpoints": [{"addresses": [backend], "conditions": {"ready": true}}],
        "ports": targets,
    });
    for object in [service, slice] {
        recorded::apply_object(services, true, &object);
    }
}
