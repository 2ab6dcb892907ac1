//! Clients outside: the programs of the uplink translate, in the classifier and in the driver.

use std::net::{IpAddr, SocketAddr};

use crate::checks::{at, check, check_all, refused, silent};
use crate::cluster::{CLIENT, CLIENT4, FAR, FAR4, Serving};
use crate::paths::{all, cluster};
use crate::uplink::by_each_uplink;

by_each_uplink! { cluster:
    reach_a_node_port_and_are_masqueraded_as_the_node
    reach_external_and_load_balancer_addresses
    of_a_cluster_ip_are_masqueraded_as_the_node
    keep_their_address_by_the_policy_local
    are_dropped_by_the_policy_local_where_no_backend_is_local
    are_admitted_if_they_are_in_the_source_ranges
    reach_host_network_backends_by_ipv6
    reach_host_network_backends_by_ipv4
    are_refused_at_once_by_a_service_without_endpoints
}

fn own() -> IpAddr {
    CLIENT.parse().unwrap()
}

fn reach_a_node_port_and_are_masqueraded_as_the_node(it: &Serving) {
    let (client, nodes) = (&it.cluster.client, &it.cluster.nodes);
    for node in nodes {
        let port = SocketAddr::new(node.address(), 30_015);
        check_all(client, port, &all(node.address()));
    }
}

fn reach_external_and_load_balancer_addresses(it: &Serving) {
    let masqueraded = all(it.cluster.nodes[0].address());
    check_all(&it.cluster.client, at("fd00:30::15", 80), &masqueraded);
    check_all(&it.cluster.client, at("fd00:30::25", 80), &masqueraded);
    check_all(&it.cluster.far, at("fd00:30::25", 80), &masqueraded);
}

fn of_a_cluster_ip_are_masqueraded_as_the_node(it: &Serving) {
    let (client, node) = (&it.cluster.client, it.cluster.nodes[0].address());
    check(client, at("fd00:20::11", 80), "1b", node);
    check(client, at("fd00:20::12", 80), "2a", node);
}

fn keep_their_address_by_the_policy_local(it: &Serving) {
    let (client, node) = (&it.cluster.client, it.cluster.nodes[0].address());
    check(client, SocketAddr::new(node, 30_016), "1a", own());
    check(client, at("fd00:30::16", 80), "1a", own());
    check(client, at("fd00:30::26", 80), "1a", own());
    let far = FAR.parse().unwrap();
    check(&it.cluster.far, at("fd00:30::26", 80), "1a", far);
}

fn are_dropped_by_the_policy_local_where_no_backend_is_local(it: &Serving) {
    let second = it.cluster.nodes[1].address();
    silent(&it.cluster.client, SocketAddr::new(second, 30_016));
}

fn are_admitted_if_they_are_in_the_source_ranges(it: &Serving) {
    let node = it.cluster.nodes[0].address();
    check(&it.cluster.client, at("fd00:30::27", 80), "1a", node);
    silent(&it.cluster.far, at("fd00:30::27", 80));
}

fn reach_host_network_backends_by_ipv6(it: &Serving) {
    let (client, node) = (&it.cluster.client, &it.cluster.nodes[0]);
    let both = [("h1", own()), ("h2", node.address())];
    check_all(client, SocketAddr::new(node.address(), 30_018), &both);
    check_all(client, at("fd00:30::18", 80), &both);
}

fn reach_host_network_backends_by_ipv4(it: &Serving) {
    let (client, node) = (&it.cluster.client, &it.cluster.nodes[0]);
    let both = [("h1", CLIENT4.parse().unwrap()), ("h2", node.address4())];
    check_all(client, SocketAddr::new(node.address4(), 30_018), &both);
    check_all(client, at("203.0.113.18", 80), &both);
    let both = [("h1", FAR4.parse().unwrap()), ("h2", node.address4())];
    check_all(&it.cluster.far, at("203.0.113.18", 80), &both);
}

fn are_refused_at_once_by_a_service_without_endpoints(it: &Serving) {
    let port = SocketAddr::new(it.cluster.nodes[0].address(), 30_014);
    refused(&it.cluster.client, at("fd00:20::14", 80));
    refused(&it.cluster.client, port);
}
