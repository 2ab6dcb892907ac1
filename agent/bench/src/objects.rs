//! The Services and EndpointSlices of the load. Pure.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Value, json};

/// The namespace of all objects.
const NAMESPACE: &str = "default";
/// The range of cluster IPs.
pub(crate) const SERVICE_RANGE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0);
/// Its prefix length: 2^20 addresses.
pub(crate) const SERVICE_RANGE_LEN: u8 = 108;
/// The port of each Service.
pub(crate) const SERVICE_PORT: u16 = 80;
/// Most endpoints of a Service.
pub(crate) const ENDPOINTS_MAX: u32 = 1 << NUMBER_BITS;
/// Nodes over which the endpoints are spread, each with a /96.
const NODES: u32 = 1_000;
/// Bits of an endpoint's number and of its Service's in its address; the others below the /96 are of the turn.
const NUMBER_BITS: u32 = 4;
const SERVICE_BITS: u32 = 17;
const TURN_BITS: u32 = 32 - SERVICE_BITS - NUMBER_BITS;
/// A /64 that no host of the load has: addresses of endpoints.
const ENDPOINTS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xe0, 0, 0, 0, 0, 0);
/// The port of each endpoint.
const ENDPOINT_PORT: u16 = 8_080;

/// Where Services are created.
pub(crate) fn services() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/services")
}

/// Where EndpointSlices are created.
pub(crate) fn slices() -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")
}

/// The slice of a Service.
pub(crate) fn slice_path(service: u32) -> String {
    format!("{}/{}", slices(), name(service))
}

fn name(service: u32) -> String {
    format!("service-{service}")
}

/// The cluster IP of a Service.
pub(crate) fn cluster_ip(service: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(SERVICE_RANGE.to_bits() | u128::from(service + 1))
}

/// A Service without a selector, and so with the endpoints of the load only.
pub(crate) fn service(number: u32) -> Value {
    let ip = cluster_ip(number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name(number)},
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip],
            "ports": [{"name": "http", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": ENDPOINT_PORT}],
        },
    })
}

/// The slice of a Service, with the fields that a controller writes: they are a part of what an agent reads.
pub(crate) fn slice(service: u32, endpoints: u32) -> Value {
    let name = name(service);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "ports": [{"name": "http", "protocol": "TCP", "port": ENDPOINT_PORT}],
        "endpoints": list(service, endpoints, 0),
    })
}

/// The endpoints of a Service, the first of which is the one of this turn.
pub(crate) fn list(service: u32, endpoints: u32, turn: u32) -> Vec<Value> {
    let one = |number: u32| {
        json!({
            "addresses": [address(service, number, turn)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", node(service, number, turn)),
            "zone": format!("zone-{}", number % 3),
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{}-{number}", name(service))},
        })
    };
    (0..endpoints).map(one).collect()
}

/// A merge patch that replaces the first endpoint of a slice by the one of another turn.
pub(crate) fn patch(service: u32, endpoints: u32, turn: u32) -> Value {
    json!({"endpoints": list(service, endpoints, turn)})
}

/// Address and port of the first endpoint in a turn.
pub(crate) fn first(service: u32, turn: u32) -> (IpAddr, u16) {
    (address(service, 0, turn).into(), ENDPOINT_PORT)
}

/// An address of its own for each endpoint, and for each turn of a Service's first one.
fn address(service: u32, number: u32, turn: u32) -> Ipv6Addr {
    let node = u128::from(node(service, number, turn));
    let turn = of_first(number, turn) % (1 << TURN_BITS);
    let suffix = turn << (SERVICE_BITS + NUMBER_BITS) | service << NUMBER_BITS | number;
    Ipv6Addr::from_bits(ENDPOINTS.to_bits() | node << 32 | u128::from(suffix))
}

fn node(service: u32, number: u32, turn: u32) -> u32 {
    (service + number + (of_first(number, turn) >> TURN_BITS)) % NODES
}

/// The turn, if an endpoint is the first of its Service; the others stay.
fn of_first(number: u32, turn: u32) -> u32 {
    if number == 0 { turn } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_has_an_address_of_its_own_and_only_the_first_changes_in_a_turn() {
        let addresses = |turn| -> BTreeSet<String> {
            let all = (0..100).flat_map(|service| list(service, 10, turn));
            all.map(|one| one["addresses"][0].to_string()).collect()
        };
        let (before, after) = (addresses(0), addresses(1));
        assert_eq!((before.len(), after.len()), (1_000, 1_000));
        assert_eq!(before.difference(&after).count(), 100);
        let text = format!("\"{}\"", first(7, 1).0);
        assert!(after.contains(&text) && !before.contains(&text));
    }
}
