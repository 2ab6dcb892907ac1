//! Simulation of both halves of the stream in virtual time, with late messages, lost streams, frozen and restarted
//! agents and restarted roots: no packet is sent to a removed pod. Leaving out any one rule makes a run fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_fleet::lease::Terms;
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::{Down, Entry, NodeConfig, Up};
use dormouse_fleet::root::{Next, Root, Session, Settling};
use dormouse_fleet::{Boottime, ServerConfig};

const NODES: usize = 5;
const VIPS: u32 = 4;
const TICK: Duration = Duration::from_millis(20);
/// Longest time a kernel program takes from reading an entry to sending the packet.
const GRACE: Duration = Duration::from_millis(60);
const TICKS: u32 = 4_000;
const TERMS: Terms = Terms {
    lease: Duration::from_secs(1),
};

/// The rule that a run leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    KernelCheck,
    LeaseFromSending,
    AcknowledgeInForce,
    SettleWait,
    NewRootWaits,
    GrantInOrder,
    GraceBeforeGrant,
    EndedSessionsCount,
}

/// xorshift64*: a run is its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The kernel of a node, which handles packets also while the agent is frozen.
#[derive(Default)]
struct Kernel {
    /// Backends of each VIP in serve mode.
    words: BTreeMap<u32, BTreeSet<u64>>,
    lease_until: Boottime,
    /// Replaced words that a running program may still use until `fading_until`.
    fading: BTreeMap<u32, BTreeSet<u64>>,
    fading_until: Boottime,
}

struct Machine {
    kernel: Kernel,
    agent: Node,
    session: Option<Session>,
    frozen_until: Boottime,
    /// Rate of its clock against the root's, in parts per million.
    drift_ppm: i64,
    up: VecDeque<(Boottime, Up)>,
    down: VecDeque<(Boottime, Down)>,
    /// A message whose entries are applied, while the kernel may still use the replaced words.
    grace: Option<Grace>,
}

impl Machine {
    fn clock(&self, now: Boottime) -> Boottime {
        let drift = i128::from(now.0) * i128::from(self.drift_ppm) / 1_000_000;
        Boottime(u64::try_from(i128::from(now.0) + drift).unwrap())
    }
}

/// The rest of a message, to be applied when no program can use the replaced words.
struct Grace {
    until: Boottime,
    seq: u64,
    lease_until: Option<Boottime>,
}

/// Model of the app controller: the store, the running pods, and the removals that wait for settling.
struct Apps {
    revision: u64,
    pods: BTreeMap<u32, BTreeSet<u64>>,
    running: BTreeSet<u64>,
    removing: Vec<(u32, u64, u64)>,
}

struct World {
    without: Without,
    random: Random,
    now: Boottime,
    root: Root,
    epoch: u64,
    machines: Vec<Machine>,
    apps: Apps,
    removed: usize,
}

fn agent(index: usize, installed: &[u32]) -> Node {
    Node::new(format!("n{index}"), "boot".into(), "0".into(), installed)
}

fn root(epoch: u64, started: Boottime) -> Root {
    let config = ServerConfig {
        lease: TERMS.lease,
        epoch,
        node_config: NodeConfig::default(),
        boot_id: "boot".into(),
    };
    Root::new(config, started)
}

