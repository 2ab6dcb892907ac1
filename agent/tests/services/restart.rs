//! The agent dies under load, and thousands of other services come and go: who uses a service notices nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::acts::Acts;
use crate::checks::{at, falls_silent};
use crate::client::tcp;
use crate::load::{Load, Resets};
use crate::manifests::{Service, service};
use crate::node::command;
use crate::server::Server;
use crate::stage::{LIGHT_PORT, POD_PORT, Stage, wait};
use crate::wiring::hurry;

/// What each load has to do in each phase.
const PHASE: u64 = 1_000;
/// Of so many exchanges one may be reset and tried again.
const RESET_IN: u64 = 100_000;
/// Other services, and how many of them are in one file.
const OTHERS: usize = 1_000;
const FILE_LEN: usize = 100;

pub(crate) struct Restart {
    pub(crate) stage: Stage,
    resets: Vec<Resets>,
    _servers: Vec<Server>,
}

impl Restart {
    pub(crate) fn set() -> Self {
        let mut stage = Stage::set();
        let backends = [(0, 1), (1, 0), (1, 1)].map(|(node, pod)| stage.pod(node, pod));
        let servers = backends.iter().flat_map(|pod| {
            let echo = Server::start(&pod.place, "echo", POD_PORT);
            [Server::light(&pod.place, LIGHT_PORT), echo]
        });
        let servers = servers.collect();
        let watched = backends.map(|pod| pod.bare.clone());
        let ends = backends.map(|pod| pod.end.clone());
        let watched = watched.iter().chain([&stage.client, &stage.pod(0, 0).bare]);
        let resets = watched.map(Resets::count).collect();
        for place in [&stage.client, &stage.pod(0, 0).bare, &stage.pod(0, 1).bare] {
            hurry(place);
        }
        stage.apply(&[
            service("light", &["fd00:20::61"], LIGHT_PORT)
                .node_port(30_061)
                .to(&ends),
            service("echo", &["fd00:20::62"], POD_PORT)
                .node_port(30_062)
                .to(&ends),
        ]);
        Self {
            stage,
            resets,
            _servers: servers,
        }
    }

    pub(crate) fn play(&mut self, acts: &mut Acts) {
        self.planted(acts);
        acts.play(
            "an agent dies and comes again under load: nothing is lost",
            || {
                let loads = self.loads();
                let before = self.resets();
                self.die_and_come(&loads);
                self.judge(loads, &before);
            },
        );
        acts.play(
            "an agent comes again with maps of other sizes: nothing is lost",
            || {
                let loads = self.loads();
                let before = self.resets();
                self.come_with_other_maps(&loads);
                self.judge(loads, &before);
            },
        );
        acts.play(
            "an agent without its folder says so and changes nothing",
            || {
                let loads = self.loads();
                let before = self.resets();
                self.come_without_folder(&loads);
                self.judge(loads, &before);
            },
        );
        acts.play(
            "a thousand other services come, change and go: nothing is lost",
            || {
                let loads = self.loads();
                let before = self.resets();
                self.churn(&loads);
                self.judge(loads, &before);
            },
        );
    }

    fn resets(&self) -> Vec<u64> {
        self.resets.iter().map(Resets::so_far).collect()
    }

    /// A counter that counts nothing would prove everything.
    fn planted(&self, acts: &mut Acts) {
        acts.play("the counters of resets count", || {
            let before = self.resets();
            for node in [0, 1] {
                for pod in &self.stage.nodes[node].pods {
                    let closed = SocketAddr::new(pod.end.address, 1);
                    self.stage.client.dial(closed).unwrap_err();
                }
            }
            let counted: Vec<_> = self
                .resets()
                .iter()
                .zip(&before)
                .map(|(now, then)| now - then)
                .collect();
            // One in each backend, four at the client, one in the pod that asks.
            assert_eq!(counted, [1, 1, 1, 4, 1]);
        });
    }

    fn loads(&self) -> Vec<Load> {
        // Not one pod both ways: its connections would share the backend's view of its ports.
        let (pod, bare) = (self.stage.pod(0, 0), self.stage.pod(0, 1));
        let node: IpAddr = self.stage.nodes[0].address();
        let (light, echo) = (at("fd00:20::61", 80), at("fd00:20::62", 80));
        let outer = |port| SocketAddr::new(node, port);
        let client = &self.stage.client;
        let loads = vec![
            Load::connections("a pod's sockets", &pod.place, light),
            Load::connections("a pod's packets", &bare.bare, light),
            Load::connections("outside", client, outer(30_061)),
            Load::questions("a pod's one connection", &pod.place, echo),
            Load::questions("a pod's one connection by packets", &bare.bare, echo),
            Load::questions("one connection from outside", client, outer(30_062)),
            Load::datagrams("a pod's datagrams", &pod.place, echo),
            Load::datagrams("a pod's datagrams by packets", &bare.bare, echo),
            Load::datagrams("datagrams from outside", client, outer(30_062)),
        ];
        for load in &loads {
            load.go_on(100);
        }
        loads
    }

