//! Pods of another CNI plugin on another node, which an overlay network carries: the route to them is not one by the uplink.

use std::fs;

use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Netns, Sockets};

use crate::checks::{at, check};
use crate::cluster::{Cluster, POD_PORT};
use crate::manifests::{Condition, End, service};
use crate::migration::pod_of_another_plugin;

const OTHER: &str = "2001:db8:df::2";
const OTHER4: &str = "10.98.0.2";
const NODE_PORT: u16 = 30_140;

struct Overlaid {
    cluster: Cluster,
    _server: Server,
    _other: Netns,
}

static OVERLAID: Shared<Overlaid> = Shared::new();

impl Fixture for Overlaid {
    fn build(prefix: &str) -> Self {
        let cluster = Cluster::build(prefix);
        for (node, peer) in [(0, 1), (1, 0)] {
            tunnel(&cluster, node, peer);
        }
        let first = &cluster.nodes[0].sockets;
        first.run("ip", "-6 route add 2001:db8:df::/64 via fd00:77::2");
        first.run("ip", "route add 10.98.0.0/24 via 172.16.77.2");
        let other = pod_of_another_plugin(&cluster, 1, ("2001:db8:df", "10.98.0"));
        let server = Server::start(&Sockets::bare(other.path()), "other", POD_PORT);
        Self {
            cluster,
            _server: server,
            _other: other,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// A VXLAN from a node to another one, as flannel has.
fn tunnel(cluster: &Cluster, node: usize, peer: usize) {
    let remote = cluster.nodes[peer].address4();
    let node_sockets = &cluster.nodes[node].sockets;
    let link = format!("link add vx0 type vxlan id 7 dstport 8472 remote {remote} dev eth0");
    let number = node + 1;
    for command in [
        link.as_str(),
        &format!("-6 address add fd00:77::{number}/64 dev vx0 nodad"),
        &format!("address add 172.16.77.{number}/24 dev vx0"),
        "link set vx0 up",
    ] {
        node_sockets.run("ip", command);
    }
    // As every plugin does.
    node_sockets.inside(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
}

#[test]
fn pods_of_another_plugin_are_reached_through_an_overlay_by_a_node_port_of_another_node() {
    let mut it = OVERLAID.lease();
    let cluster = &mut it.cluster;
    let ends = [OTHER, OTHER4].map(|address| End {
        address: address.parse().unwrap(),
        node: cluster.nodes[1].host.name.clone(),
        condition: Condition::Ready,
    });
    cluster.apply(&[
        service("carried", &["fd00:20::a0", "10.96.0.160"], POD_PORT)
            .node_port(NODE_PORT)
            .to(&ends),
    ]);
    let node = &cluster.nodes[0];
    for address in [node.address(), node.address4()] {
        let port = at(&address.to_string(), NODE_PORT);
        check(&cluster.client, port, "other", address);
    }
}
