//! The world of the simulation: control with its apps, the activator, the network, and the nodes.

mod splits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_fleet::proto::{Entry, NodeConfig};
use dormouse_fleet::root::{Root, Settling};
use dormouse_fleet::{Backend, Boottime, ServerConfig};
use dormouse_fleet_simulation::Random;

use self::splits::{Split, backend};
use super::machine::Machine;
use super::{NODES, TERMS, TICK, VIPS, Without};

/// Model of the app controller: the store, the running pods, and the removals that wait for settling.
pub(super) struct Apps {
    revision: u64,
    pub(super) pods: BTreeMap<u32, BTreeSet<u64>>,
    /// The targets of the connections to the divided VIP, in percent; none: its own pods have them.
    split: Split,
    /// The revision of the last change of that.
    divided_at: u64,
    /// The VIP of each pod that has ever run.
    owners: BTreeMap<u64, u32>,
    running: BTreeSet<u64>,
    pub(super) removing: Vec<(u32, u64, u64)>,
    /// VIPs without an app now.
    pub(super) absent: BTreeSet<u32>,
    /// VIPs that the root asked for, with the time of the answer.
    asked: Vec<(Boottime, u32)>,
}

/// What has happened, so that a run that proves nothing fails.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Pods that were removed.
    pub(super) removed: usize,
    /// Connections to running pods by an entry whose lease was over.
    pub(super) stale: usize,
    /// Connections to awake apps that a node refused: its lease was over, and no activator could be reached.
    pub(super) refused: usize,
}

pub(super) struct World {
    without: Without,
    random: Random,
    pub(super) now: Boottime,
    root: Root,
    epoch: u64,
    pub(super) machines: Vec<Machine>,
    pub(super) apps: Apps,
    /// Control does not run until then.
    control_dead_until: Boottime,
    /// No activator runs until then.
    activator_dead_until: Boottime,
    pub(super) seen: Seen,
}

