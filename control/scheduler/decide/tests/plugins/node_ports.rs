//! NodePorts: a host port is free.
//!
//! Sources: the API reference of ContainerPort; "Scheduler Configuration" (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, incoming, one_of, spec};
use crate::reference::{Reference, check};

const ANY_ADDRESS: &str = "0.0.0.0";

pub(crate) struct NodePorts;

impl Reference for NodePorts {
    fn plugin(&self) -> Plugin {
        Plugin::NodePorts
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let used: Vec<_> = cluster.pods_on(node).flat_map(host_ports).collect();
        let is_taken = |port: &HostPort| used.iter().any(|other| conflict(port, other));
        host_ports(pod)
            .iter()
            .any(is_taken)
            .then_some(Code::Unschedulable)
    }
}

/// A port, its protocol and its address.
type HostPort = (i32, String, String);

fn conflict(one: &HostPort, other: &HostPort) -> bool {
    let overlap = one.2 == other.2 || [&one.2, &other.2].into_iter().any(|ip| ip == ANY_ADDRESS);
    (one.0, &one.1) == (other.0, &other.1) && overlap
}

/// Those of the containers that run as long as the pod.
fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let inits = spec(pod).init_containers.iter().flatten();
    let sidecars = inits.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let ports = spec(pod)
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|one| one.ports.iter().flatten());
    let or = |field: &Option<String>, default: &str| match field.as_deref() {
        None | Some("") => default.to_owned(),
        Some(given) => given.to_owned(),
    };
    let host_port = ports.filter(|port| port.host_port.is_some_and(|number| number > 0));
    host_port
        .map(|port| {
            (
                port.host_port.unwrap(),
                or(&port.protocol, "TCP"),
                or(&port.host_ip, ANY_ADDRESS),
            )
        })
        .collect()
}

fn port() -> impl Strategy<Value = Value> {
    let port = prop::option::weighted(0.8, one_of(&[80, 81, 443]));
    let protocol = prop::option::of(one_of(&["TCP", "UDP", "SCTP"]));
    let ip = prop::option::of(one_of(&[
        "",
        "0.0.0.0",
        "127.0.0.1",
        "10.0.0.7",
        "::",
        "::1",
    ]));
    (port, protocol, ip).prop_map(|(host_port, protocol, ip)| {
        json!({"containerPort": 80, "hostPort": host_port, "protocol": protocol, "hostIP": ip})
    })
}

/// A template of a pod with host ports.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    (array(port(), 2), array(port(), 2), array(port(), 2)).prop_map(|(container, init, sidecar)| {
        json!({"spec": {
            "containers": [{"name": "c", "ports": container}],
            "initContainers": [{"name": "i", "ports": init},
                {"name": "s", "ports": sidecar, "restartPolicy": "Always"}]}})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]
    #[test]
    fn host_ports_conflict_as_documented(
        cluster in cluster(Just(json!({})), pod()),
        pod in incoming(pod()),
    ) {
        check(&NodePorts, &Value::Null, &cluster, &pod)?;
    }
}
