//! The Services as manifests for the agent. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::services::{NAMESPACE, SERVICE_PORT, Service, Services};

/// Every Service and its EndpointSlice, as one YAML stream of JSON documents.
pub(super) fn documents(services: &Services) -> String {
    let mut text = String::new();
    for object in services.all.iter().flat_map(|s| [service(s), slice(s)]) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "---\n{object}");
    }
    text
}

fn service(service: &Service) -> Value {
    let target = service.backends.first().map(std::net::SocketAddrV6::port);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": service.name, "namespace": NAMESPACE },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": service.vip.to_string(),
            "clusterIPs": [service.vip.to_string()],
            "ipFamilies": ["IPv6"],
            "ipFamilyPolicy": "SingleStack",
            "selector": { "app": service.name },
            "ports": [{
                "name": "http",
                "protocol": "TCP",
                "port": SERVICE_PORT,
                "targetPort": target,
            }],
        },
    })
}

fn slice(service: &Service) -> Value {
    let endpoints: Vec<_> = service
        .backends
        .iter()
        .map(|backend| {
            json!({
                "addresses": [backend.ip().to_string()],
                "conditions": { "ready": true, "serving": true, "terminating": false },
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-1", service.name),
            "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": service.name },
        },
        "addressType": "IPv6",
        "endpoints": endpoints,
        "ports": [{
            "name": "http",
            "protocol": "TCP",
            "port": service.backends.first().map(std::net::SocketAddrV6::port),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::super::services::example;
    use super::*;

    #[test]
    fn each_service_is_followed_by_its_slice() {
        let text = documents(&example(4));
        let objects: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| serde_json::from_str(document).unwrap())
            .collect();
        assert_eq!(objects.len(), 8);
        assert_eq!(objects[4]["spec"]["clusterIP"], "fd00:20::3");
        let slice = &objects[5];
        let of = &slice["metadata"]["labels"]["kubernetes.io/service-name"];
        assert_eq!(of, &objects[4]["metadata"]["name"]);
        assert_eq!(slice["endpoints"].as_array().unwrap().len(), 2);
        assert_eq!(
            slice["ports"][0]["name"],
            objects[4]["spec"]["ports"][0]["name"]
        );
    }
}
