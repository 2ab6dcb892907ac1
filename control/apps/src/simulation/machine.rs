//! A node of the simulation: the kernel with its maps, the agent with the real node core, and the pods' processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_fleet::node::Node;
use dormouse_fleet::proto::{self, Count, Down, Up, Woke, entry};
use dormouse_fleet::root::Session;
use dormouse_fleet::{Backend, Boottime, Stale};

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
    pub(super) lease_until: Boottime,
    /// Entries are used also after the end of the lease.
    pub(super) stale: bool,
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
    pub(super) fn decide(&self, vip: u32, leased: bool) -> Decision {
        match self.words.get(&vip) {
            Some(word) if word.serves && (leased || self.stale) => {
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
    pub(super) agent: Node,
    pub(super) stale: Stale,
    pub(super) runtime: Runtime,
    probe_due: Boottime,
    second: Boottime,
    /// Since when the running agent could have reached an activator; none: it could not when it ran last.
    reachable: Option<Boottime>,
    /// When the agent ran last.
    ran_at: Boottime,
    /// The epoch of the control at the other end of the stream, and its session.
    pub(super) session: Option<(u64, Session)>,
    pub(super) frozen_until: Boottime,
    /// The machine is off until then.
    pub(super) off_until: Boottime,
    /// The network to control is cut until then.
    pub(super) control_cut_until: Boottime,
    /// The network to the activators is cut until then.
    pub(super) activator_cut_until: Boottime,
    /// Rate of its clock against the root's, in parts per million.
    drift_ppm: i64,
    booted: Boottime,
    boots: u32,
    pub(super) up: VecDeque<(Boottime, Up)>,
    pub(super) down: VecDeque<(Boottime, Down)>,
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
    pub(super) fn new(index: usize, drift_ppm: i64) -> Self {
        let name = format!("n{index}");
        Self {
            agent: Node::new(name.clone(), format!("{name}-0"), "0".into(), &[]),
            name,
            index,
            kernel: Kernel::default(),
            stale: Stale::new(false, LEASE),
            runtime: Runtime::default(),
            probe_due: Boottime(0),
            second: Boottime(0),
            reachable: Some(Boottime(0)),
            ran_at: Boottime(0),
            session: None,
            frozen_until: Boottime(0),
            off_until: Boottime(0),
            control_cut_until: Boottime(0),
            activator_cut_until: Boottime(0),
            drift_ppm,
            booted: Boottime(0),
            boots: 0,
            up: VecDeque::new(),
            down: VecDeque::new(),
            grace: None,
        }
    }

    /// Its own `CLOCK_BOOTTIME`.
    pub(super) fn clock(&self, now: Boottime) -> Boottime {
        let on = i128::from(now.0 - self.booted.0);
        let drift = on * i128::from(self.drift_ppm) / 1_000_000;
        Boottime(u64::try_from(on + drift).unwrap())
    }

    pub(super) fn is_leased(&self, now: Boottime) -> bool {
        self.clock(now) < self.kernel.lease_until
    }

    pub(super) fn is_on(&self, now: Boottime) -> bool {
        self.off_until <= now
    }

    pub(super) fn describe(&mut self) {
        self.agent.describe(proto::NodeStatus {
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
        self.agent = Node::new(self.name.clone(), boot_id, "0".into(), &installed);
        self.describe();
        self.runtime.report_all();
        self.stale = Stale::new(self.kernel.stale, LEASE);
        self.grace = None;
        self.kernel.woke.clear();
    }

    /// The machine is switched off until `until`: maps and processes are lost, the agent's records are not.
    pub(super) fn reboot(&mut self, now: Boottime, until: Boottime, processes: &mut Processes) {
        self.kernel = Kernel::default();
        self.runtime.crash(processes);
        (self.booted, self.off_until) = (now, until);
        (self.second, self.probe_due) = (Boottime(0), Boottime(0));
        self.boots += 1;
        self.restart();
    }

    /// Probes the activators if that is due; `answers`: one can be reached.
    pub(super) fn probe(&mut self, answers: bool, now: Boottime, without: Without) {
        self.ran_at = now;
        if answers {
            self.reachable.get_or_insert(now);
        } else {
            self.reachable = None;
        }
        let clock = self.clock(now);
        if without == Without::StaleMode || !self.stale.is_due(self.session.is_some(), clock) {
            return;
        }
        if without == Without::ActivatorFirst {
            self.kernel.stale = true;
        }
        if self.probe_due > clock {
            return;
        }
        self.probe_due = clock + self.stale.interval();
        match self.stale.probed(answers, clock) {
            Some(false) if without == Without::AnswerEndsStale => {}
            Some(stale) => self.kernel.stale = stale,
            None => {}
        }
    }

    /// Whether the node may use entries that control has replaced: it could reach neither control nor an activator when
    /// its agent ran last, or only just.
    pub(super) fn is_alone(&self) -> bool {
        let just = self.stale.interval() * 2 + TICK;
        self.reachable
            .is_none_or(|since| self.ran_at.since(since) <= just)
    }

    /// The agent reads what the kernel and the pods have to report.
    pub(super) fn observe(&mut self, now: Boottime, processes: &mut Processes) {
        let clock = self.clock(now);
        for woke in std::mem::take(&mut self.kernel.woke) {
            self.agent.woke(woke, clock);
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
                self.agent.count(count, clock);
            }
        }
        for status in self.runtime.step(now, processes) {
            self.agent.pod(status);
        }
    }

    /// Ends the grace period of the last message, if it is over: its lease, its pods, its acknowledgement.
    pub(super) fn finish_grace(
        &mut self,
        now: Boottime,
        processes: &mut Processes,
        without: Without,
    ) {
        if let Some(grace) = self.grace.take_if(|grace| grace.until <= now) {
            self.finish(grace.rest, now, processes, without);
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
        let clock = self.clock(now);
        let Ok(step) = self.agent.receive(down, clock) else {
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
            self.finish(rest, now, processes, without);
            return true;
        }
        self.kernel.fading_until = now + GRACE;
        if without == Without::GraceBeforeGrant {
            self.grant(rest.lease_until.take(), now, without);
        }
        let until = now + GRACE;
        self.grace = Some(Grace { until, rest });
        true
    }

    fn finish(&mut self, rest: Rest, now: Boottime, processes: &mut Processes, without: Without) {
        self.grant(rest.lease_until, now, without);
        if rest.run_complete {
            self.runtime.stop_others(&rest.run, now, processes);
        }
        for spec in rest.run {
            self.runtime.run(spec, self.index, now, processes);
        }
        self.agent.applied(rest.seq);
    }

    fn grant(&mut self, lease_until: Option<Boottime>, now: Boottime, without: Without) {
        let Some(until) = lease_until else { return };
        self.kernel.lease_until = until;
        if without != Without::GrantEndsStale {
            self.kernel.stale = false;
        }
        self.stale.granted(LEASE, self.clock(now));
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
