//! Each kind of address of a Service, from each kind of client, to each place of a backend, by both families.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::Sockets;
use dormouse_rig::client::{Answer, connected_udp, tcp, udp};
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use serde_json::json;

use crate::cluster::{Cluster, Origin, POD_PORT};
use crate::manifests::{End, Service, service};
use crate::node::Pod;
use crate::uplink::Uplink;

/// A cluster whose pods have an address of each family, with a default route on its nodes.
pub(crate) struct Dual {
    _servers: Vec<Server>,
    pub(crate) cluster: Cluster,
}

pub(crate) static DUAL: Shared<Dual> = Shared::new();

/// The same, with packets that the kernel forwards.
static BY_KERNEL: Shared<Dual> = Shared::built_by(|prefix| {
    Dual::build_with(prefix, Uplink::Classifier, &["--forwarding", "kernel"])
});

/// The same, with the programs of the uplinks' drivers.
pub(crate) static DRIVEN_DUAL: Shared<Dual> =
    Shared::built_by(|prefix| Dual::build_with(prefix, Uplink::Driver, &[]));

/// Where the backend is, seen from the first node and its first pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    Local,
    Remote,
    Itself,
}

const BACKENDS: [Backend; 3] = [Backend::Local, Backend::Remote, Backend::Itself];

impl Backend {
    /// Its node, and its place among the pods of that.
    const fn place(self) -> (usize, usize) {
        match self {
            Self::Local => (0, 1),
            Self::Remote => (1, 0),
            Self::Itself => (0, 0),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Local => "1b",
            Self::Remote => "2a",
            Self::Itself => "1a",
        }
    }