fn root(epoch: u64, started: Boottime) -> Root {
    let config = ServerConfig {
        lease: TERMS.lease,
        epoch,
        node_config: NodeConfig::default(),
        boot_id: "boot".into(),
        reserved: Vec::new(),
        own: Vec::new(),
    };
    let mut root = Root::new(config, started);
    // Roots follow one another; the simulation of all of control has several at once.
    root.confirmed(Boottime(u64::MAX), started);
    root
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let mut random = Random::new(seed);
        let machines = (0..NODES)
            .map(|index| Machine::new(index, without, &mut random))
            .collect();
        let apps = Apps {
            revision: 1,
            pods: (0..VIPS).map(|vip| (vip, BTreeSet::new())).collect(),
            split: &[],
            divided_at: 0,
            owners: BTreeMap::new(),
            running: BTreeSet::new(),
            removing: Vec::new(),
            absent: BTreeSet::new(),
            asked: Vec::new(),
        };
        Self {
            without,
            random,
            now: Boottime(10_000_000_000),
            root: root(1, Boottime(0)),
            epoch: 1,
            machines,
            apps,
            control_dead_until: Boottime(0),
            activator_dead_until: Boottime(0),
            seen: Seen::default(),
        }
    }

    /// Runs `ticks` with all faults. Fails at the first packet sent to a removed pod.
    pub(super) fn run(&mut self, ticks: u32) -> Result<(), String> {
        for _ in 0..ticks {
            if self.random.once_in(400) {
                self.kill_control();
            }
            self.tick(Self::disturb)?;
        }
        Ok(())
    }

    /// Runs `ticks` without faults.
    pub(super) fn run_calmly(&mut self, ticks: u32) -> Result<(), String> {
        (0..ticks).try_for_each(|_| self.tick(|_, _| {}))
    }

    /// Runs `ticks` without faults and without changes of apps.
    pub(super) fn run_still(&mut self, ticks: u32) -> Result<(), String> {
        for _ in 0..ticks {
            self.now = self.now + TICK;
            self.answer();
            self.settle();
            for index in 0..NODES {
                self.step(index)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self, disturb: impl Fn(&mut Self, usize)) -> Result<(), String> {
        self.now = self.now + TICK;
        if self.has_control() {
            self.change_apps();
            self.answer();
            self.settle();
        }
        for index in 0..NODES {
            disturb(self, index);
            self.step(index)?;
        }
        Ok(())
    }

    fn step(&mut self, index: usize) -> Result<(), String> {
        self.deliver(index);
        self.step_agent(index)?;
        self.send_packets(index)
    }

    fn has_control(&self) -> bool {
        self.control_dead_until <= self.now
    }

    fn reaches_control(&self, index: usize) -> bool {
        self.has_control() && self.machines[index].node.control_cut_until <= self.now
    }

    fn reaches_activator(&self, index: usize) -> bool {
        self.activator_dead_until <= self.now
            && self.machines[index].node.activator_cut_until <= self.now
    }

    fn entry(&self, vip: u32, settle: bool) -> Entry {
        let backends: Vec<_> = self.apps.pods[&vip].iter().copied().map(backend).collect();
        let version = self.apps.revision;
        Entry {
            vip,
            version,
            mode: 1,
            backends: Backend::pack(&backends),
            split: self.targets(vip),
            settle,
            leased: true,
            asleep: self.apps.pods[&vip].is_empty(),
            gone: self.apps.absent.contains(&vip) && self.without != Without::GoneUnfollowed,
            ..Entry::default()
        }
    }

    fn change_apps(&mut self) {
        self.change_split();
        let vip = u32::try_from(self.random.below(u64::from(VIPS))).unwrap();
        self.apps.revision += 1;
        let revision = self.apps.revision;
        if self.apps.absent.contains(&vip) {
            if self.random.once_in(20) {
                self.apps.absent.remove(&vip);
                let entry = self.entry(vip, false);
                self.root.publish(entry);
            }
            return;
        }
        let may_be_absent = self.may_be_absent(vip);
        let pods = self.apps.pods.get_mut(&vip).unwrap();
        if pods.is_empty() && may_be_absent && self.random.once_in(60) {
            self.apps.absent.insert(vip);
            self.end_split(vip);
            let entry = self.entry(vip, true);
            self.root.publish(entry);
        } else if pods.len() < 2 && self.random.once_in(8) {
            self.start_pod(vip);
            let entry = self.entry(vip, false);
            self.root.publish(entry);
        } else if let Some(pod) = pods.first().copied()
            && self.random.once_in(12)
        {
            pods.remove(&pod);
            self.apps.removing.push((vip, revision, pod));
            let entry = self.entry(vip, true);
            self.root.publish(entry);
        }
    }

    fn start_pod(&mut self, vip: u32) {
        let pod = self.apps.revision;
        self.apps.pods.entry(vip).or_default().insert(pod);
        self.apps.owners.insert(pod, vip);
        self.apps.running.insert(pod);
    }

    /// Control answers for the VIPs that nodes follow, later than the other events.
    fn answer(&mut self) {
        for vip in self.root.wanted(usize::MAX) {
            let delay = self.random.period(2_000);
            self.apps.asked.push((self.now + delay, vip));
        }
        let asked = std::mem::take(&mut self.apps.asked);
        let (due, later) = asked.into_iter().partition(|(at, _)| *at <= self.now);
        self.apps.asked = later;
        let due: Vec<(Boottime, u32)> = due;
        for (_, vip) in due {
            let entry = self.entry(vip, false);
            if entry.gone {
                self.root.absent(vip);
            } else {
                self.root.publish(entry);
            }
        }
    }

    fn settle(&mut self) {
        let (root, now, without) = (&self.root, self.now, self.without);
        let running = &mut self.apps.running;
        let before = self.apps.removing.len();
        self.apps.removing.retain(|(vip, version, pod)| {
            let settled = without == Without::SettleWait
                || root.settling(*vip, *version, now) == Settling::Settled;
            if settled {
                running.remove(pod);
            }
            !settled
        });
        self.seen.removed += before - self.apps.removing.len();
    }

    /// Fails if a node follows a VIP that does not exist, or does not follow the one to which its pods send.
    pub(super) fn follows_what_exists(&self) -> Result<(), String> {
        for (index, machine) in self.machines.iter().enumerate() {
            let absent = &self.apps.absent;
            let words = &machine.kernel.words;
            if words.keys().any(|vip| absent.contains(vip)) {
                let vips: Vec<_> = words.keys().collect();
                return Err(format!(
                    "n{index} follows {vips:?}, of which {absent:?} are gone"
                ));
            }
            let favourite = &machine.favourite;
            if !absent.contains(favourite) && !words.contains_key(favourite) {
                let agent = &machine.node.agent;
                return Err(format!(
                    "n{index} does not follow VIP {favourite}: {agent:?}"
                ));
            }
        }
        Ok(())
    }

    fn disturb(&mut self, index: usize) {
        let pause = self.random.period(4_000);
        let node = &mut self.machines[index].node;
        if self.random.once_in(150) {
            node.frozen_until = self.now + pause;
        }
        if self.random.once_in(300) {
            node.control_cut_until = self.now + pause;
            if self.random.once_in(2) {
                node.activator_cut_until = self.now + pause;
            }
            self.lose_stream(index);
        }
        if self.random.once_in(120) {
            self.lose_stream(index);
        }
        if self.random.once_in(300) {
            self.lose_stream(index);
            self.machines[index].restart(index);
        }
    }

    /// The root learns of it at once, the agent at its next step. Messages in flight are lost.
    fn lose_stream(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.grace = None;
        if let Some(session) = machine.node.close() {
            self.root.end(session, self.now);
        }
        if self.without == Without::EndedSessionsCount {
            // The node's followed VIPs are deleted with the stream.
            while self.root.expire(Boottime(u64::MAX)).is_some() {}
        }
    }

    /// Control is killed, sometimes with the activator, and starts again later with a new epoch.
    fn kill_control(&mut self) {
        let pause = self.random.period(3_000);
        let both = self.random.once_in(2);
        self.kill_control_for(pause, both);
    }

    pub(super) fn kill_control_for(&mut self, pause: Duration, with_activator: bool) {
        for index in 0..NODES {
            self.lose_stream(index);
        }
        self.control_dead_until = self.now + pause;
        if with_activator {
            self.activator_dead_until = self.control_dead_until;
        }
        self.epoch += 1;
        let started = if self.without == Without::NewRootWaits {
            Boottime(0)
        } else {
            self.control_dead_until
        };
        self.root = root(self.epoch, started);
        self.apps.asked.clear();
    }

    /// Delivers messages with random delays, in order.
    fn deliver(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.machines[index].node);
        let Some(session) = node.session else {
            return;
        };
        while let Some(up) = node.received(now) {
            self.root.receive(session, up, now);
        }
        let next = self.root.next(session, now);
        node.send(next, now, TICK, &mut self.random);
    }

    fn step_agent(&mut self, index: usize) -> Result<(), String> {
        let (now, without) = (self.now, self.without);
        let (control, activator) = (self.reaches_control(index), self.reaches_activator(index));
        let machine = &mut self.machines[index];
        if now < machine.node.frozen_until {
            return Ok(());
        }
        let clock = machine.node.clock(now);
        if machine.node.session.is_none() && control {
            let mut up = machine.node.agent.open(clock);
            let opened = self.root.hello(up.hello.take().unwrap()).unwrap();
            machine.node.opened(opened.session, up, now);
        }
        machine.node.probe(activator, now);
        machine.finish_grace(now);
        machine.end_drops(now);
        while machine.grace.is_none()
            && let Some(down) = machine.node.arrived(now)
        {
            machine.receive(down, now, without);
        }
        let other = u32::try_from(self.random.below(u64::from(VIPS))).unwrap();
        for vip in [machine.favourite, other] {
            machine.meet(vip, now);
        }
        machine.count(now, without);
        if machine.node.agent.are_drops_due(clock) || self.random.once_in(30) {
            machine.begin_drops(now, without)?;
        }
        machine.node.report(now, &mut self.random);
        Ok(())
    }

    /// Opens a connection to every VIP on this node, also while its agent is frozen.
    fn send_packets(&mut self, index: usize) -> Result<(), String> {
        let activator = self.reaches_activator(index);
        let (machine, running) = (&self.machines[index], &self.apps.running);
        let kernel = &machine.kernel;
        let leased = machine.node.is_leased(self.now) || self.without == Without::KernelCheck;
        let awake = kernel.words.values();
        let awake = awake.filter(|word| word.pods.keys().any(|pod| running.contains(pod)));
        if !leased && !machine.node.is_stale {
            self.seen.refused += if activator { 0 } else { awake.count() };
            return Ok(());
        }
        if !leased {
            self.seen.stale += awake.count();
        }
        if !leased && machine.node.is_alone(TICK) {
            return Ok(());
        }
        let stale = machine.node.is_stale;
        for (vip, word) in kernel.usable(self.now, stale) {
            if let Some(pod) = word.pods.keys().find(|pod| !running.contains(pod)) {
                return Err(format!("n{index} sent to removed pod {pod} of VIP {vip}"));
            }
            if !stale {
                self.check_shares(*vip, word)?;
            }
        }
        Ok(())
    }
}