impl World {
    fn new(seed: u64, without: Without) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let machines = (0..NODES)
            .map(|index| Machine {
                kernel: Kernel::default(),
                agent: agent(index, &[]),
                session: None,
                frozen_until: Boottime(0),
                drift_ppm: i64::try_from(random.below(1_800)).unwrap() - 900,
                up: VecDeque::new(),
                down: VecDeque::new(),
                grace: None,
            })
            .collect();
        let apps = Apps {
            revision: 1,
            pods: (0..VIPS).map(|vip| (vip, BTreeSet::new())).collect(),
            running: BTreeSet::new(),
            removing: Vec::new(),
        };
        let now = Boottime(10_000_000_000);
        let root = root(1, Boottime(0));
        Self {
            without,
            random,
            now,
            root,
            epoch: 1,
            machines,
            apps,
            removed: 0,
        }
    }

    /// Runs all ticks. Fails at the first packet sent to a removed pod.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..TICKS {
            self.now = self.now + TICK;
            self.change_apps();
            self.settle();
            for index in 0..NODES {
                self.disturb(index);
                self.deliver(index);
                self.step_agent(index);
                self.send_packets(index)?;
            }
            if self.random.once_in(400) {
                self.restart_root();
            }
        }
        Ok(())
    }

    fn entry(&self, vip: u32, settle: bool) -> Entry {
        let pods = self.apps.pods[&vip].iter();
        let backends = pods.flat_map(|pod| pod.to_be_bytes()).collect();
        let version = self.apps.revision;
        Entry {
            vip,
            version,
            mode: 1,
            backends,
            settle,
            leased: true,
            ..Entry::default()
        }
    }

    fn change_apps(&mut self) {
        let vip = u32::try_from(self.random.below(u64::from(VIPS))).unwrap();
        self.apps.revision += 1;
        let revision = self.apps.revision;
        let pods = self.apps.pods.get_mut(&vip).unwrap();
        if pods.len() < 2 && self.random.once_in(8) {
            pods.insert(revision);
            self.apps.running.insert(revision);
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
        self.removed += before - self.apps.removing.len();
    }

    fn disturb(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if self.random.once_in(150) {
            let nanoseconds = self.random.below(4_000) * 1_000_000;
            machine.frozen_until = self.now + Duration::from_nanos(nanoseconds);
        }
        if self.random.once_in(120) {
            self.lose_stream(index);
        }
        if self.random.once_in(300) {
            self.lose_stream(index);
            let machine = &mut self.machines[index];
            let installed: Vec<u32> = machine.kernel.words.keys().copied().collect();
            machine.agent = agent(index, &installed);
            machine.grace = None;
        }
    }

    /// The root learns of it at once, the agent at its next step. Messages in flight are lost.
    fn lose_stream(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if let Some(session) = machine.session.take() {
            self.root.end(session, self.now);
        }
        machine.agent.close();
        machine.up.clear();
        machine.down.clear();
        machine.grace = None;
        if self.without == Without::EndedSessionsCount {
            // The node's followed VIPs are deleted with the stream.
            while self.root.expire(Boottime(u64::MAX)).is_some() {}
        }
    }

    fn restart_root(&mut self) {
        for index in 0..NODES {
            self.lose_stream(index);
        }
        self.epoch += 1;
        let started = if self.without == Without::NewRootWaits {
            Boottime(0)
        } else {
            self.now
        };
        self.root = root(self.epoch, started);
        for vip in 0..VIPS {
            let entry = self.entry(vip, false);
            self.root.publish(entry);
        }
    }

    /// Delivers messages with random delays, in order.
    fn deliver(&mut self, index: usize) {
        let now = self.now;
        let delay = Duration::from_millis(self.random.below(300));
        let late = self.random.once_in(20);
        let machine = &mut self.machines[index];
        let Some(session) = machine.session else {
            return;
        };
        while machine.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, up) = machine.up.pop_front().unwrap();
            self.root.receive(session, up, now);
        }
        if let Next::Send(down) = self.root.next(session, now) {
            let earliest = machine.down.back().map_or(now, |(at, _)| *at);
            if let Some(grant) = &down.grant
                && self.without == Without::GrantInOrder
                && now >= machine.frozen_until
            {
                machine.kernel.lease_until = Boottime(grant.beat_ns) + TERMS.lease;
            }
            let at = if late { now + delay } else { now + TICK };
            machine.down.push_back((at.max(earliest), *down));
        }
    }

    fn step_agent(&mut self, index: usize) {
        let (now, without) = (self.now, self.without);
        let machine = &mut self.machines[index];
        if now < machine.frozen_until {
            return;
        }
        let clock = machine.clock(now);
        if machine.session.is_none() {
            let mut up = machine.agent.open(clock);
            let session = self.root.hello(up.hello.take().unwrap()).unwrap().session;
            machine.session = Some(session);
            machine.up.push_back((now, up));
        }
        if let Some(grace) = machine.grace.take_if(|grace| grace.until <= now) {
            machine.kernel.lease_until = grace.lease_until.unwrap_or(machine.kernel.lease_until);
            machine.agent.applied(grace.seq);
        }
        while machine.grace.is_none() && machine.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, down) = machine.down.pop_front().unwrap();
            receive(machine, down, now, without);
        }
        let miss = u32::try_from(self.random.below(u64::from(VIPS))).unwrap();
        if !machine.kernel.words.contains_key(&miss) {
            machine.agent.missed(miss, clock);
        }
        if let Some(up) = machine.agent.next(clock) {
            let at = now + Duration::from_millis(self.random.below(60));
            let earliest = machine.up.back().map_or(now, |(at, _)| *at);
            machine.up.push_back((at.max(earliest), up));
        }
    }

    /// Opens a connection to every VIP on this node, also while its agent is frozen.
    fn send_packets(&self, index: usize) -> Result<(), String> {
        let machine = &self.machines[index];
        let leased = machine.clock(self.now) < machine.kernel.lease_until;
        if !leased && self.without != Without::KernelCheck {
            return Ok(());
        }
        let fades = self.now < machine.kernel.fading_until;
        let fading = machine.kernel.fading.iter().filter(|_| fades);
        for (vip, pods) in machine.kernel.words.iter().chain(fading) {
            if let Some(pod) = pods.iter().find(|pod| !self.apps.running.contains(pod)) {
                return Err(format!("n{index} sent to removed pod {pod} of VIP {vip}"));
            }
        }
        Ok(())
    }
}

