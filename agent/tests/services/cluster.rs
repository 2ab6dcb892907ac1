//! Two nodes with the real agent and two pods each, a client on their link, and one behind a router.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr};

use dormouse_agent_datapath::Datapath;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::sockets::Opener;
use dormouse_rig::{Netns, Sockets, client, wait};
use dormouse_world::{Host, Spec, World};
use serde_json::json;

use crate::manifests::{Condition, End, MARK_PORT, Manifests, Service};
use crate::node::{Node, Pod, attach, node, start};
use crate::routes::{far, route};
use crate::uplink::Uplink;

/// The port of echoing servers in pods, of light ones, and of those of the nodes themselves.
pub(crate) const POD_PORT: u16 = 8_080;
pub(crate) const LIGHT_PORT: u16 = 8_081;
pub(crate) const NODE_PORT: u16 = 9_090;
/// The agent's metrics.
const METRICS_PORT: u16 = 10_249;

/// The client: on the nodes' link, but by its address no pod.
pub(crate) const CLIENT: &str = "2001:db8:c0::100";
pub(crate) const CLIENT4: &str = "192.0.2.100";
/// The client behind the router.
pub(crate) const FAR: &str = "2001:db8:fa::2";
pub(crate) const FAR4: &str = "198.51.100.2";

/// The cluster. Parts that run end before the world does.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) client: Sockets,
    pub(crate) far: Sockets,
    pub(crate) router: Sockets,
    pub(crate) manifests: Manifests,
    _ports: Vec<Datapath>,
    pub(crate) world: World,
    _far: Netns,
}

/// A kind of client, which decides where its packets meet the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The first pod of the first node: the programs of its cgroup see its sockets.
    PodSocket,
    /// The same pod, without a cgroup: only the programs of its link see what it sends.
    PodPackets,
    /// The first node itself.
    NodeSocket,
    /// The client.
    Outside,
    /// The client behind the router.
    Far,
}

impl Cluster {
    /// Builds the world, starts both agents and wires the pods.
    pub(crate) fn build(prefix: &str) -> Self {
        Self::build_with(prefix, Uplink::Classifier, |_| Vec::new())
    }

    /// The same with more on the command line of each node's agent, by the node's number.
    pub(crate) fn build_with(
        prefix: &str,
        uplink: Uplink,
        more: impl Fn(usize) -> Vec<String>,
    ) -> Self {
        let spec = Spec {
            prefix: prefix.to_owned(),
            nodes: 2,
        };
        let world = World::build(&spec).unwrap_or_else(|error| panic!("{error}"));
        let names = world.nodes().iter().map(|node| node.name.as_str());
        let folder = world.client().folder.join("manifests");
        let manifests = Manifests::new(&folder, &names.collect::<Vec<_>>());
        let far = far(&world);
        route(&world);
        let mut nodes: Vec<_> = (1..)
            .zip(world.nodes())
            .map(|(number, host)| node(host, number, uplink))
            .collect();
        let ports = uplink.prepare(&world);
        for (number, node) in (1..).zip(&mut nodes) {
            let more = more(number);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            start(node, &folder, &more);
        }
        let mut cluster = Self {
            nodes,
            client: Sockets::bare(&world.client().netns),
            far: Sockets::bare(far.path()),
            router: Sockets::bare(&world.control().netns),
            manifests,
            _ports: ports,
            world,
            _far: far,
        };
        cluster.in_force();
        for node in &cluster.nodes {
            uplink.check(&node.host);
        }
        cluster.add_pods(prefix);
        cluster
    }

    fn add_pods(&mut self, prefix: &str) {
        for (number, node) in (1..).zip(&mut self.nodes) {
            let opener = Opener::start(&node.host);
            node.sockets = Sockets::of(&opener, &node.host.netns);
            for name in ["a", "b"] {
                let name = format!("{number}{name}");
                let netns = Netns::named(&format!("{prefix}-pod-{name}"));
                netns.ip("link set lo up");
                let address = attach(node, &name, &netns, &json!({}));
                node.pods.push(Pod {
                    sockets: Sockets::of(&opener, netns.path()),
                    bare: Sockets::bare(netns.path()),
                    host: Host {
                        netns: netns.path().to_owned(),
                        name: netns.name().to_owned(),
                        ..node.host.clone()
                    },
                    end: End {
                        address,
                        node: node.host.name.clone(),
                        condition: Condition::Ready,
                    },
                    _netns: netns,
                });
            }
        }
    }

    /// Writes these services and waits until both agents have them in force.
    pub(crate) fn apply(&mut self, services: &[Service]) {
        for service in services {
            self.manifests.note(service);
        }
        self.manifests.write();
        self.in_force();
    }

