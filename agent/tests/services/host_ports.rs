//! Ports of a node that a pod has (`hostPort`): reached by every kind of client, with its address, by both families; while the agent is
//! away and after it; and gone with the pod.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::client::tcp;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Netns, Sockets};
use serde_json::json;

use crate::checks::{at, check, refused};
use crate::cluster::{CLIENT, CLIENT4, Cluster, POD_PORT};
use crate::node::{attach, detach};

/// At all addresses; and only by IPv4.
const EVERYWHERE: u16 = 8_088;
const ONLY_IPV4: u16 = 8_089;

struct Ports {
    cluster: Cluster,
    _server: Server,
    _pod: Netns,
}

static PORTS: Shared<Ports> = Shared::new();

impl Fixture for Ports {
    fn build(prefix: &str) -> Self {
        let cluster = Cluster::build_with(prefix, |number| {
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

#[test]
fn a_pods_ports_of_the_node_are_served_until_it_goes() {
    let mut it = PORTS.lease();
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
