//! Every path to a Service: which server answers, which client it sees, and which address the client sees.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::client::{get, tcp};
use dormouse_rig::shared::{Lease, Shared};
use dormouse_rig::sockets::ANSWER_LIMIT;
use serde_json::json;
use socket2::{Domain, Type};

use crate::checks::{MANY, at, check, check_all, refused, silent};
use crate::cluster::{CLIENT, Cluster, NODE_PORT, POD_PORT, SERVING, Serving};
use crate::manifests::{End, Service, service};
use crate::uplink::by_each_uplink;

/// No server listens there.
const SHUT_PORT: u16 = 9;

/// A shared cluster with the services of this file, which tests only use.
pub(crate) fn cluster(shared: &'static Shared<Serving>) -> Lease<Serving> {
    let mut lease = shared.lease();
    let services = services(&lease.cluster);
    lease.cluster.ensure(&services);
    lease
}

fn services(cluster: &Cluster) -> Vec<Service> {
    let ends = cluster.ends();
    let [a1, b1, a2, _] = [0, 1, 2, 3].map(|place| ends[place].clone());
    let nodes = cluster.nodes.iter();
    let hosts: Vec<End> = nodes.flat_map(|node| node.ends.clone()).collect();
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_116, "externalIPs": ["fd00:30::16"]});
    let client = format!("{CLIENT}/128");
    let mut services = vec![
        service("near", &["fd00:20::11"], POD_PORT).to(&[b1]),
        service("away", &["fd00:20::12"], POD_PORT).to(&[a2]),
        service("itself", &["fd00:20::13"], POD_PORT).to(std::slice::from_ref(&a1)),
        service("none", &["fd00:20::14"], POD_PORT).node_port(30_014),
        service("outer", &["fd00:20::15"], POD_PORT)
            .node_port(30_015)
            .to(&ends)
            .balanced(&json!({"externalIPs": ["fd00:30::15"]}))
            .ingress("fd00:30::25"),
        service("local", &["fd00:20::16"], POD_PORT)
            .node_port(30_016)
            .to(std::slice::from_ref(&a1))
            .balanced(&local)
            .ingress("fd00:30::26"),
        service("ranged", &["fd00:20::17"], POD_PORT)
            .node_port(30_017)
            .to(&[a1])
            .balanced(&json!({"loadBalancerSourceRanges": [client]}))
            .ingress("fd00:30::27"),
        service("hosts", &["fd00:20::18", "10.96.0.18"], NODE_PORT)
            .node_port(30_018)
            .to(&hosts)
            .with(&json!({"externalIPs": ["203.0.113.18", "fd00:30::18"]})),
        service("affinity", &["fd00:20::19"], POD_PORT)
            .node_port(30_019)
            .to(&ends)
            .with(&json!({"sessionAffinity": "ClientIP"})),
    ];
    services.extend(shut(cluster));
    services
}

/// Backends in pods and on nodes, on both nodes, at a port where no server listens.
fn shut(cluster: &Cluster) -> [Service; 4] {
    let hosts = [0, 1].map(|node| cluster.nodes[node].ends[0].clone());
    [
        ("shut-1", "fd00:20::1a", &cluster.end(0, 1)),
        ("shut-2", "fd00:20::1b", &cluster.end(1, 0)),
        ("shut-3", "fd00:20::1c", &hosts[0]),
        ("shut-4", "fd00:20::1d", &hosts[1]),
    ]
    .map(|(name, ip, end)| service(name, &[ip], SHUT_PORT).to(std::slice::from_ref(end)))
}

impl Serving {
    /// The address of the pod that asks.
    fn first_pod(&self) -> IpAddr {
        self.cluster.end(0, 0).address
    }
}

