//! Nodes of which only the end of the fleet stream exists: they acknowledge every entry, and report each pod as ready at once.

use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Backoff, Link, LinkError, Target, connect, endpoint, jitter};
use dormouse_fleet::node::{Node as Core, Step};
use dormouse_fleet::proto::pod_status::Phase;
use dormouse_fleet::proto::{Count, Down, NodeStatus, PodSpec, PodStatus, Stages, Woke};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::app::PORT;
use crate::control::FLEET;

/// IP protocol number of the apps' port.
const TCP: u32 = 6;
/// Begin of the names of pods that never become ready.
pub(crate) const STUCK: &str = "stuck";
/// Pause after a stream ended or could not be opened: control starts, and is asked again at once.
const RETRY: Duration = Duration::from_millis(10);
/// Pause while the stream accepts no message.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// Interval at which the load of apps is reported.
const SECOND: Duration = Duration::from_secs(1);
/// Commands that wait for their node.
const COMMANDS_MAX: usize = 64;
/// The upper 96 bits of all nodes' prefixes; a node's number is in their last 16.
const PREFIX: u128 = 0x2001_0db8_00d0 << 80;
/// Longest time until all streams are open.
const OPEN_LIMIT: Duration = Duration::from_mins(1);

/// What a node does next.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// First packets to these VIPs arrive.
    Woke(Vec<u32>),
    /// From now on each of these VIPs has one open connection on this node.
    Load(Vec<u32>),
}

/// The streams of all nodes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams {
    /// Those that were opened.
    pub(crate) opened: usize,
    /// Those that ended, or that could not be opened.
    pub(crate) lost: usize,
}

/// The nodes, which end when this is dropped.
pub(crate) struct Nodes {
    commands: Vec<mpsc::Sender<Command>>,
    streams: watch::Receiver<Streams>,
    _tasks: JoinSet<Result<()>>,
}

impl Nodes {
    /// Starts this many nodes, which connect until they succeed.
    pub(crate) fn start(count: u16) -> Result<Self> {
        let plain = endpoint(FLEET)?;
        let targets = std::iter::repeat_n(plain.into(), count.into());
        Ok(Self::at(targets, &Handle::current()))
    }

    /// Starts a node for each of these targets, on this runtime.
    pub(crate) fn at(targets: impl IntoIterator<Item = Target>, runtime: &Handle) -> Self {
        let (sender, streams) = watch::channel(Streams::default());
        let mut tasks = JoinSet::new();
        let commands = (0..)
            .zip(targets)
            .map(|(number, target)| {
                let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
                let node = Node::new(number, target, sender.clone());
                tasks.spawn_on(run(node, receiver), runtime);
                commands
            })
            .collect();
        Self {
            commands,
            streams,
            _tasks: tasks,
        }
    }

    /// Starts nodes, and waits until each has an open stream.
    pub(crate) async fn open(count: u16) -> Result<Self> {
        let nodes = Self::start(count)?;
        nodes.are_open().await?;
        Ok(nodes)
    }

    /// Waits until as many streams were opened as there are nodes.
    pub(crate) async fn are_open(&self) -> Result<()> {
        let count = self.commands.len();
        let mut streams = self.streams.clone();
        let opened = streams.wait_for(|streams| streams.opened >= count);
        let opened = tokio::time::timeout(OPEN_LIMIT, opened).await;
        opened.context("a node found no fleet")??;
        Ok(())
    }

    /// Their streams.
    pub(crate) fn streams(&self) -> Streams {
        *self.streams.borrow()
    }

    /// A first packet to each VIP, spread over the nodes.
    pub(crate) async fn wake(&self, vips: impl Iterator<Item = u32>) -> Result<()> {
        self.spread(vips, Command::Woke).await
    }

    /// One open connection to each VIP from now on, spread over the nodes as [`Nodes::wake`] does; without VIPs, none.
    pub(crate) async fn load(&self, vips: impl Iterator<Item = u32>) -> Result<()> {
        self.spread(vips, Command::Load).await
    }

    async fn spread(
        &self,
        vips: impl Iterator<Item = u32>,
        command: impl Fn(Vec<u32>) -> Command,
    ) -> Result<()> {
        let mut shares = vec![Vec::new(); self.commands.len()];
        let count = shares.len();
        for vip in vips {
            shares[usize::try_from(vip)? % count].push(vip);
        }
        for (commands, share) in self.commands.iter().zip(shares) {
            commands.send(command(share)).await?;
        }
        Ok(())
    }
}

/// One node.
struct Node {
    number: u16,
    target: Target,
    streams: watch::Sender<Streams>,
    core: Core,
    /// Pods that it has run, for their addresses.
    pods: u32,
    load: Vec<u32>,
}

/// The name of the node with this number.
pub(crate) fn name(number: u16) -> String {
    format!("fake-{number:04}")
}

