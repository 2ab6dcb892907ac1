//! Every way to a Service: who answers, whom they see, and whom the client sees.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;
use socket2::{Domain, Type};

use crate::acts::Acts;
use crate::checks::{MANY, REFUSED_WITHIN, at, check, check_all, refused, silent};
use crate::client::{get, tcp};
use crate::manifests::{End, service};
use crate::server::{Server, servers};
use crate::stage::{CLIENT, CLIENT4, FAR, FAR4, NODE_PORT, POD_PORT, Stage};

/// Nobody listens there.
const SHUT_PORT: u16 = 9;

/// The stage with servers in all pods and on both nodes, and the services of this file.
pub(crate) struct Paths {
    pub(crate) stage: Stage,
    _servers: Vec<Server>,
}

impl Paths {
    pub(crate) fn set() -> Self {
        let mut stage = Stage::set();
        let servers = servers(&stage);
        serve(&mut stage);
        Self {
            stage,
            _servers: servers,
        }
    }

    pub(crate) fn play(&self, acts: &mut Acts) {
        self.pods(acts);
        self.packets(acts);
        self.outside(acts);
        self.node(acts);
        self.refusals(acts);
        self.rest(acts);
    }
}

/// Backends in pods and on nodes, here and there, at a port where nobody listens.
fn shut(stage: &mut Stage) {
    let ends = stage.ends();
    let hosts = [0, 1].map(|node| stage.nodes[node].ends[0].clone());
    for (name, ip, end) in [
        ("shut-1", "fd00:20::1a", &ends[1]),
        ("shut-2", "fd00:20::1b", &ends[2]),
        ("shut-3", "fd00:20::1c", &hosts[0]),
        ("shut-4", "fd00:20::1d", &hosts[1]),
    ] {
        stage.manifests.note(
            &service(name, &[ip], SHUT_PORT).to(std::slice::from_ref(end)),
            None,
        );
    }
}

fn serve(stage: &mut Stage) {
    let ends = stage.ends();
    let [a1, b1, a2, _] = [0, 1, 2, 3].map(|place| ends[place].clone());
    let hosts: Vec<End> = stage
        .nodes
        .iter()
        .flat_map(|node| node.ends.clone())
        .collect();
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_116, "externalIPs": ["fd00:30::16"]});
    let client = format!("{CLIENT}/128");
    let services = [
        (service("near", &["fd00:20::11"], POD_PORT).to(&[b1]), None),
        (service("away", &["fd00:20::12"], POD_PORT).to(&[a2]), None),
        (
            service("own", &["fd00:20::13"], POD_PORT).to(std::slice::from_ref(&a1)),
            None,
        ),
        (
            service("none", &["fd00:20::14"], POD_PORT).node_port(30_014),
            None,
        ),
        (
            service("outer", &["fd00:20::15"], POD_PORT)
                .node_port(30_015)
                .to(&ends)
                .balanced(&json!({"externalIPs": ["fd00:30::15"]})),
            Some("fd00:30::25"),
        ),
        (
            service("kept", &["fd00:20::16"], POD_PORT)
                .node_port(30_016)
                .to(std::slice::from_ref(&a1))
                .balanced(&local),
            Some("fd00:30::26"),
        ),
        (
            service("ranged", &["fd00:20::17"], POD_PORT)
                .node_port(30_017)
                .to(&[a1])
                .balanced(&json!({"loadBalancerSourceRanges": [client]})),
            Some("fd00:30::27"),
        ),
        (
            service("hosts", &["fd00:20::18", "10.96.0.18"], NODE_PORT)
                .node_port(30_018)
                .to(&hosts)
                .with(&json!({"externalIPs": ["203.0.113.18", "fd00:30::18"]})),
            None,
        ),
        (
            service("sticky", &["fd00:20::19"], POD_PORT)
                .node_port(30_019)
                .to(&ends)
                .with(&json!({"sessionAffinity": "ClientIP"})),
            None,
        ),
    ];
    shut(stage);
    for (service, ingress) in &services {
        stage.manifests.note(service, *ingress);
    }
    stage.apply(&[]);
}

impl Paths {
    fn address(&self, node: usize, pod: usize) -> IpAddr {
        self.stage.pod(node, pod).end.address
    }

