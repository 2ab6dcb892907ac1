//! Agents die under load, and thousands of other services come and go: clients of a service notice nothing.

use std::net::SocketAddr;
use std::time::Instant;

use dormouse_rig::client::tcp;
use dormouse_rig::load::{Load, Resets};
use dormouse_rig::pins::rename_to_former_schema;
use dormouse_rig::server::{OPEN_LEN, Server};
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::wait;
use dormouse_world::Process;

use crate::checks::{at, falls_silent};
use crate::cluster::{Cluster, LIGHT_PORT, Origin, POD_PORT};
use crate::manifests::{Service, service};
use crate::node::command;
use crate::routes::reuse_ports;

/// How much each load does in each phase.
const PHASE: u64 = 1_000;
/// Resets that are tolerated, in all namespaces together. An agent whose end or take-over breaks connections resets at least
/// those that the three light servers keep open, hundreds of packets in all, however slow the machine is. A few come when
/// a client's port is used again while the connection before has not ended at its server: the client tries once more.
const RESETS_MAX: u64 = OPEN_LEN as u64;
/// Other services, and how many of them are in one file.
const OTHERS: usize = 1_000;
const FILE_LEN: usize = 100;

/// A cluster whose agents die. Each test leaves both nodes with an agent that has all manifests in force.
struct Restart {
    resets: Vec<Resets>,
    _servers: Vec<Server>,
    cluster: Cluster,
}

static RESTART: Shared<Restart> = Shared::new();