    fn die_and_come(&mut self, loads: &[Load]) {
        self.stage.crash(0);
        advance(loads);
        // Others change while nobody looks, and once more while the agent starts.
        self.stage
            .manifests
            .put_file("others.json", &others(0, 20, POD_PORT));
        self.stage.manifests.write();
        self.stage.revive(0);
        self.stage
            .manifests
            .put_file("others.json", &others(0, 20, LIGHT_PORT));
        self.stage.manifests.write();
        self.stage.in_force();
        advance(loads);
        self.stage.manifests.remove_file("others.json");
        self.stage.apply(&[]);
    }

    /// To a smaller table of flows, and back to a larger one.
    fn come_with_other_maps(&mut self, loads: &[Load]) {
        for more in [&["--flows-max", "65536"][..], &[]] {
            self.stage.crash(0);
            advance(loads);
            self.stage.revive_with(0, more);
            self.stage.in_force();
            advance(loads);
        }
    }

    fn come_without_folder(&mut self, loads: &[Load]) {
        self.stage.crash(0);
        let node = &self.stage.nodes[0];
        let log = node.host.log("agent-without-folder");
        let program = command(
            &node.host,
            node.address4(),
            &node.host.folder.join("nowhere"),
        )
        .log(log);
        let mut agent = self.stage.world.spawn(&node.host, &program).unwrap();
        let mut status = None;
        wait("the agent to refuse", || {
            status = agent.ended();
            status.is_some()
        });
        assert!(!status.unwrap().success());
        let said = agent.output();
        let wrong = "failed to read the folder of manifests";
        assert!(
            said.contains(wrong) && said.contains("nowhere: create it"),
            "{said}"
        );
        advance(loads);
        self.stage.revive(0);
        self.stage.in_force();
        advance(loads);
    }

    fn churn(&mut self, loads: &[Load]) {
        let began = Instant::now();
        for (what, port) in [("created", POD_PORT), ("changed", LIGHT_PORT)] {
            for number in 0..OTHERS / FILE_LEN {
                let ends = self.stage.ends();
                let services = others(number * FILE_LEN, FILE_LEN, port);
                let services: Vec<_> = services
                    .into_iter()
                    .map(|service| service.to(&ends[1..]))
                    .collect();
                self.stage
                    .manifests
                    .put_file(&format!("churn-{number}.json"), &services);
            }
            self.stage.apply(&[]);
            eprintln!(
                "  {OTHERS} services {what} after {} ms",
                began.elapsed().as_millis()
            );
            let last = at(&address(OTHERS - 1), 80);
            let name = tcp(&self.stage.pod(0, 0).place, last).map(|heard| heard.name);
            if port == POD_PORT {
                assert_eq!(name.unwrap(), "echo");
            } else {
                name.unwrap_err();
            }
        }
        for number in 0..OTHERS / FILE_LEN {
            self.stage
                .manifests
                .remove_file(&format!("churn-{number}.json"));
        }
        self.stage.apply(&[]);
        eprintln!(
            "  {OTHERS} services deleted after {} ms",
            began.elapsed().as_millis()
        );
        for number in [0, OTHERS - 1] {
            falls_silent(&self.stage.pod(0, 0).bare, at(&address(number), 80));
        }
        advance(loads);
    }

    fn judge(&self, loads: Vec<Load>, before: &[u64]) {
        let mut failed = Vec::new();
        let mut done = 0;
        for load in loads {
            let outcome = load.end();
            done += outcome.done;
            eprintln!(
                "  {}: {} done, {} a second, {} slow, {} failed",
                outcome.what, outcome.done, outcome.per_second, outcome.slow, outcome.failed
            );
            if outcome.failed > 0 {
                failed.push((outcome.what, outcome.told));
            }
        }
        let resets: Vec<_> = self
            .resets()
            .iter()
            .zip(before)
            .map(|(now, then)| now - then)
            .collect();
        eprintln!("  resets: {resets:?}");
        assert!(failed.is_empty(), "{failed:#?}");
        // A hidden port that is used again may meet what its server remembers of the connection before: one reset, and the
        // client's next try stands. What an agent's end would break are hundreds.
        let most = done / RESET_IN;
        assert!(resets.iter().all(|count| *count <= most), "{resets:?}");
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
