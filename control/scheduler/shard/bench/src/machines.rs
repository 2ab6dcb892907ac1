//! Simulated machines: one for each member, which handles one message after another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dormouse_scheduler_decide::Profile;
use dormouse_scheduler_shard::{
    Effect, Leader, Limits, Member, Message, Output, Relay, Renewal, Sent, Shard,
};

use crate::objects;

/// Messages without which a pod has been bound, after which a run is stuck.
const MESSAGES_MAX: usize = 10_000_000;
/// Nothing expires: no member crashes.
const NEVER: Duration = Duration::from_hours(1_000);

/// The cluster and its members.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) shards: usize,
    pub(crate) nodes: usize,
    pub(crate) window: usize,
    pub(crate) fan_out: usize,
    pub(crate) delay: Duration,
}

/// The cost of a pod.
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) leader: Duration,
    pub(crate) relay: Duration,
    pub(crate) shard: Duration,
    pub(crate) shards: Duration,
    pub(crate) codec: Duration,
    pub(crate) messages: f64,
    pub(crate) bytes: f64,
}

/// The process of a machine.
enum Process {
    Leader(Box<Leader>),
    Relay(Box<Relay>),
    Shard(Box<Shard>),
}

struct Machine {
    member: Member,
    process: Process,
    busy_until: Duration,
    /// The time that handling took.
    cpu: Duration,
}

/// An encoded message.
struct Flying {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

/// All machines; the leader is the first.
pub(crate) struct Machines {
    shape: Shape,
    all: Vec<Machine>,
    by_name: BTreeMap<String, usize>,
    /// By the time of their arrival, and a number.
    flying: BTreeMap<(Duration, u64), Flying>,
    number: u64,
    number_before: u64,
    pods: usize,
    bound: usize,
    now: Duration,
    began: Duration,
    codec: Duration,
    bytes: usize,
}

fn member(name: String) -> Member {
    Member {
        name,
        incarnation: 1,
        address: String::new(),
    }
}

fn renewal(member: &Member, is_shard: bool) -> Renewal {
    Renewal {
        member: member.clone(),
        is_shard,
        lease: NEVER,
    }
}

/// As many relays as the shards need, and each other above.
fn relays_len(shape: Shape) -> usize {
    if shape.shards <= shape.fan_out {
        return 0;
    }
    shape.shards.div_ceil(shape.fan_out)
}

impl Machines {
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        let limits = Limits {
            fan_out: shape.fan_out,
            window: shape.window,
            attempt: NEVER,
            resend: NEVER,
            straggler: None,
        };
        let me = member("leader".to_owned());
        let profile = Profile::default();
        let mut leader = Leader::new(me.clone(), &profile, limits, 1);
        for index in 0..shape.nodes {
            let node = objects::node(index)?;
            leader.set_node(node).context("a node is malformed")?;
        }
        let (mut processes, mut members) = (Vec::new(), Vec::new());
        for index in 0..relays_len(shape) {
            let relay = member(format!("relay-{index:04}"));
            members.push(renewal(&relay, false));
            let process = Relay::new(relay.clone(), profile.clone(), None);
            processes.push((relay, Process::Relay(Box::new(process))));
        }
        for index in 0..shape.shards {
            let shard = member(format!("shard-{index:04}"));
            members.push(renewal(&shard, true));
            let process = Shard::new(shard.clone(), profile.clone());
            processes.push((shard, Process::Shard(Box::new(process))));
        }
        leader.set_members(members, &[], Duration::ZERO);
        processes.insert(0, (me, Process::Leader(Box::new(leader))));
        let machines = processes.into_iter().map(|(member, process)| Machine {
            member,
            process,
            busy_until: Duration::ZERO,
            cpu: Duration::ZERO,
        });
        let machines: Vec<Machine> = machines.collect();
        let by_name = machines.iter().enumerate();
        Ok(Self {
            by_name: by_name
                .map(|(at, machine)| (machine.member.name.clone(), at))
                .collect(),
            all: machines,
            shape,
            flying: BTreeMap::new(),
            number: 0,
            number_before: 0,
            pods: 0,
            bound: 0,
            now: Duration::ZERO,
            began: Duration::ZERO,
            codec: Duration::ZERO,
            bytes: 0,
        })
    }