impl Fixture for Restart {
    fn build(prefix: &str) -> Self {
        let mut cluster = Cluster::build(prefix);
        let backends = [(0, 1), (1, 0), (1, 1)].map(|(node, pod)| cluster.pod(node, pod));
        let servers = backends.iter().flat_map(|pod| {
            let echo = Server::start(&pod.sockets, "echo", POD_PORT);
            [Server::light(&pod.sockets, LIGHT_PORT), echo]
        });
        let servers = servers.collect();
        let watched = backends.map(|pod| pod.bare.clone());
        let ends = backends.map(|pod| pod.end.clone());
        let packets = [0, 1].map(|pod| cluster.pod(0, pod).bare.clone());
        let watched = watched.iter().chain([&cluster.client, &packets[0]]);
        let resets = watched.map(Resets::count).collect();
        for sockets in [&cluster.client, &packets[0], &packets[1]] {
            reuse_ports(sockets);
        }
        cluster.apply(&[
            service("light", &["fd00:20::61"], LIGHT_PORT)
                .node_port(30_061)
                .to(&ends),
            service("echo", &["fd00:20::62"], POD_PORT)
                .node_port(30_062)
                .to(&ends),
        ]);
        Self {
            resets,
            _servers: servers,
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// Plays a disturbance while all loads go on: none of them fails, and no connection is reset.
fn under_load(disturb: fn(&mut Restart, &[Load])) {
    let mut it = RESTART.lease();
    let loads = it.loads();
    let before = it.so_far();
    disturb(&mut it, &loads);
    it.judge(loads, &before);
}

/// A counter that counts nothing would prove everything.
#[test]
fn the_counters_of_resets_count() {
    let it = RESTART.lease();
    let before = it.so_far();
    for pod in it.cluster.nodes.iter().flat_map(|node| &node.pods) {
        let closed = SocketAddr::new(pod.end.address, 1);
        it.cluster.client.dial(closed).unwrap_err();
    }
    // One in each backend, four at the client, one in the pod that asks.
    assert_eq!(it.since(&before), [1, 1, 1, 4, 1]);
}

#[test]
fn nothing_is_lost_while_an_agent_dies_and_the_next_one_starts() {
    under_load(Restart::die_and_start);
}

#[test]
fn nothing_is_lost_while_an_agent_starts_with_maps_of_other_sizes() {
    under_load(Restart::start_with_other_maps);
}

#[test]
fn nothing_is_lost_while_an_agent_takes_over_from_the_former_schema() {
    under_load(Restart::take_over_from_former_schema);
}

#[test]
fn nothing_is_lost_while_an_agent_refuses_to_start_without_its_folder() {
    under_load(Restart::start_without_folder);
}

#[test]
fn nothing_is_lost_while_a_thousand_other_services_come_and_go() {
    under_load(Restart::churn);
}

impl Restart {
    fn so_far(&self) -> Vec<u64> {
        self.resets.iter().map(Resets::so_far).collect()
    }

    /// Resets since then.
    fn since(&self, before: &[u64]) -> Vec<u64> {
        let pairs = self.so_far().into_iter().zip(before);
        pairs.map(|(now, then)| now - then).collect()
    }

    fn loads(&self) -> Vec<Load> {
        // Not one pod for both: by sockets and by packets its connections could have the same ports.
        let (pod, bare) = (
            self.cluster.sockets(Origin::PodSocket),
            &self.cluster.pod(0, 1).bare,
        );
        let node = self.cluster.nodes[0].address();
        let (light, echo) = (at("fd00:20::61", 80), at("fd00:20::62", 80));
        let outer = |port| SocketAddr::new(node, port);
        let client = &self.cluster.client;
        let loads = vec![
            Load::connections("a pod's sockets", pod, light),
            Load::connections("a pod's packets", bare, light),
            Load::connections("outside", client, outer(30_061)),
            Load::questions("a pod's one connection", pod, echo),
            Load::questions("a pod's one connection by packets", bare, echo),
            Load::questions("one connection from outside", client, outer(30_062)),
            Load::datagrams("a pod's datagrams", pod, echo),
            Load::datagrams("a pod's datagrams by packets", bare, echo),
            Load::datagrams("datagrams from outside", client, outer(30_062)),
        ];
        for load in &loads {
            load.go_on(100);
        }
        loads
    }

    fn die_and_start(&mut self, loads: &[Load]) {
        self.cluster.crash(0);
        advance(loads);
        // Other services change while no agent runs, and once more while the next one starts.
        self.cluster
            .manifests
            .put_file("others.json", &others(0, 20, POD_PORT));
        self.cluster.manifests.write();
        self.cluster.revive(0);
        self.cluster
            .manifests
            .put_file("others.json", &others(0, 20, LIGHT_PORT));
        self.cluster.manifests.write();
        self.cluster.in_force();
        advance(loads);
        self.cluster.manifests.remove_file("others.json");
        self.cluster.apply(&[]);
    }

    /// To a larger table of flows, and back to a smaller one. Neither fills up: an entry evicted from a full table would
    /// free a NAT port whose connection is still in TIME_WAIT at its server.
    fn start_with_other_maps(&mut self, loads: &[Load]) {
        for more in [&["--flows-max", "262144"][..], &[]] {
            self.cluster.crash(0);
            advance(loads);
            self.cluster.revive_with(0, more);
            self.cluster.in_force();
            advance(loads);
        }
    }

    /// The pins get the folder and the names of the schema before, as an older agent left them.
    fn take_over_from_former_schema(&mut self, loads: &[Load]) {
        self.cluster.crash(0);
        let former = rename_to_former_schema(&self.cluster.nodes[0].host.bpffs);
        advance(loads);
        self.cluster.revive(0);
        self.cluster.in_force();
        advance(loads);
        assert!(!former.exists(), "the former schema is gone");
    }

    fn start_without_folder(&mut self, loads: &[Load]) {
        self.cluster.crash(0);
        let node = &self.cluster.nodes[0];
        let log = node.host.log("agent-without-folder");
        let program = command(
            &node.host,
            node.address4(),
            &node.host.folder.join("nowhere"),
        )
        .log(log);
        let mut agent = Process::start(&node.host, &program).unwrap();
        let mut status = None;
        wait("the agent to refuse", || {
            status = agent.ended();
            status.is_some()
        });
        assert!(!status.unwrap().success());
        let output = agent.output();
        let wrong = "failed to read the folder of manifests";
        assert!(
            output.contains(wrong) && output.contains("nowhere: create it"),
            "{output}"
        );
        advance(loads);
        self.cluster.revive(0);
        self.cluster.in_force();
        advance(loads);
    }

    fn churn(&mut self, loads: &[Load]) {
        let began = Instant::now();
        for (what, port) in [("created", POD_PORT), ("changed", LIGHT_PORT)] {
            for number in 0..OTHERS / FILE_LEN {
                let ends = self.cluster.ends();
                let services = others(number * FILE_LEN, FILE_LEN, port);
                let services: Vec<_> = services
                    .into_iter()
                    .map(|service| service.to(&ends[1..]))
                    .collect();
                self.cluster
                    .manifests
                    .put_file(&format!("churn-{number}.json"), &services);
            }
            self.cluster.apply(&[]);
            eprintln!(
                "  {OTHERS} services {what} after {} ms",
                began.elapsed().as_millis()
            );
            let last = at(&address(OTHERS - 1), 80);
            let name = tcp(self.cluster.sockets(Origin::PodSocket), last).map(|answer| answer.name);
            if port == POD_PORT {
                assert_eq!(name.unwrap(), "echo");
            } else {
                name.unwrap_err();
            }
        }
        for number in 0..OTHERS / FILE_LEN {
            self.cluster
                .manifests
                .remove_file(&format!("churn-{number}.json"));
        }
        self.cluster.apply(&[]);
        eprintln!(
            "  {OTHERS} services deleted after {} ms",
            began.elapsed().as_millis()
        );
        for number in [0, OTHERS - 1] {
            falls_silent(&self.cluster.pod(0, 0).bare, at(&address(number), 80));
        }
        advance(loads);
    }

    /// Shows all figures, also when it fails.
    fn judge(&self, loads: Vec<Load>, before: &[u64]) {
        let outcomes: Vec<_> = loads.into_iter().map(Load::end).collect();
        let resets = self.since(before);
        let figures = outcomes.iter().map(ToString::to_string);
        let figures: Vec<_> = figures.chain([format!("resets: {resets:?}")]).collect();
        let figures = figures.join("\n  ");
        eprintln!("  {figures}");
        let failed = outcomes.iter().any(|outcome| outcome.failed > 0);
        assert!(!failed, "loads failed:\n  {figures}");
        let reset: u64 = resets.iter().sum();
        assert!(
            reset <= RESETS_MAX,
            "{reset} resets, {RESETS_MAX} are tolerated:\n  {figures}"
        );
    }
}

/// Every load goes on.
fn advance(loads: &[Load]) {
    let goals: Vec<_> = loads.iter().map(|load| load.done() + PHASE).collect();
    for (load, goal) in loads.iter().zip(goals) {
        load.until(goal);
    }
}

fn others(from: usize, count: usize, port: u16) -> Vec<Service> {
    let numbers = from..from + count;
    numbers
        .map(|number| service(&format!("other-{number}"), &[&address(number)], port))
        .collect()
}

fn address(number: usize) -> String {
    format!("fd00:20::{:x}", 0x1000 + number)
}
