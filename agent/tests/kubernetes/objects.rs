//! The Services of the tests: each has a number, one port, and one EndpointSlice.

use std::net::IpAddr;

use serde_json::{Value, json};

/// The cluster IP of a Service.
pub(crate) fn vip(service: u16) -> IpAddr {
    format!("fd00:20::{service}").parse().unwrap()
}

/// The address of a host with an endpoint; its last part has the digits of the number.
pub(crate) fn backend(host: u16) -> IpAddr {
    format!("2001:db8:77::{host}").parse().unwrap()
}

/// A Service.
pub(crate) fn service(number: u16) -> Value {
    let ip = vip(number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": format!("s{number}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv6"],
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    })
}

/// The slice of a Service with these hosts.
pub(crate) fn slice(number: u16, hosts: &[u16]) -> Value {
    let endpoints: Vec<_> = hosts
        .iter()
        .map(|host| json!({"addresses": [backend(*host)], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "namespace": "shop", "name": format!("s{number}-a"),
            "labels": {"kubernetes.io/service-name": format!("s{number}")},
        },
        "ports": [{"name": "p", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}