    /// Applies these services unless a test before has.
    pub(crate) fn ensure(&mut self, services: &[Service]) {
        if !services.iter().all(|service| self.manifests.has(service)) {
            self.apply(services);
        }
    }

    /// Waits until every agent that runs has the last write in force.
    pub(crate) fn in_force(&mut self) {
        let mark = self.manifests.mark();
        for node in &mut self.nodes {
            let Some(agent) = &mut node.agent else {
                continue;
            };
            let sockets = Sockets::bare(&node.host.netns);
            let port = SocketAddr::from((Ipv6Addr::LOCALHOST, MARK_PORT));
            wait("the manifests to be in force", || {
                assert!(
                    agent.ended().is_none(),
                    "the agent has ended:\n{}",
                    agent.output()
                );
                client::get(&sockets, port, "/").is_ok_and(|text| text.contains(&mark))
            });
        }
    }

    /// Where the cables of all hosts meet.
    pub(crate) fn switch(&self) -> Sockets {
        Sockets::bare(&self.world.switch())
    }

    /// The sockets of a kind of client.
    pub(crate) fn sockets(&self, from: Origin) -> &Sockets {
        match from {
            Origin::PodSocket => &self.pod(0, 0).sockets,
            Origin::PodPackets => &self.pod(0, 0).bare,
            Origin::NodeSocket => &self.nodes[0].sockets,
            Origin::Outside => &self.client,
            Origin::Far => &self.far,
        }
    }

    pub(crate) fn pod(&self, node: usize, pod: usize) -> &Pod {
        &self.nodes[node].pods[pod]
    }

    /// A pod as an endpoint.
    pub(crate) fn end(&self, node: usize, pod: usize) -> End {
        self.pod(node, pod).end.clone()
    }

    /// All pods as endpoints.
    pub(crate) fn ends(&self) -> Vec<End> {
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        pods.map(|pod| pod.end.clone()).collect()
    }

    /// Kills a node's agent as a crash would.
    pub(crate) fn crash(&mut self, node: usize) {
        let mut agent = self.nodes[node].agent.take().unwrap();
        agent.kill().unwrap();
    }

    /// Starts a node's next agent.
    pub(crate) fn revive(&mut self, node: usize) {
        self.revive_with(node, &[]);
    }

    /// Starts it with `more` on its command line.
    pub(crate) fn revive_with(&mut self, node: usize, more: &[&str]) {
        let folder = self.manifests.folder().to_owned();
        start(&mut self.nodes[node], &folder, more);
    }

    /// How often a node's programs gave this verdict, or dropped for this reason.
    pub(crate) fn counted(&self, node: usize, name: &str) -> u64 {
        let sockets = Sockets::bare(&self.nodes[node].host.netns);
        let metrics = SocketAddr::from((Ipv6Addr::LOCALHOST, METRICS_PORT));
        let text = client::get(&sockets, metrics, "/metrics").unwrap();
        let name = format!("\"{name}\"");
        let line = text.lines().find(|line| line.contains(&name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// A server in each pod and on each node; they name themselves 1a, 1b, 2a, 2b, h1 and h2.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let mut servers = Vec::new();
        for (node, number) in self.nodes.iter().zip(1..) {
            let name = format!("h{number}");
            servers.push(Server::start(&node.sockets, &name, NODE_PORT));
            for (pod, letter) in node.pods.iter().zip(["a", "b"]) {
                let name = format!("{number}{letter}");
                servers.push(Server::start(&pod.sockets, &name, POD_PORT));
            }
        }
        servers
    }

    /// The ends of the agents' logs.
    pub(crate) fn report(&self) -> String {
        let logs = self.nodes.iter().flat_map(|node| {
            (1..=node.agents).map(|number| node.host.log(&format!("agent-{number}")))
        });
        let texts = logs.map(|log| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(25)..].join("\n");
            format!("{}:\n{last}\n", log.display())
        });
        texts.collect()
    }
}

/// A cluster with a server in each pod and on each node. Tests that use it change no more than Services of their own.
pub(crate) struct Serving {
    _servers: Vec<Server>,
    pub(crate) cluster: Cluster,
}

/// The cluster of all tests that disturb no node.
pub(crate) static SERVING: Shared<Serving> = Shared::new();

/// The same with the programs of the uplinks' drivers.
pub(crate) static DRIVEN: Shared<Serving> =
    Shared::built_by(|prefix| Serving::build_on(prefix, Uplink::Driver));

impl Serving {
    pub(crate) fn build_on(prefix: &str, uplink: Uplink) -> Self {
        let cluster = Cluster::build_with(prefix, uplink, |_| Vec::new());
        Self {
            _servers: cluster.servers(),
            cluster,
        }
    }
}

impl Fixture for Serving {
    fn build(prefix: &str) -> Self {
        Self::build_on(prefix, Uplink::Classifier)
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}
