//! Ports of a node that a pod has (`hostPort`): reached by every kind of client, with its address, by both families; while the agent is
//! away and after it; and gone with the pod.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::client::tcp;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Netns, Sockets};
use dormouse_world::enter;
use nix::net::if_::if_nametoindex;
use serde_json::{Value, json};

use crate::checks::{at, check, refused};
use crate::cluster::{CLIENT, CLIENT4, Cluster, POD_PORT};
use crate::manifests::MARK_NODE_PORT;
use crate::node::{Node, add, attach, detach};
use crate::uplink::Uplink;

/// At all addresses; and only by IPv4.
const EVERYWHERE: u16 = 8_088;
const ONLY_IPV4: u16 = 8_089;
/// A port that no pod of the fixture has.
const FREE: u16 = 8_090;

struct Ports {
    cluster: Cluster,
    _server: Server,
    _pod: Netns,
}

static PORTS: Shared<Ports> = Shared::new();

impl Fixture for Ports {
    fn build(prefix: &str) -> Self {
        let cluster = Cluster::build_with(prefix, Uplink::Classifier, |number| {
            let range = format!("10.244.{number}.0/24");
            let words = ["--pod-range", "10.244.0.0/16", "--prefix4", &range];
            words.map(str::to_owned).to_vec()
        });
        let pod = Netns::named(&format!("{prefix}-pod-1c"));
        pod.ip("link set lo up");
        let mapping = |host: u16, protocol: &str, ip: &str| json!({"hostPort": host, "containerPort": POD_PORT, "protocol": protocol, "hostIP": ip});
        let ports = json!({"portMappings": [
            mapping(EVERYWHERE, "tcp", ""),
            mapping(EVERYWHERE, "udp", ""),
            mapping(ONLY_IPV4, "tcp", "0.0.0.0"),
            mapping(ONLY_IPV4, "udp", "0.0.0.0"),
        ]});
        attach(&cluster.nodes[0], "1c", &pod, &ports);
        Self {
            _server: Server::start(&Sockets::bare(pod.path()), "1c", POD_PORT),
            _pod: pod,
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

impl Ports {
    /// Every client reaches the pod, and the pod sees its address.
    fn served(&self) {
        let cluster = &self.cluster;
        let (v6, v4) = (cluster.nodes[0].address(), cluster.nodes[0].address4());
        let at = |ip: IpAddr, port: u16| SocketAddr::from((ip, port));
        check(
            &cluster.client,
            at(v6, EVERYWHERE),
            "1c",
            CLIENT.parse().unwrap(),
        );
        check(
            &cluster.client,
            at(v4, EVERYWHERE),
            "1c",
            CLIENT4.parse().unwrap(),
        );
        check(
            &cluster.client,
            at(v4, ONLY_IPV4),
            "1c",
            CLIENT4.parse().unwrap(),
        );
        refused(&cluster.client, at(v6, ONLY_IPV4));
        for pod in [cluster.pod(0, 0), cluster.pod(1, 0)] {
            for sockets in [&pod.sockets, &pod.bare] {
                check(sockets, at(v6, EVERYWHERE), "1c", pod.end.address);
            }
        }
        assert_eq!(
            tcp(&cluster.nodes[0].sockets, at(v6, EVERYWHERE))
                .unwrap()
                .name,
            "1c"
        );
        refused(&cluster.client, at(cluster.nodes[1].address(), EVERYWHERE));
    }
}

impl Ports {
    /// A port that another pod or a Service has, or at an address that is not the node's, fails the pod, and disturbs no other.
    fn refused(&self) {
        let node = &self.cluster.nodes[0];
        let pod = Netns::named(&format!("{}-pod-1d", node.host.name));
        let own = node.address4().to_string();
        let taken = "port 8088/TCP of the node is taken by the pod with address";
        refuses(node, &pod, &one_port(EVERYWHERE, ""), taken);
        refuses(node, &pod, &one_port(EVERYWHERE, &own), taken);
        let taken = format!("port {MARK_NODE_PORT}/TCP of the node is taken by Service");
        refuses(node, &pod, &one_port(MARK_NODE_PORT, ""), &taken);
        let own6 = node.address().to_string();
        refuses(node, &pod, &one_port(MARK_NODE_PORT, &own6), &taken);
        let elsewhere = "hostIP 192.0.2.200 is no address of this node";
        refuses(node, &pod, &one_port(FREE, "192.0.2.200"), elsewhere);
        attach(node, "1d", &pod, &one_port(FREE, &own));
        detach(node, "1d");
    }
}

/// The arguments of the capability for one port, by TCP.
fn one_port(host: u16, ip: &str) -> Value {
    let port =
        json!({"hostPort": host, "containerPort": POD_PORT, "protocol": "tcp", "hostIP": ip});
    json!({"portMappings": [port]})
}

/// ADD fails with this message, and leaves nothing in the pod.
fn refuses(node: &Node, pod: &Netns, runtime: &Value, message: &str) {
    let output = add(node, "1d", pod, runtime).run();
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["code"], 11, "{error}");
    assert!(error["msg"].as_str().unwrap().contains(message), "{error}");
    let link = enter(pod.path(), || if_nametoindex("eth0")).unwrap();
    assert!(link.is_err(), "{error}");
}

#[test]
fn a_pods_ports_of_the_node_are_served_until_it_goes() {
    let mut it = PORTS.lease();
    it.served();
    it.refused();
    it.served();
    it.cluster.crash(0);
    it.served();
    it.cluster.revive_with(
        0,
        &["--pod-range", "10.244.0.0/16", "--prefix4", "10.244.1.0/24"],
    );
    it.cluster.in_force();
    it.served();
    detach(&it.cluster.nodes[0], "1c");
    refused(
        &it.cluster.client,
        at(&it.cluster.nodes[0].address().to_string(), EVERYWHERE),
    );
}