    fn pods(&self, acts: &mut Acts) {
        let (a1, a1_address) = (&self.stage.pod(0, 0).place, self.address(0, 0));
        acts.play("a pod's sockets reach a cluster IP on their node", || {
            check(a1, at("fd00:20::11", 80), "1b", a1_address);
        });
        acts.play(
            "a pod's sockets reach a cluster IP on the other node",
            || {
                check(a1, at("fd00:20::12", 80), "2a", a1_address);
            },
        );
        acts.play(
            "a pod's sockets reach the pod itself by its cluster IP",
            || {
                check(a1, at("fd00:20::13", 80), "1a", a1_address);
            },
        );
        acts.play(
            "a pod's sockets reach node ports, external and load balancer addresses",
            || {
                let all = ["1a", "1b", "2a", "2b"].map(|name| (name, a1_address));
                for ip in ["fd00:30::15", "fd00:30::25"] {
                    check_all(a1, at(ip, 80), &all);
                }
                let node = self.stage.nodes[0].address();
                check_all(a1, SocketAddr::new(node, 30_015), &all);
            },
        );
    }

    fn packets(&self, acts: &mut Acts) {
        let (bare, a1) = (&self.stage.pod(0, 0).bare, self.address(0, 0));
        let node = self.stage.nodes[0].address();
        acts.play("a pod's packets reach a cluster IP on their node", || {
            check(bare, at("fd00:20::11", 80), "1b", a1);
        });
        acts.play(
            "a pod's packets reach a cluster IP on the other node",
            || {
                check(bare, at("fd00:20::12", 80), "2a", a1);
            },
        );
        acts.play(
            "a pod's packets reach the pod itself, which sees the node",
            || {
                check(bare, at("fd00:20::13", 80), "1a", node);
            },
        );
        acts.play(
            "a pod's packets reach host-network backends on both nodes",
            || {
                check_all(bare, at("fd00:20::18", 80), &[("h1", a1), ("h2", a1)]);
            },
        );
    }

    fn outside(&self, acts: &mut Acts) {
        let (client, who): (_, IpAddr) = (&self.stage.client, CLIENT.parse().unwrap());
        let nodes = &self.stage.nodes;
        let (node, second) = (nodes[0].address(), nodes[1].address());
        let hidden = ["1a", "1b", "2a", "2b"].map(|name| (name, node));
        acts.play(
            "outside clients reach a node port, hidden behind the node",
            || {
                check_all(client, SocketAddr::new(node, 30_015), &hidden);
                let by_second = hidden.map(|(name, _)| (name, second));
                check_all(client, SocketAddr::new(second, 30_015), &by_second);
            },
        );
        acts.play(
            "outside clients reach external and load balancer addresses",
            || {
                check_all(client, at("fd00:30::15", 80), &hidden);
                check_all(client, at("fd00:30::25", 80), &hidden);
                check_all(&self.stage.far, at("fd00:30::25", 80), &hidden);
            },
        );
        acts.play(
            "outside clients of a cluster IP are hidden behind the node",
            || {
                check(client, at("fd00:20::11", 80), "1b", node);
                check(client, at("fd00:20::12", 80), "2a", node);
            },
        );
        acts.play("the policy Local keeps the client's address", || {
            check(client, SocketAddr::new(node, 30_016), "1a", who);
            check(client, at("fd00:30::16", 80), "1a", who);
            check(client, at("fd00:30::26", 80), "1a", who);
            check(
                &self.stage.far,
                at("fd00:30::26", 80),
                "1a",
                FAR.parse().unwrap(),
            );
        });
        acts.play("the policy Local drops where no backend is local", || {
            silent(client, SocketAddr::new(second, 30_016));
        });
        acts.play("source ranges admit the client and nobody else", || {
            check(client, at("fd00:30::27", 80), "1a", node);
            silent(&self.stage.far, at("fd00:30::27", 80));
        });
        self.outside_hosts(acts);
    }

    fn outside_hosts(&self, acts: &mut Acts) {
        let (client, who): (_, IpAddr) = (&self.stage.client, CLIENT.parse().unwrap());
        let node = &self.stage.nodes[0];
        acts.play("outside clients reach host-network backends, IPv6", || {
            let both = [("h1", who), ("h2", node.address())];
            check_all(client, SocketAddr::new(node.address(), 30_018), &both);
            check_all(client, at("fd00:30::18", 80), &both);
        });
        acts.play("outside clients reach host-network backends, IPv4", || {
            let both = [("h1", CLIENT4.parse().unwrap()), ("h2", node.address4())];
            check_all(client, SocketAddr::new(node.address4(), 30_018), &both);
            check_all(client, at("203.0.113.18", 80), &both);
            let both = [("h1", FAR4.parse().unwrap()), ("h2", node.address4())];
            check_all(&self.stage.far, at("203.0.113.18", 80), &both);
        });
    }