    /// Binds so many pods more.
    pub(crate) fn bind(&mut self, pods: usize) -> Result<()> {
        for _ in 0..pods {
            let pod = objects::pod(self.pods)?;
            self.pods += 1;
            if let Process::Leader(leader) = &mut self.all[0].process {
                leader.submit(pod).context("a pod is malformed")?;
            }
        }
        self.lead()?;
        for _ in 0..MESSAGES_MAX {
            if self.bound == self.pods {
                return Ok(());
            }
            let Some((arrival, flying)) = self.flying.pop_first() else {
                bail!("{} of {} pods are bound", self.bound, self.pods);
            };
            self.handle(arrival.0, &flying)?;
        }
        bail!("too many messages")
    }

    /// What was before is not measured.
    pub(crate) fn begin_measurement(&mut self) {
        self.began = self.now;
        self.number_before = self.number;
        (self.codec, self.bytes) = (Duration::ZERO, 0);
        for machine in &mut self.all {
            machine.cpu = Duration::ZERO;
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "figures of a report have few digits"
    )]
    pub(crate) fn cost(&self, pods: usize) -> Cost {
        let len = u32::try_from(pods).unwrap_or(u32::MAX);
        let cpu = |is_kind: fn(&Process) -> bool| {
            let machines = self.all.iter();
            let of_kind = machines.filter(move |machine| is_kind(&machine.process));
            of_kind.map(move |machine| machine.cpu / len)
        };
        let is_shard = |process: &Process| matches!(process, Process::Shard(_));
        let is_relay = |process: &Process| matches!(process, Process::Relay(_));
        Cost {
            time: self.now.saturating_sub(self.began) / len,
            leader: self.all[0].cpu / len,
            relay: cpu(is_relay).max().unwrap_or_default(),
            shard: cpu(is_shard).max().unwrap_or_default(),
            shards: cpu(is_shard).sum(),
            codec: self.codec / len,
            messages: (self.number - self.number_before) as f64 / f64::from(len),
            bytes: self.bytes as f64 / f64::from(len),
        }
    }

    /// A machine handles a message once it is free.
    fn handle(&mut self, arrival: Duration, flying: &Flying) -> Result<()> {
        let begin = Instant::now();
        let message: Message =
            serde_json::from_slice(&flying.bytes).context("failed to decode a message")?;
        let decoding = begin.elapsed();
        let from = self.all[flying.from].member.clone();
        let machine = &mut self.all[flying.to];
        let start = arrival.max(machine.busy_until) + decoding;
        let begin = Instant::now();
        let sent = match &mut machine.process {
            Process::Leader(leader) => {
                leader.receive(&from, message, start);
                Sent::new()
            }
            Process::Relay(relay) => relay.receive(&from, message, start),
            Process::Shard(shard) => shard.receive(&from, message),
        };
        let handling = begin.elapsed();
        machine.cpu += handling;
        machine.busy_until = start + handling;
        self.now = self.now.max(machine.busy_until);
        self.codec += decoding;
        if flying.to == 0 {
            return self.lead();
        }
        self.send(flying.to, sent)
    }

    /// The leader's outputs. The API binds at once.
    fn lead(&mut self) -> Result<()> {
        let machine = &mut self.all[0];
        let Process::Leader(leader) = &mut machine.process else {
            bail!("the first machine is the leader");
        };
        let begin = Instant::now();
        let outputs = leader.outputs(machine.busy_until);
        let mut sent = Sent::new();
        for output in outputs {
            match output {
                Output::Send(to, message) => sent.push((to, message)),
                Output::Effect(Effect::Bind { key, .. }) => {
                    leader.bound(&key, true);
                    self.bound += 1;
                }
                Output::Effect(other) => bail!("{other:?} instead of a binding"),
            }
        }
        let handling = begin.elapsed();
        machine.cpu += handling;
        machine.busy_until += handling;
        self.now = self.now.max(machine.busy_until);
        self.send(0, sent)
    }

    /// The machine encodes one message after another; each leaves when it is encoded.
    fn send(&mut self, from: usize, sent: Sent) -> Result<()> {
        for (to, message) in sent {
            let begin = Instant::now();
            let bytes = serde_json::to_vec(&message).context("failed to encode a message")?;
            let encoding = begin.elapsed();
            let machine = &mut self.all[from];
            machine.busy_until += encoding;
            let arrival = machine.busy_until + self.shape.delay;
            let Some(&to) = self.by_name.get(&to.name) else {
                bail!("{} is no member", to.name);
            };
            self.codec += encoding;
            self.bytes += bytes.len();
            self.number += 1;
            let flying = Flying { from, to, bytes };
            self.flying.insert((arrival, self.number), flying);
        }
        Ok(())
    }
}