/// All pods' servers, each beside the address that it must see.
pub(crate) fn all(seen: IpAddr) -> [(&'static str, IpAddr); 4] {
    ["1a", "1b", "2a", "2b"].map(|name| (name, seen))
}

/// A pod's sockets: connect(2) and sendmsg(2) translate.
mod pods_sockets {
    use super::*;

    #[test]
    fn reach_a_cluster_ip_on_their_node() {
        let it = cluster(&SERVING);
        let pod = it.cluster.pod(0, 0);
        check(&pod.sockets, at("fd00:20::11", 80), "1b", it.first_pod());
    }

    #[test]
    fn reach_a_cluster_ip_on_the_other_node() {
        let it = cluster(&SERVING);
        let pod = it.cluster.pod(0, 0);
        check(&pod.sockets, at("fd00:20::12", 80), "2a", it.first_pod());
    }

    #[test]
    fn reach_the_pod_itself_by_its_cluster_ip() {
        let it = cluster(&SERVING);
        let pod = it.cluster.pod(0, 0);
        check(&pod.sockets, at("fd00:20::13", 80), "1a", it.first_pod());
    }

    #[test]
    fn reach_node_ports_external_and_load_balancer_addresses() {
        let it = cluster(&SERVING);
        let (pod, servers) = (it.cluster.pod(0, 0), all(it.first_pod()));
        for ip in ["fd00:30::15", "fd00:30::25"] {
            check_all(&pod.sockets, at(ip, 80), &servers);
        }
        let node = it.cluster.nodes[0].address();
        check_all(&pod.sockets, SocketAddr::new(node, 30_015), &servers);
    }
}

/// A pod's packets, of sockets that no program of a cgroup sees: the program of its link translates.
mod pods_packets {
    use super::*;

    #[test]
    fn reach_a_cluster_ip_on_their_node() {
        let it = cluster(&SERVING);
        let pod = it.cluster.pod(0, 0);
        check(&pod.bare, at("fd00:20::11", 80), "1b", it.first_pod());
    }

    #[test]
    fn reach_a_cluster_ip_on_the_other_node() {
        let it = cluster(&SERVING);
        let pod = it.cluster.pod(0, 0);
        check(&pod.bare, at("fd00:20::12", 80), "2a", it.first_pod());
    }

    #[test]
    fn reach_the_pod_itself_which_sees_the_node() {
        let it = cluster(&SERVING);
        let (pod, node) = (it.cluster.pod(0, 0), it.cluster.nodes[0].address());
        check(&pod.bare, at("fd00:20::13", 80), "1a", node);
    }

    #[test]
    fn reach_host_network_backends_on_both_nodes() {
        let it = cluster(&SERVING);
        let (pod, own) = (it.cluster.pod(0, 0), it.first_pod());
        check_all(
            &pod.bare,
            at("fd00:20::18", 80),
            &[("h1", own), ("h2", own)],
        );
    }
}

/// Processes of the node itself.
mod the_nodes_processes {
    use super::*;

    #[test]
    fn reach_cluster_ips() {
        let it = cluster(&SERVING);
        let node = &it.cluster.nodes[0];
        let (own, own4) = (node.address(), node.address4());
        check(&node.sockets, at("fd00:20::11", 80), "1b", own);
        check(&node.sockets, at("fd00:20::12", 80), "2a", own);
        let both = |own| [("h1", own), ("h2", own)];
        check_all(&node.sockets, at("fd00:20::18", 80), &both(own));
        check_all(&node.sockets, at("10.96.0.18", 80), &both(own4));
    }

    #[test]
    fn reach_node_ports_and_external_addresses() {
        let it = cluster(&SERVING);
        let node = &it.cluster.nodes[0];
        let (own, own4) = (node.address(), node.address4());
        let servers = all(own);
        check_all(&node.sockets, SocketAddr::new(own, 30_015), &servers);
        check_all(&node.sockets, at("fd00:30::15", 80), &servers);
        let both = [("h1", own4), ("h2", own4)];
        check_all(&node.sockets, SocketAddr::new(own4, 30_018), &both);
    }
}

#[test]
fn a_service_without_endpoints_refuses_pods_at_once() {
    let it = cluster(&SERVING);
    let pod = it.cluster.pod(0, 0);
    refused(&pod.sockets, at("fd00:20::14", 80));
    refused(&pod.bare, at("fd00:20::14", 80));
}

#[test]
fn a_service_without_endpoints_refuses_the_node_at_once() {
    let it = cluster(&SERVING);
    let node = &it.cluster.nodes[0];
    refused(&node.sockets, at("fd00:20::14", 80));
    refused(&node.sockets, SocketAddr::new(node.address(), 30_014));
}

by_each_uplink! { cluster:
    a_port_that_a_cluster_ip_does_not_have_is_refused
    a_backend_without_a_listener_refuses_its_clients
    an_address_of_the_service_range_without_a_service_is_silent
    health_check_ports_report_where_local_backends_are
    clients_with_session_affinity_stay_with_their_backend
}

fn a_port_that_a_cluster_ip_does_not_have_is_refused(it: &Serving) {
    refused(&it.cluster.pod(0, 0).sockets, at("fd00:20::11", 81));
    refused(&it.cluster.client, at("fd00:20::11", 81));
}

fn a_backend_without_a_listener_refuses_its_clients(it: &Serving) {
    let (pod, node) = (it.cluster.pod(0, 0), &it.cluster.nodes[0]);
    for sockets in [&pod.sockets, &pod.bare, &node.sockets, &it.cluster.client] {
        for ip in ["fd00:20::1a", "fd00:20::1b", "fd00:20::1c", "fd00:20::1d"] {
            refused(sockets, at(ip, 80));
        }
    }
}

fn an_address_of_the_service_range_without_a_service_is_silent(it: &Serving) {
    silent(&it.cluster.pod(0, 0).bare, at("fd00:20::7777", 80));
    silent(&it.cluster.client, at("fd00:20::7777", 80));
}

fn health_check_ports_report_where_local_backends_are(it: &Serving) {
    for (node, code, count) in [(0, "HTTP/1.1 200 ", 1), (1, "HTTP/1.1 503 ", 0)] {
        let port = SocketAddr::new(it.cluster.nodes[node].address(), 30_116);
        let text = get(&it.cluster.client, port, "/").unwrap();
        assert!(text.starts_with(code), "{text}");
        assert!(
            text.contains(&format!("\"localEndpoints\": {count},")),
            "{text}"
        );
    }
}

#[test]
fn a_connection_without_translation_may_have_the_ends_of_a_translated_one() {
    let it = cluster(&SERVING);
    let pod = it.cluster.pod(0, 0);
    let backend = SocketAddr::new(it.cluster.end(0, 1).address, POD_PORT);
    for (sockets, to) in [(&pod.bare, at("fd00:20::11", 80)), (&pod.sockets, backend)] {
        let socket = sockets.socket(Domain::IPV6, Type::STREAM).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&at("::", 20_000).into()).unwrap();
        socket.connect_timeout(&to.into(), ANSWER_LIMIT).unwrap();
    }
}

fn clients_with_session_affinity_stay_with_their_backend(it: &Serving) {
    let port = SocketAddr::new(it.cluster.nodes[0].address(), 30_019);
    let vip = at("fd00:20::19", 80);
    let (pod, client) = (it.cluster.pod(0, 0), &it.cluster.client);
    for (sockets, to) in [
        (client, port),
        (&pod.sockets, vip),
        (&pod.bare, vip),
        (&it.cluster.nodes[0].sockets, vip),
    ] {
        let first = tcp(sockets, to).unwrap();
        for _ in 0..MANY {
            assert_eq!(tcp(sockets, to).unwrap(), first);
        }
    }
}
