//! The world of the simulation: the API, the members with their Leases, and what happens to them.

mod changes;
mod effects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_scheduler_decide::{PodKey, Profile};
use dormouse_scheduler_shard::{
    Effect, Leader, Limits, Member, Object, Output, Relay, Renewal, Seen, Sent, Shard,
};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;

use super::api::Api;
use super::network::{Flying, Network};
use super::shadow::Shadow;

const TICK: Duration = Duration::from_millis(5);
const LEASE: Duration = Duration::from_millis(600);
const RENEWAL: Duration = Duration::from_millis(200);
/// The time of changes and faults.
const STORM: Duration = Duration::from_secs(8);
/// The time after which everything must have ended.
const END: Duration = Duration::from_mins(1);
const NODES: usize = 12;
const PODS: usize = 45;

/// What may go wrong.
#[derive(Clone, Copy)]
pub(super) struct Faults {
    pub(super) crashes: bool,
    pub(super) window: usize,
    pub(super) straggler: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            crashes: false,
            window: 1,
            straggler: None,
        }
    }
}

/// A process that is not the leader.
enum Process {
    Relay(Box<Relay>),
    Shard(Box<Shard>),
}

/// A process, or the time at which it starts again.
struct Machine {
    member: Member,
    process: Option<Process>,
    starts_at: Duration,
}