/// The node's end of the fleet stream.
pub(crate) fn core(number: u16) -> Core {
    let prefix = Ipv6Addr::from(PREFIX | u128::from(number) << 32);
    let mut core = Core::new(name(number), "bench".to_owned(), "bench".to_owned(), &[]);
    core.describe(NodeStatus {
        prefix: format!("{prefix}/96"),
        address: prefix.to_string(),
        pods: 500,
        cpu_milli: 64_000,
        memory_bytes: 256 << 30,
        runs_pods: true,
        ..NodeStatus::default()
    });
    core
}

async fn run(mut node: Node, mut commands: mpsc::Receiver<Command>) -> Result<()> {
    let mut backoff = Backoff::new();
    loop {
        // Control starts or has ended: the next attempt follows.
        let Err(_lost) = node.follow(&mut commands).await else {
            return Ok(());
        };
        node.streams.send_modify(|streams| streams.lost += 1);
        node.core.close();
        // Nodes with certificates wait as an agent does.
        let wait = if node.target.is_secured() {
            backoff.next(jitter())
        } else {
            RETRY
        };
        tokio::time::sleep(wait).await;
    }
}

impl Node {
    fn new(number: u16, target: Target, streams: watch::Sender<Streams>) -> Self {
        Self {
            number,
            target,
            streams,
            core: core(number),
            pods: 0,
            load: Vec::new(),
        }
    }

    /// Opens a stream and follows it; returns when there are no more commands.
    async fn follow(&mut self, commands: &mut mpsc::Receiver<Command>) -> Result<(), LinkError> {
        let channel = connect(self.target.clone()).await?;
        let hello = self.core.open(Boottime::now());
        let mut link = Link::open(channel, hello).await?;
        let first = link.receive().await?;
        self.streams.send_modify(|streams| streams.opened += 1);
        self.apply(first);
        let mut second = tokio::time::interval(SECOND);
        loop {
            while link.has_room()
                && let Some(up) = self.core.next(Boottime::now())
            {
                link.send(up)?;
            }
            let due = self.due(&link);
            tokio::select! {
                down = link.receive() => self.apply(down?),
                command = commands.recv() => match command {
                    Some(Command::Woke(vips)) => self.woke(&vips),
                    Some(Command::Load(vips)) => self.load = vips,
                    None => return Ok(()),
                },
                _ = second.tick(), if !self.load.is_empty() => self.count(),
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    fn due(&self, link: &Link) -> Instant {
        let wait = self
            .core
            .due()
            .map_or(SECOND, |due| due.since(Boottime::now()));
        let pause = if link.has_room() {
            Duration::ZERO
        } else {
            FULL_PAUSE
        };
        Instant::now() + wait.max(pause)
    }

    fn woke(&mut self, vips: &[u32]) {
        let now = Boottime::now();
        for vip in vips {
            let woke = Woke {
                vip: *vip,
                at_ns: now.0,
                port: PORT.into(),
                protocol: TCP,
            };
            self.core.woke(woke, now);
        }
    }

    fn count(&mut self) {
        let second = u64::try_from(SECOND.as_nanos()).unwrap_or(u64::MAX);
        let now = Boottime::now();
        for vip in &self.load {
            let count = Count {
                vip: *vip,
                interval_ns: second,
                connections: 1,
                connection_ns: second,
                open: 1,
            };
            self.core.count(count, now);
        }
    }

    /// A gap in the stream's numbers cannot happen here; the stream would be opened again.
    fn apply(&mut self, down: Down) {
        let Ok(Step { seq, run, .. }) = self.core.receive(down, Boottime::now()) else {
            return;
        };
        for spec in run {
            let status = self.pod(spec);
            self.core.pod(status);
        }
        self.core.applied(seq);
    }

    /// The status of a pod that control wants to run or to stop.
    fn pod(&mut self, spec: PodSpec) -> PodStatus {
        let phase = match (spec.stop, spec.name.starts_with(STUCK)) {
            (true, _) => Phase::Gone,
            (false, true) => Phase::Pending,
            (false, false) => Phase::Running,
        };
        let ready = phase == Phase::Running;
        let mut status = PodStatus {
            namespace: spec.namespace,
            name: spec.name,
            uid: spec.uid,
            ready,
            ..PodStatus::default()
        };
        status.set_phase(phase);
        if ready {
            self.pods += 1;
            let now = Boottime::now().0;
            let address = PREFIX | u128::from(self.number) << 32 | u128::from(self.pods);
            status.address = Ipv6Addr::from(address).to_string();
            status.stages = Some(Stages {
                received_ns: now,
                cni_begin_ns: now,
                cni_end_ns: now,
                started_ns: now,
                ready_ns: now,
            });
        }
        status
    }
}