/// Applies a message as an agent does: entries, grace period, lease, acknowledgement.
fn receive(machine: &mut Machine, down: Down, now: Boottime, without: Without) {
    let clock = machine.clock(now);
    let step = machine.agent.receive(down, clock).unwrap();
    if now >= machine.kernel.fading_until {
        machine.kernel.fading.clear();
    }
    for entry in step.entries {
        let (pods, _) = entry.backends.as_chunks::<8>();
        let pods = pods.iter().map(|pod| u64::from_be_bytes(*pod)).collect();
        let old = machine.kernel.words.insert(entry.vip, pods);
        machine
            .kernel
            .fading
            .extend(old.map(|old| (entry.vip, old)));
    }
    let from_receipt = without == Without::LeaseFromSending;
    let lease_until = step.lease_until.map(|until| {
        if from_receipt {
            clock + TERMS.lease
        } else {
            until
        }
    });
    if step.grace {
        machine.kernel.fading_until = now + GRACE;
    }
    let grace = Grace {
        until: now + GRACE,
        seq: step.seq,
        lease_until,
    };
    if !step.grace || without == Without::GraceBeforeGrant {
        machine.kernel.lease_until = lease_until.unwrap_or(machine.kernel.lease_until);
    }
    if !step.grace || without == Without::AcknowledgeInForce {
        machine.agent.applied(step.seq);
    }
    machine.grace = step.grace.then_some(grace);
}

#[test]
fn no_packet_is_sent_to_a_removed_pod() {
    let mut removed = 0;
    for seed in 1..=60 {
        let mut world = World::new(seed, Without::Nothing);
        world
            .run()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        removed += world.removed;
    }
    assert!(
        removed > 1_000,
        "only {removed} pods were removed: too few to prove anything"
    );
}

#[test]
fn without_changes_every_node_gets_the_newest_entry_of_each_vip_that_it_follows() {
    let mut world = World::new(7, Without::Nothing);
    world.run().unwrap();
    for _ in 0..500 {
        world.now = world.now + TICK;
        world.settle();
        for index in 0..NODES {
            world.deliver(index);
            world.step_agent(index);
        }
    }
    assert!(world.apps.removing.is_empty(), "everything settles");
    for machine in &world.machines {
        assert!(
            machine.clock(world.now) < machine.kernel.lease_until,
            "the lease is renewed"
        );
        for (vip, pods) in &machine.kernel.words {
            assert_eq!(pods, &world.apps.pods[vip]);
        }
    }
}

#[test]
fn leaving_out_any_rule_is_detected() {
    for without in [
        Without::KernelCheck,
        Without::LeaseFromSending,
        Without::AcknowledgeInForce,
        Without::SettleWait,
        Without::NewRootWaits,
        Without::GrantInOrder,
        Without::GraceBeforeGrant,
        Without::EndedSessionsCount,
    ] {
        let caught = (1..=300).any(|seed| World::new(seed, without).run().is_err());
        assert!(caught, "no run failed without {without:?}");
    }
}
