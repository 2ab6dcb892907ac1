//! Two nodes with the real agent and two pods each, a client on their link, and one behind a router.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_world::{Host, Spec, World};
use serde_json::json;

use crate::client;
use crate::manifests::{Condition, End, MARK_PORT, Manifests, Service};
use crate::node::{Node, Pod, attach, node, start};
use crate::place::{Maker, Place};
use crate::wiring::{LETTERS, clear_dead, far, ip, route};

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The port of servers in pods, of those that say one word, and of those of the nodes themselves.
pub(crate) const POD_PORT: u16 = 8_080;
pub(crate) const LIGHT_PORT: u16 = 8_081;
pub(crate) const NODE_PORT: u16 = 9_090;

/// The client: on the nodes' link, but by its address no pod.
pub(crate) const CLIENT: &str = "2001:db8:c0::100";
pub(crate) const CLIENT4: &str = "192.0.2.100";
/// The client behind the router.
pub(crate) const FAR: &str = "2001:db8:fa::2";
pub(crate) const FAR4: &str = "198.51.100.2";

/// One test at a time: they measure, and the machine has few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Everything that a test of Services stands on. Parts that run end before the world does.
pub(crate) struct Stage {
    pub(crate) nodes: Vec<Node>,
    pub(crate) client: Place,
    pub(crate) far: Place,
    pub(crate) router: Place,
    pub(crate) manifests: Manifests,
    pub(crate) world: World,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// Builds the world, starts both agents and wires the pods.
    pub(crate) fn set() -> Self {
        static STAGES: AtomicUsize = AtomicUsize::new(0);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        clear_dead();
        let letter = LETTERS[STAGES.fetch_add(1, Ordering::Relaxed)];
        let prefix = format!("{letter}{}", std::process::id());
        let spec = Spec {
            prefix: prefix.clone(),
            nodes: 2,
        };
        let world = World::build(&spec).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<_> = world
            .nodes()
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        let folder = world.client().folder.join("manifests");
        let manifests = Manifests::new(&folder, &names);
        let far = far(&world, &prefix);
        route(&world);
        let mut nodes: Vec<_> = (1..)
            .zip(world.nodes())
            .map(|(n, host)| node(&world, host, n))
            .collect();
        for node in &mut nodes {
            start(&world, node, &folder, &[]);
        }
        let mut stage = Self {
            nodes,
            client: Place::outside(&world.client().netns),
            far,
            router: Place::outside(&world.control().netns),
            manifests,
            world,
            _turn: turn,
        };
        stage.in_force();
        stage.wire(&prefix);
        stage
    }

    fn wire(&mut self, prefix: &str) {
        for (number, node) in (1..).zip(&mut self.nodes) {
            let maker = Maker::start(&self.world, &node.host);
            node.place = Place::of(&maker, &node.host.netns);
            for name in ["a", "b"] {
                let name = format!("{number}{name}");
                let namespace = format!("{prefix}-pod-{name}");
                ip(&format!("netns add {namespace}"));
                let netns = PathBuf::from("/run/netns").join(&namespace);
                ip(&format!("-n {namespace} link set lo up"));
                let address = attach(node, &name, &netns, &json!({}));
                node.pods.push(Pod {
                    place: Place::of(&maker, &netns),
                    bare: Place::outside(&netns),
                    host: Host {
                        netns,
                        name: namespace,
                        ..node.host.clone()
                    },
                    end: End {
                        address,
                        node: node.host.name.clone(),
                        condition: Condition::Ready,
                    },
                });
            }
        }
    }

    /// Writes these services and waits until both agents have them in force.
    pub(crate) fn apply(&mut self, services: &[Service]) {
        for service in services {
            self.manifests.note(service, None);
        }
        self.manifests.write();
        self.in_force();
    }

    /// Waits until every agent that runs has the last write in force.
    pub(crate) fn in_force(&mut self) {
        let mark = self.manifests.mark();
        for node in &mut self.nodes {
            let Some(agent) = &mut node.agent else {
                continue;
            };
            let place = Place::outside(&node.host.netns);
            let port = SocketAddr::from((Ipv6Addr::LOCALHOST, MARK_PORT));
            wait("the manifests to be in force", || {
                assert!(
                    agent.ended().is_none(),
                    "the agent has ended:\n{}",
                    agent.output()
                );
                client::get(&place, port, "/").is_ok_and(|text| text.contains(&mark))
            });
        }
    }

    /// Where the cables of all hosts meet.
    pub(crate) fn switch(&self) -> Place {
        let client = self.world.client();
        let prefix = client.name.strip_suffix("-client").unwrap();
        Place::outside(&client.netns.with_file_name(format!("{prefix}-switch")))
    }

    pub(crate) fn pod(&self, node: usize, pod: usize) -> &Pod {
        &self.nodes[node].pods[pod]
    }

    pub(crate) fn ends(&self) -> Vec<End> {
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        pods.map(|pod| pod.end.clone()).collect()
    }

    /// Kills a node's agent as a crash would.
    pub(crate) fn crash(&mut self, node: usize) {
        let mut agent = self.nodes[node].agent.take().unwrap();
        agent.kill().unwrap();
    }

    /// Starts a node's agent again.
    pub(crate) fn revive(&mut self, node: usize) {
        self.revive_with(node, &[]);
    }

    /// Starts it again, with `more` on its command line.
    pub(crate) fn revive_with(&mut self, node: usize, more: &[&str]) {
        let folder = self.manifests.folder().to_owned();
        start(&self.world, &mut self.nodes[node], &folder, more);
    }

    /// How often a node's programs gave this verdict, or dropped for this reason.
    pub(crate) fn counted(&self, node: usize, name: &str) -> u64 {
        let place = Place::outside(&self.nodes[node].host.netns);
        let text = client::get(
            &place,
            SocketAddr::from((Ipv6Addr::LOCALHOST, 10_249)),
            "/metrics",
        );
        let (text, name) = (text.unwrap(), format!("\"{name}\""));
        let line = text.lines().find(|line| line.contains(&name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// The ends of the agents' logs, for who looks into a failure.
    pub(crate) fn logs(&self) -> String {
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

/// Waits for a condition that comes by itself.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
