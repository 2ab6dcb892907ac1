//! A node on which kube-proxy and another CNI plugin still are: rules that drop what the host's conntrack takes for invalid, and pods
//! behind a link that the agent does not know.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use dormouse_rig::client::{ask_connected, tcp, udp};
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Netns, Sockets, wait};
use serde_json::json;

use crate::checks::{at, check};
use crate::cluster::{CLIENT, CLIENT4, Cluster, FAR, FAR4, POD_PORT};
use crate::manifests::{Condition, End, service};

const OTHER: &str = "2001:db8:de::2";
const OTHER4: &str = "10.99.0.2";
const BALANCER: &str = "fd00:30::99";
/// A socket sends again when no answer has come after it.
const MOMENT: Duration = Duration::from_millis(100);
/// As kube-proxy's, in mode iptables and in mode nftables.
const FIREWALL: &str = "table inet kube-proxy { chain forward { type filter hook forward priority 0; ct state invalid drop; }; }";

struct Migrating {
    cluster: Cluster,
    _servers: Vec<Server>,
    _other: Netns,
}

static MIGRATING: Shared<Migrating> = Shared::new();

impl Fixture for Migrating {
    fn build(prefix: &str) -> Self {
        let cluster = Cluster::build(prefix);
        cluster.nodes[0].sockets.run("nft", FIREWALL);
        let other = pod_of_another_plugin(&cluster, 0, ("2001:db8:de", "10.99.0"));
        let mut servers = cluster.servers();
        servers.push(Server::start(
            &Sockets::bare(other.path()),
            "other",
            POD_PORT,
        ));
        Self {
            cluster,
            _servers: servers,
            _other: other,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// A pod behind a link of a node that the agent does not know, with the second addresses of these networks.
pub(crate) fn pod_of_another_plugin(
    cluster: &Cluster,
    node: usize,
    (v6, v4): (&str, &str),
) -> Netns {
    let pod = Netns::named(&format!("{}-pod-other", cluster.world.prefix()));
    let node = &cluster.nodes[node].sockets;
    let cable = format!(
        "link add other0 type veth peer name eth0 netns {}",
        pod.name()
    );
    node.run("ip", &cable);
    node.run("ip", &format!("-6 address add {v6}::1/64 dev other0 nodad"));
    node.run("ip", &format!("address add {v4}.1/24 dev other0"));
    node.run("ip", "link set other0 up");
    // As every plugin does.
    node.inside(|| {
        for name in ["ipv6/conf/all/forwarding", "ipv4/ip_forward"] {
            fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
    });
    pod.ip("link set lo up");
    pod.ip(&format!("-6 address add {v6}::2/64 dev eth0 nodad"));
    pod.ip(&format!("address add {v4}.2/24 dev eth0"));
    pod.ip("link set eth0 up");
    pod.ip(&format!("-6 route add default via {v6}::1"));
    pod.ip(&format!("route add default via {v4}.1"));
    pod
}

/// It sees its clients' addresses: replies to the node's address would be answered by the node itself.
#[test]
fn pods_of_another_plugin_on_the_node_are_reached_from_outside() {
    let mut it = MIGRATING.lease();
    let cluster = &mut it.cluster;
    let ends = [OTHER, OTHER4].map(|address| End {
        address: address.parse().unwrap(),
        node: cluster.nodes[0].host.name.clone(),
        condition: Condition::Ready,
    });
    let other = service("other", &["fd00:20::99", "10.96.0.99"], POD_PORT)
        .node_port(30_099)
        .balanced(&json!({}))
        .ingress(BALANCER)
        .to(&ends);
    cluster.apply(&[other]);
    let node = &cluster.nodes[0];
    let (v6, v4) = (node.address().to_string(), node.address4().to_string());
    for (to, clients) in [(v6.as_str(), [CLIENT, FAR]), (&v4, [CLIENT4, FAR4])] {
        for (sockets, client) in [&cluster.client, &cluster.far].into_iter().zip(clients) {
            let client: IpAddr = client.parse().unwrap();
            check(sockets, at(to, 30_099), "other", client);
        }
    }
    check(
        &cluster.far,
        at(BALANCER, 80),
        "other",
        FAR.parse().unwrap(),
    );
    let (vip, vip4) = (at("fd00:20::99", 80), at("10.96.0.99", 80));
    let pod = &cluster.pod(0, 0).sockets;
    for (sockets, to) in [(&node.sockets, vip), (&node.sockets, vip4), (pod, vip)] {
        assert_eq!(tcp(sockets, to).unwrap().name, "other", "{to}");
        assert_eq!(udp(sockets, to).unwrap().name, "other", "{to}");
    }
    // No program sees this pod's sockets: those of its link translate.
    let bare = &cluster.pod(0, 0).bare;
    assert_eq!(tcp(bare, vip).unwrap().name, "other");
}

#[test]
fn rules_that_drop_invalid_packets_do_not_meet_connections_to_pods() {
    let mut it = MIGRATING.lease();
    let cluster = &mut it.cluster;
    let ends = [cluster.end(0, 0)];
    let local = json!({"externalTrafficPolicy": "Local"});
    cluster.apply(&[
        service("masqueraded", &["fd00:20::9a"], POD_PORT)
            .node_port(30_100)
            .to(&ends),
        service("local", &["fd00:20::9b"], POD_PORT)
            .node_port(30_101)
            .with(&local)
            .to(&ends),
        service("remote", &["fd00:20::9c"], POD_PORT).to(&[cluster.end(1, 0)]),
    ]);
    let node = cluster.nodes[0].address();
    let to = |port| at(&node.to_string(), port);
    for sockets in [&cluster.client, &cluster.far] {
        check(sockets, to(30_100), "1a", node);
    }
    check(&cluster.far, to(30_101), "1a", FAR.parse().unwrap());
    // From a pod, whose sockets no program sees.
    let bare = &cluster.pod(0, 1).bare;
    for (vip, name) in [("fd00:20::9a", "1a"), ("fd00:20::9c", "2a")] {
        assert_eq!(tcp(bare, at(vip, 80)).unwrap().name, name);
    }
}

/// The replies of such a pod pass no program on their way to the node: a socket of the node gets an error instead of a backend whose
/// answers it would never see, and its next one is translated.
#[test]
fn connected_sockets_whose_backend_is_gone_are_translated_to_a_pod_of_another_plugin_or_refused() {
    let mut it = MIGRATING.lease();
    let cluster = &mut it.cluster;
    let moved = service("moved", &["fd00:20::9d"], POD_PORT);
    cluster.apply(&[moved.clone().to(&[cluster.end(1, 0)])]);
    let vip = at("fd00:20::9d", 80);
    let node = &cluster.nodes[0].sockets;
    let [in_pod, on_node] = [&cluster.pod(0, 0).sockets, node].map(|sockets| {
        let socket = sockets.datagrams(vip).unwrap();
        socket.connect(vip).unwrap();
        socket.set_read_timeout(Some(MOMENT)).unwrap();
        assert_eq!(ask_connected(&socket).unwrap().name, "2a");
        socket
    });
    let other = End {
        address: OTHER.parse().unwrap(),
        node: cluster.nodes[0].host.name.clone(),
        condition: Condition::Ready,
    };
    cluster.apply(&[moved.to(&[other])]);
    wait(
        "the pod's socket to be answered by the other plugin's",
        || ask_connected(&in_pod).is_ok_and(|answer| answer.name == "other"),
    );
    wait("the node's socket to be refused", || {
        ask_connected(&on_node).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    });
    assert_eq!(udp(&cluster.nodes[0].sockets, vip).unwrap().name, "other");
}