pub(super) struct World {
    faults: Faults,
    random: Rng,
    now: Duration,
    network: Network,
    pub(super) api: Api,
    leader: Option<Leader>,
    leader_member: Member,
    leader_starts_at: Duration,
    machines: BTreeMap<String, Machine>,
    /// Pods that no node could have, until something changes.
    parked: BTreeSet<PodKey>,
    /// Bindings on the way to the API.
    bindings: Vec<(Duration, Effect)>,
    /// Only where every decision is compared.
    pub(super) shadow: Option<Shadow>,
    pods_made: usize,
    pub(super) crashes: usize,
    seen_before: Seen,
    missing: usize,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Rng::with_seed(seed);
        let is_compared = !faults.crashes && faults.window == 1 && faults.straggler.is_none();
        let relays = random.usize(0..4);
        let shards = random.usize(1..6);
        let names = (0..relays).map(|at| format!("relay-{at}"));
        let names = names.chain((0..shards).map(|at| format!("shard-{at}")));
        let machine = |name: String| {
            let member = Member {
                name: name.clone(),
                incarnation: 0,
                address: String::new(),
            };
            let machine = Machine {
                member,
                process: None,
                starts_at: Duration::ZERO,
            };
            (name, machine)
        };
        let mut world = Self {
            faults,
            now: Duration::ZERO,
            network: Network::default(),
            api: Api::default(),
            leader: None,
            leader_member: Member {
                name: "leader".to_owned(),
                incarnation: 0,
                address: String::new(),
            },
            leader_starts_at: Duration::ZERO,
            machines: names.map(machine).collect(),
            parked: BTreeSet::new(),
            bindings: Vec::new(),
            shadow: is_compared.then(Shadow::new),
            pods_made: 0,
            crashes: 0,
            seen_before: Seen::default(),
            missing: 0,
            random,
        };
        for at in 0..NODES {
            world.add_node(&format!("n{at}"));
        }
        world
    }

    /// Runs until all pods have an end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while self.now < END {
            self.now += TICK;
            if self.now < STORM {
                self.change();
                self.disturb();
            }
            self.start();
            self.deliver();
            self.bind()?;
            self.step()?;
            if self.now > STORM && self.is_quiet() {
                return self.check();
            }
        }
        let leader = self.leader.as_ref();
        let pending = leader.map(|leader| (leader.pending_len(), leader.view().clone()));
        let seen = self.seen();
        Err(format!("not all pods have an end: {pending:?}, {seen:?}"))
    }

    pub(super) fn repeated(&self) -> usize {
        self.seen().repeated.try_into().unwrap()
    }

    pub(super) fn inexact(&self) -> u64 {
        self.seen().inexact
    }

    /// The shards without which decisions were made, all together.
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// Of all leaders.
    fn seen(&self) -> Seen {
        let (before, now) = (self.seen_before, self.leader.as_ref().map(Leader::seen));
        let now = now.unwrap_or_default();
        Seen {
            decided: before.decided + now.decided,
            inexact: before.inexact + now.inexact,
            repeated: before.repeated + now.repeated,
            views: before.views + now.views,
        }
    }

    fn start(&mut self) {
        for machine in self.machines.values_mut() {
            if machine.process.is_some() || self.now < machine.starts_at {
                continue;
            }
            machine.member.incarnation += 1;
            let (me, profile) = (machine.member.clone(), Profile::default());
            let straggler = self.faults.straggler;
            machine.process = Some(if me.name.starts_with("relay") {
                Process::Relay(Box::new(Relay::new(me, profile, straggler)))
            } else {
                Process::Shard(Box::new(Shard::new(me, profile)))
            });
        }
        if self.leader.is_none() && self.now >= self.leader_starts_at {
            self.start_leader();
        }
    }

    /// The leader has a later term, and begins with what the API has.
    fn start_leader(&mut self) {
        self.api.term += 1;
        self.leader_member.incarnation += 1;
        let limits = Limits {
            fan_out: 2,
            window: self.faults.window,
            attempt: Duration::from_secs(5),
            resend: Duration::from_millis(500),
            straggler: self.faults.straggler,
        };
        let me = self.leader_member.clone();
        let mut leader = Leader::new(me, &Profile::default(), limits, self.api.term);
        for node in self.api.nodes.values() {
            leader.set_node(node.clone()).unwrap();
        }
        for pod in self.api.pods.values() {
            match &pod.node {
                None => {
                    leader.set_pod(pod.object.clone()).unwrap();
                    leader.submit(pod.object.clone()).unwrap();
                }
                Some(node) => {
                    let mut bound = Pod::clone(&pod.object);
                    bound.spec.as_mut().unwrap().node_name = Some(node.clone());
                    leader.set_pod(Object::new(bound)).unwrap();
                }
            }
        }
        self.parked.clear();
        self.leader = Some(leader);
    }

    fn deliver(&mut self) {
        while let Some(flying) = self.network.arrived(self.now) {
            let Flying { from, to, message } = flying;
            if to.name == self.leader_member.name {
                let leader = self.leader.as_mut();
                if let Some(leader) = leader.filter(|_| to == self.leader_member) {
                    leader.receive(&from, message, self.now);
                }
                continue;
            }
            let machine = self.machines.get_mut(&to.name).unwrap();
            let process = machine.process.as_mut().filter(|_| machine.member == to);
            let sent = match process {
                Some(Process::Relay(relay)) => relay.receive(&from, message, self.now),
                Some(Process::Shard(shard)) => shard.receive(&from, message),
                None => Sent::new(),
            };
            self.send(&to, sent);
        }
    }

    fn send(&mut self, from: &Member, sent: Sent) {
        for (to, message) in sent {
            let from = from.clone();
            let flying = Flying { from, to, message };
            self.network.send(self.now, flying, &mut self.random);
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let now = self.now;
        let is_renewal = now.as_millis().is_multiple_of(RENEWAL.as_millis());
        let mut sent = Vec::new();
        for machine in self.machines.values_mut() {
            let Some(process) = &mut machine.process else {
                continue;
            };
            if let Process::Relay(relay) = process {
                sent.push((machine.member.clone(), relay.tick(now)));
            }
            if let Some(leader) = self.leader.as_mut().filter(|_| is_renewal) {
                let renewal = Renewal {
                    member: machine.member.clone(),
                    is_shard: matches!(process, Process::Shard(_)),
                    lease: LEASE,
                };
                leader.set_members(vec![renewal], &[], now);
            }
        }
        for (from, sent) in sent {
            self.send(&from, sent);
        }
        let Some(leader) = &mut self.leader else {
            return Ok(());
        };
        leader.tick(now);
        for output in leader.outputs(now) {
            match output {
                Output::Send(to, message) => {
                    let from = self.leader_member.clone();
                    self.send(&from, vec![(to, message)]);
                }
                Output::Effect(effect) => self.apply(effect)?,
            }
        }
        let in_flight = self.leader.as_ref().map_or(0, Leader::in_flight_len);
        if let Some(shadow) = &mut self.shadow {
            match in_flight {
                0 => shadow.catch_up(),
                _ => shadow.begun(),
            }
        }
        Ok(())
    }
}