    /// Node port, cluster IPs, load balancer addresses.
    const fn frontends(self) -> (u16, [&'static str; 2], [&'static str; 2]) {
        match self {
            Self::Local => (
                30_051,
                ["fd00:20::51", "10.96.0.51"],
                ["fd00:30::51", "203.0.113.51"],
            ),
            Self::Remote => (
                30_052,
                ["fd00:20::52", "10.96.0.52"],
                ["fd00:30::52", "203.0.113.52"],
            ),
            Self::Itself => (
                30_053,
                ["fd00:20::53", "10.96.0.53"],
                ["fd00:30::53", "203.0.113.53"],
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    NodePort,
    /// A node port of the second node.
    OtherNodePort,
    LoadBalancer,
}

const KINDS: [Kind; 4] = [
    Kind::ClusterIp,
    Kind::NodePort,
    Kind::OtherNodePort,
    Kind::LoadBalancer,
];

impl Fixture for Dual {
    fn build(prefix: &str) -> Self {
        Self::build_with(prefix, Uplink::Classifier, &[])
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

impl Dual {
    fn build_with(prefix: &str, uplink: Uplink, more: &[&str]) -> Self {
        let mut cluster = Cluster::build_with(prefix, uplink, |number| {
            let range = format!("10.244.{number}.0/24");
            let words = ["--pod-range", "10.244.0.0/16", "--prefix4", &range];
            let words = words.iter().chain(more).map(ToString::to_string);
            words.collect()
        });
        route(&cluster);
        let servers = cluster.servers();
        let services = BACKENDS.map(|backend| to(&cluster, backend));
        cluster.apply(&services);
        Self {
            _servers: servers,
            cluster,
        }
    }
}

/// Routes to the pods of each node by IPv4, and a default route by the router.
fn route(cluster: &Cluster) {
    let nodes: Vec<Sockets> = (cluster.nodes.iter())
        .map(|node| Sockets::bare(&node.host.netns))
        .collect();
    for number in [1, 2] {
        let others = nodes.iter().zip(1..).filter(|(_, other)| *other != number);
        let others = others.map(|(sockets, _)| sockets);
        for sockets in others.chain([&cluster.client, &cluster.router]) {
            let route = format!("route add 10.244.{number}.0/24 via 192.0.2.{number}");
            sockets.run("ip", &route);
        }
    }
    let router = cluster.world.control().address;
    for node in &nodes {
        node.run("ip", "route add default via 192.0.2.12");
        node.run("ip", &format!("-6 route add default via {router}"));
    }
}

/// A Service with one backend.
fn to(cluster: &Cluster, backend: Backend) -> Service {
    let (node, pod) = backend.place();
    let pod = cluster.pod(node, pod);
    let end = |address| End {
        address,
        ..pod.end.clone()
    };
    let (port, ips, ingress) = backend.frontends();
    service(&format!("dual-{}", backend.name()), &ips, POD_PORT)
        .node_port(port)
        .balanced(&json!({}))
        .ingress(ingress[0])
        .ingress(ingress[1])
        .to(&[false, true].map(|v4| end(address(pod, v4))))
}

fn address(pod: &Pod, v4: bool) -> IpAddr {
    if !v4 {
        return pod.end.address;
    }
    let shown = pod.bare.run("ip", "-4 -o address show dev eth0");
    let (_, rest) = shown.split_once("inet ").unwrap();
    rest.split_once('/').unwrap().0.parse().unwrap()
}

impl Dual {
    fn frontend(&self, kind: Kind, backend: Backend, v4: bool) -> SocketAddr {
        let (port, ips, ingress) = backend.frontends();
        let family = usize::from(v4);
        match kind {
            Kind::ClusterIp => SocketAddr::new(ips[family].parse().unwrap(), 80),
            Kind::LoadBalancer => SocketAddr::new(ingress[family].parse().unwrap(), 80),
            Kind::NodePort => SocketAddr::new(self.node(0, v4), port),
            Kind::OtherNodePort => SocketAddr::new(self.node(1, v4), port),
        }
    }

    fn node(&self, node: usize, v4: bool) -> IpAddr {
        let node = &self.cluster.nodes[node];
        if v4 { node.address4() } else { node.address() }
    }

    /// The address that the backend sees. A pod's sockets are connected to the backend itself; packets to addresses for
    /// clients outside are masqueraded, whatever their sender, and so is what would come back to its sender.
    fn seen(&self, from: Origin, kind: Kind, backend: Backend, v4: bool) -> IpAddr {
        let pod = || address(self.cluster.pod(0, 0), v4);
        match from {
            // Only the second node knows its node ports.
            _ if kind == Kind::OtherNodePort => self.node(1, v4),
            Origin::PodSocket => pod(),
            Origin::PodPackets if kind == Kind::ClusterIp && backend != Backend::Itself => pod(),
            _ => self.node(0, v4),
        }
    }

    /// What is wrong with the answers in this cell of the table.
    fn faults(&self, from: Origin, kind: Kind, backend: Backend) -> Vec<String> {
        let mut faults = Vec::new();
        for v4 in [false, true] {
            let to = self.frontend(kind, backend, v4);
            let expected = Answer {
                name: backend.name().to_owned(),
                seen: self.seen(from, kind, backend, v4),
                from: to,
            };
            for (way, ask) in [
                ("TCP", tcp as fn(&Sockets, SocketAddr) -> _),
                ("UDP", udp),
                ("connected UDP", connected_udp),
            ] {
                let answer = ask(self.cluster.sockets(from), to);
                if answer.as_ref().ok() != Some(&expected) {
                    faults.push(format!(
                        "{from:?} {kind:?} {backend:?} {way} {to}: {answer:?}"
                    ));
                }
            }
        }
        faults
    }
}

/// Asks by all kinds of addresses, from all kinds of clients, to all backends.
fn assert_served(it: &Dual) {
    let mut faults = Vec::new();
    for kind in KINDS {
        for backend in BACKENDS {
            for from in [
                Origin::Outside,
                Origin::PodSocket,
                Origin::NodeSocket,
                Origin::PodPackets,
            ] {
                faults.extend(it.faults(from, kind, backend));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_path_is_served_by_both_families() {
    assert_served(&DUAL.lease());
}

#[test]
fn every_path_is_served_with_the_kernels_forwarding() {
    assert_served(&BY_KERNEL.lease());
}

#[test]
fn every_path_is_served_with_the_drivers_program() {
    assert_served(&DRIVEN_DUAL.lease());
}
