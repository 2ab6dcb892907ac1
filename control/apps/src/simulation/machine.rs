//! A node of the simulation: the kernel with its maps, the agent with the real node core, and the pods' processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_fleet::proto::{self, Count, Down, Woke, entry};
use dormouse_fleet::root::Session;
use dormouse_fleet::{Backend, Boottime, node};
use dormouse_fleet_simulation::{Node, Random};

use super::processes::{Processes, Runtime};
use super::{LEASE, SECOND, TICK, Without};

/// Longest time a kernel program takes from reading an entry to sending the packet.
const GRACE: Duration = Duration::from_millis(60);

/// An app's entry in the maps.
#[derive(Default)]
pub(super) struct Word {
    pub(super) serves: bool,
    pub(super) backends: BTreeSet<u32>,
    asleep: bool,
    port: u32,
    gone: bool,
}

/// The kernel of a node, which handles packets also while the agent is frozen.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) words: BTreeMap<u32, Word>,
    /// Backends of replaced words that a running program may still use until `fading_until`.
    pub(super) fading: BTreeMap<u32, BTreeSet<u32>>,
    pub(super) fading_until: Boottime,
    /// First packets that the agent has not read.
    woke: Vec<Woke>,
    /// The VIPs of events in this second.
    raised: BTreeSet<u32>,
    counts: BTreeMap<u32, Count>,
}

/// What the kernel does with a connection to a VIP.
pub(super) enum Decision {
    /// It is sent to one of these pods.
    Pods(Vec<u32>),
    Activator,
}

impl Kernel {
    /// `usable`: entries are used, with a lease or without.
    pub(super) fn decide(&self, vip: u32, usable: bool) -> Decision {
        match self.words.get(&vip) {
            Some(word) if word.serves && usable => {
                Decision::Pods(word.backends.iter().copied().collect())
            }
            _ => Decision::Activator,
        }
    }

    /// A packet to a VIP that sleeps or has no entry raises an event, once.
    pub(super) fn notice(&mut self, vip: u32, port: u32, clock: Boottime) {
        let wakes = match self.words.get(&vip) {
            Some(word) => !word.gone && word.asleep && word.port == port,
            None => true,
        };
        if wakes && self.raised.insert(vip) {
            self.woke.push(Woke {
                vip,
                at_ns: clock.0,
                port,
                protocol: 6,
            });
        }
    }

    /// Counts the connections to pods that are open or were begun in this tick.
    pub(super) fn count(&mut self, vip: u32, begun: u64, open: u64) {
        let count = self.counts.entry(vip).or_default();
        count.vip = vip;
        count.connections += begun;
        count.connection_ns += open * u64::try_from(TICK.as_nanos()).unwrap();
        count.open = open;
    }
}

pub(super) struct Machine {
    pub(super) name: String,
    index: usize,
    pub(super) kernel: Kernel,
    /// Its session has the epoch of the control at the other end of the stream.
    pub(super) node: Node<(u64, Session)>,
    pub(super) runtime: Runtime,
    second: Boottime,
    /// The machine is off until then.
    pub(super) off_until: Boottime,
    boots: u32,
    /// A message whose entries are applied, while the kernel may still use the replaced words.
    pub(super) grace: Option<Grace>,
}

/// The rest of a message, to be applied when no program can use the replaced words.
pub(super) struct Grace {
    until: Boottime,
    rest: Rest,
}

/// What follows the entries of a message.
#[derive(Default)]
struct Rest {
    seq: u64,
    lease_until: Option<Boottime>,
    run: Vec<proto::PodSpec>,
    run_complete: bool,
}

impl Machine {
    pub(super) fn new(index: usize, without: Without, random: &mut Random) -> Self {
        let name = format!("n{index}");
        let agent = node::Node::new(name.clone(), format!("{name}-0"), "0".into(), &[]);
        Self {
            node: Node::new(agent, LEASE, without.of_node(), random),
            name,
            index,
            kernel: Kernel::default(),
            runtime: Runtime::default(),
            second: Boottime(0),
            off_until: Boottime(0),
            boots: 0,
            grace: None,
        }
    }

    /// Whether entries are used, with a lease or without.
    pub(super) fn uses_entries(&self, now: Boottime) -> bool {
        self.node.is_leased(now) || self.node.is_stale
    }

    pub(super) fn is_on(&self, now: Boottime) -> bool {
        self.off_until <= now
    }