    fn node(&self, acts: &mut Acts) {
        let node = &self.stage.nodes[0];
        let (place, own, own4) = (&node.place, node.address(), node.address4());
        acts.play("the node's processes reach cluster IPs", || {
            check(place, at("fd00:20::11", 80), "1b", own);
            check(place, at("fd00:20::12", 80), "2a", own);
            check_all(place, at("fd00:20::18", 80), &[("h1", own), ("h2", own)]);
            check_all(place, at("10.96.0.18", 80), &[("h1", own4), ("h2", own4)]);
        });
        acts.play(
            "the node's processes reach node ports and external addresses",
            || {
                let all = ["1a", "1b", "2a", "2b"].map(|name| (name, own));
                check_all(place, SocketAddr::new(own, 30_015), &all);
                check_all(place, at("fd00:30::15", 80), &all);
                check_all(
                    place,
                    SocketAddr::new(own4, 30_018),
                    &[("h1", own4), ("h2", own4)],
                );
            },
        );
    }

    fn refusals(&self, acts: &mut Acts) {
        let node = &self.stage.nodes[0];
        let empty = at("fd00:20::14", 80);
        let empty_port = SocketAddr::new(node.address(), 30_014);
        let pod = self.stage.pod(0, 0);
        acts.play("a service without endpoints refuses pods at once", || {
            refused(&pod.place, empty);
            refused(&pod.bare, empty);
        });
        acts.play(
            "a service without endpoints refuses outside clients at once",
            || {
                refused(&self.stage.client, empty);
                refused(&self.stage.client, empty_port);
            },
        );
        acts.play(
            "a service without endpoints refuses the node at once",
            || {
                refused(&node.place, empty);
                refused(&node.place, empty_port);
            },
        );
        acts.play("a port that a cluster IP does not have is refused", || {
            refused(&pod.place, at("fd00:20::11", 81));
            refused(&self.stage.client, at("fd00:20::11", 81));
        });
        acts.play(
            "a backend that nobody listens at is heard to refuse",
            || {
                for place in [&pod.place, &pod.bare, &node.place, &self.stage.client] {
                    for ip in ["fd00:20::1a", "fd00:20::1b", "fd00:20::1c", "fd00:20::1d"] {
                        refused(place, at(ip, 80));
                    }
                }
            },
        );
        acts.play(
            "addresses of the range that no service has lead nowhere",
            || {
                silent(&pod.bare, at("fd00:20::7777", 80));
                silent(&self.stage.client, at("fd00:20::7777", 80));
            },
        );
    }

    fn rest(&self, acts: &mut Acts) {
        acts.play("health check ports tell where local backends are", || {
            for (node, code, count) in [(0, "HTTP/1.1 200 ", 1), (1, "HTTP/1.1 503 ", 0)] {
                let port = SocketAddr::new(self.stage.nodes[node].address(), 30_116);
                let text = get(&self.stage.client, port, "/").unwrap();
                assert!(text.starts_with(code), "{text}");
                assert!(
                    text.contains(&format!("\"localEndpoints\": {count},")),
                    "{text}"
                );
            }
        });
        acts.play(
            "a connection that is led nowhere may have the ends of one that was",
            || {
                let pod = self.stage.pod(0, 0);
                let backend = SocketAddr::new(self.address(0, 1), POD_PORT);
                for (place, to) in [(&pod.bare, at("fd00:20::11", 80)), (&pod.place, backend)] {
                    let socket = place.socket(Domain::IPV6, Type::STREAM).unwrap();
                    socket.set_reuse_address(true).unwrap();
                    socket.bind(&at("::", 20_000).into()).unwrap();
                    socket.connect_timeout(&to.into(), REFUSED_WITHIN).unwrap();
                }
            },
        );
        acts.play(
            "clients with affinity keep their backend, each its own",
            || {
                let port = SocketAddr::new(self.stage.nodes[0].address(), 30_019);
                let vip = at("fd00:20::19", 80);
                let (pod, client) = (self.stage.pod(0, 0), &self.stage.client);
                for (place, to) in [
                    (client, port),
                    (&pod.place, vip),
                    (&pod.bare, vip),
                    (&self.stage.nodes[0].place, vip),
                ] {
                    let first = tcp(place, to).unwrap();
                    for _ in 0..MANY {
                        assert_eq!(tcp(place, to).unwrap(), first);
                    }
                }
            },
        );
    }
}