    pub(super) fn describe(&mut self) {
        self.node.agent.describe(proto::NodeStatus {
            pods: 100,
            cpu_milli: 4_000,
            memory_bytes: 1 << 30,
            runs_pods: true,
            ..proto::NodeStatus::default()
        });
    }

    /// The agent is killed and started again; the kernel and the pods go on.
    pub(super) fn restart(&mut self) {
        let installed: Vec<u32> = self.kernel.words.keys().copied().collect();
        let boot_id = format!("{}-{}", self.name, self.boots);
        let name = self.name.clone();
        self.node
            .restart(node::Node::new(name, boot_id, "0".into(), &installed));
        self.describe();
        self.runtime.report_all();
        self.grace = None;
        self.kernel.woke.clear();
    }

    /// The machine is switched off until `until`: maps and processes are lost, the agent's records are not.
    pub(super) fn reboot(&mut self, now: Boottime, until: Boottime, processes: &mut Processes) {
        self.kernel = Kernel::default();
        self.runtime.crash(processes);
        self.node.reboot(now);
        (self.second, self.off_until) = (Boottime(0), until);
        self.boots += 1;
        self.restart();
    }

    /// The agent reads what the kernel and the pods have to report.
    pub(super) fn observe(&mut self, now: Boottime, processes: &mut Processes) {
        let clock = self.node.clock(now);
        for woke in std::mem::take(&mut self.kernel.woke) {
            self.node.agent.woke(woke, clock);
        }
        if clock >= self.second {
            let interval = clock.since(self.second) + SECOND;
            let interval_ns = u64::try_from(interval.as_nanos()).unwrap();
            self.second = clock + SECOND;
            self.kernel.raised.clear();
            self.kernel.words.retain(|_, word| !word.gone);
            for (_, count) in std::mem::take(&mut self.kernel.counts) {
                let count = Count {
                    interval_ns,
                    ..count
                };
                self.node.agent.count(count, clock);
            }
        }
        for status in self.runtime.step(now, processes) {
            self.node.agent.pod(status);
        }
    }

    /// Ends the grace period of the last message, if it is over: its lease, its pods, its acknowledgement.
    pub(super) fn finish_grace(&mut self, now: Boottime, processes: &mut Processes) {
        if let Some(grace) = self.grace.take_if(|grace| grace.until <= now) {
            self.finish(grace.rest, now, processes);
        }
    }

    /// Applies a message as an agent does: entries, grace period, lease, pods, acknowledgement. False: it is refused.
    pub(super) fn receive(
        &mut self,
        down: Down,
        now: Boottime,
        processes: &mut Processes,
        without: Without,
    ) -> bool {
        let clock = self.node.clock(now);
        let Ok(step) = self.node.agent.receive(down, clock) else {
            return false;
        };
        if now >= self.kernel.fading_until {
            self.kernel.fading.clear();
        }
        for entry in &step.entries {
            let old = self.kernel.words.insert(entry.vip, word(entry));
            let old = old.map(|old| (entry.vip, old.backends));
            self.kernel.fading.extend(old);
        }
        let mut rest = Rest {
            seq: step.seq,
            lease_until: step.lease_until,
            run: step.run,
            run_complete: step.run_complete,
        };
        if !step.grace {
            self.finish(rest, now, processes);
            return true;
        }
        self.kernel.fading_until = now + GRACE;
        if without == Without::GraceBeforeGrant {
            self.grant(rest.lease_until.take(), now);
        }
        let until = now + GRACE;
        self.grace = Some(Grace { until, rest });
        true
    }

    fn grant(&mut self, until: Option<Boottime>, now: Boottime) {
        if let Some(until) = until {
            self.node.granted(until, now);
        }
    }

    fn finish(&mut self, rest: Rest, now: Boottime, processes: &mut Processes) {
        self.grant(rest.lease_until, now);
        if rest.run_complete {
            self.runtime.stop_others(&rest.run, now, processes);
        }
        for spec in rest.run {
            self.runtime.run(spec, self.index, now, processes);
        }
        self.node.agent.applied(rest.seq);
    }
}

fn word(entry: &proto::Entry) -> Word {
    let backends = Backend::unpack(&entry.backends).unwrap();
    Word {
        serves: entry.mode() == entry::Mode::Serve,
        backends: backends.iter().map(|backend| backend.host).collect(),
        asleep: entry.asleep,
        port: entry.port,
        gone: entry.gone,
    }
}
