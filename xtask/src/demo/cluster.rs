//! The cluster of the demo and the benchmarks: control, a scheduler and an agent on every node, and queries to them.

mod ask;
mod join;
mod pods;
mod shown;

pub(crate) use ask::{WAKE_STAGES, WakeTimes, sample};
use ask::{is_ready, items};
pub(crate) use pods::{Pod, pod_processes};
use shown::Shown;

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dormouse_world::{
    ACTING_PREFIX, CONTROL, Host, Process, Program, Spec, VIP_RANGE, VIP_RANGE_LEN, World,
};

use crate::binaries::Binaries;
use crate::interrupt::Interrupt;

/// Time limit of waits. Everything is ready within a second or two; a busy machine gets ten times that.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The cluster's node lease, short so that the demo can wait for its end.
pub(crate) const NODE_LEASE: Duration = Duration::from_secs(10);
/// The cluster's grace period of scale to zero.
const GRACE: Duration = Duration::from_secs(1);
/// Ports of `dormouse up`.
const API_PORT: u16 = 6443;
const STORE_PORT: u16 = 2379;
const SCHEDULER_PORT: u16 = 10259;
const CONTROL_METRICS_PORT: u16 = 9090;
const AGENT_METRICS_PORT: u16 = 10249;

/// An app of `deploy/examples/apps.yaml`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct App {
    /// Its name, in the namespace `default`.
    pub(crate) name: &'static str,
    /// Its VIP.
    pub(crate) vip: Ipv6Addr,
}

impl App {
    /// The app with this index in the VIP range.
    pub(crate) const fn at(name: &'static str, index: u32) -> Self {
        let vip = Ipv6Addr::from_bits(VIP_RANGE.to_bits() | index as u128);
        Self { name, vip }
    }

    /// Address and port for clients.
    pub(crate) const fn address(self) -> SocketAddrV6 {
        SocketAddrV6::new(self.vip, 80, 0, 0)
    }
}

/// The web server of python3.
pub(crate) const DOCS: App = App::at("docs", 0xd0c5);
/// The app that replies with its pod and the client's address.
pub(crate) const HELLO: App = App::at("hello", 0x4_e110);
/// The app with the default burst capacity.
pub(crate) const CAREFUL: App = App::at("careful", 0xc_a4ef);

/// A running cluster; dropping it stops and removes everything.
pub(crate) struct Cluster {
    /// The agents, by node. Declared before `world`, so that processes end before their namespaces are removed.
    agents: Vec<Process>,
    scheduler: Process,
    control: Process,
    world: World,
    _shown: Shown,
    binaries: Binaries,
    interrupt: Interrupt,
}

impl Cluster {
    /// Builds the world and starts control and an agent on each of `nodes` nodes; returns when all are Ready.
    pub(crate) fn start(
        prefix: &str,
        nodes: u8,
        binaries: &Binaries,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let world = World::build(&Spec {
            prefix: prefix.to_owned(),
            nodes,
        })?;
        let shown = Shown::make(prefix, binaries)?;
        let binaries = &shown.binaries(binaries);
        let program = control(binaries, world.control(), NODE_LEASE);
        let control = world.spawn(world.control(), &program)?;
        let join = |subject: [&str; 2]| join::line(&world, binaries, interrupt, subject);
        let program = scheduler(binaries, world.control());
        let line = join(["--role", "scheduler"])?;
        let scheduler = world.spawn(world.control(), &program.args(["--join", &line]))?;
        let mut agents = Vec::new();
        for host in world.nodes() {
            let line = join(["--node", &host.name])?;
            let program = agent(binaries, host).args(["--join", &line]);
            agents.push(world.spawn(host, &program)?);
        }
        let mut cluster = Self {
            agents,
            scheduler,
            control,
            world,
            binaries: binaries.clone(),
            _shown: shown,
            interrupt: interrupt.clone(),
        };
        cluster.await_nodes(nodes.into())?;
        Ok(cluster)
    }

    fn await_nodes(&mut self, nodes: usize) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let ready = interrupt.wait_for("all nodes to be Ready", PATIENCE, || {
            self.check_processes()?;
            let Ok(listed) = self.json(&["get", "nodes"]) else {
                return Ok(None);
            };
            let ready = items(&listed).iter().filter(|node| is_ready(node)).count();
            Ok((ready == nodes).then_some(()))
        });
        ready.with_context(|| format!("control's log:\n{}", tail(&self.control.output())))
    }

    /// Fails if a process of the cluster has ended.
    fn check_processes(&mut self) -> Result<()> {
        let control = [&mut self.control, &mut self.scheduler];
        for process in control.into_iter().chain(&mut self.agents) {
            if let Some(status) = process.ended() {
                bail!(
                    "a process ended ({status}); its log:\n{}",
                    tail(&process.output())
                );
            }
        }
        Ok(())
    }

    /// The hosts.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Set by Ctrl-C.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The agent of the node with this index.
    pub(crate) fn agent(&self, index: usize) -> Result<&Process> {
        self.agents
            .get(index)
            .with_context(|| format!("there is no node {index}"))
    }

    /// The control process.
    pub(crate) fn control(&self) -> &Process {
        &self.control
    }

    /// Kills an agent with SIGKILL and restarts it at once.
    pub(crate) fn crash_agent(&mut self, index: usize) -> Result<()> {
        let host = self
            .world
            .nodes()
            .get(index)
            .with_context(|| format!("there is no node {index}"))?;
        let agent = self
            .agents
            .get_mut(index)
            .with_context(|| format!("there is no agent {index}"))?;
        agent.kill()?;
        *agent = self.world.spawn(host, &self::agent(&self.binaries, host))?;
        Ok(())
    }

    /// Kills control with SIGKILL.
    pub(crate) fn kill_control(&mut self) -> Result<()> {
        self.control.kill()?;
        Ok(())
    }

    /// Starts a killed control again, with its data directory.
    pub(crate) fn start_control(&mut self, node_lease: Duration) -> Result<()> {
        let host = self.world.control();
        let program = control(&self.binaries, host, node_lease);
        self.control = self.world.spawn(host, &program)?;
        Ok(())
    }

    /// Waits until control serves; returns [`Cluster::object_names`].
    pub(crate) fn await_control(&self) -> Result<BTreeSet<(&'static str, String)>> {
        self.interrupt.wait_for("control to serve", PATIENCE, || {
            Ok(self.object_names().ok())
        })
    }

    /// Ends the scheduler.
    pub(crate) fn stop_scheduler(&mut self) -> Result<()> {
        self.scheduler.terminate(PATIENCE)?;
        Ok(())
    }

    /// Restarts the scheduler.
    pub(crate) fn start_scheduler(&mut self) -> Result<()> {
        self.scheduler = self.world.spawn(
            self.world.control(),
            &scheduler(&self.binaries, self.world.control()),
        )?;
        Ok(())
    }
}

fn url(port: u16) -> String {
    format!("https://[{CONTROL}]:{port}")
}

/// The administrator's kubeconfig, on the control host.
fn kubeconfig(host: &Host) -> PathBuf {
    host.folder.join("control/pki/admin.kubeconfig")
}

/// The certificates of the cluster's authority, and certificate and key of the scheduler, on the control host.
fn authority(host: &Host) -> PathBuf {
    host.folder.join("control/pki/ca.crt")
}

fn role_certificate(host: &Host) -> PathBuf {
    host.folder.join("roles/scheduler/identity/role.pem")
}

/// The folder of the examples' program and files.
fn examples(binaries: &Binaries) -> PathBuf {
    let folder = binaries.hello.parent().map(PathBuf::from);
    folder.unwrap_or_default()
}

/// PATH with the programs' folder first, so that `dormouse-hello` is found by its name.
fn path(binaries: &Binaries) -> std::ffi::OsString {
    let folder = examples(binaries);
    let inherited = std::env::var("PATH").unwrap_or_default();
    format!("{}:{inherited}", folder.display()).into()
}

fn control(binaries: &Binaries, host: &Host, node_lease: Duration) -> Program {
    Program::new(&binaries.dormouse)
        .args([
            "up",
            "--without",
            "scheduler",
            "--address",
            &CONTROL.to_string(),
        ])
        .args(["--acting-prefix", &format!("{ACTING_PREFIX}/96")])
        .args(["--vip-range", &format!("{VIP_RANGE}/{VIP_RANGE_LEN}")])
        .args(["--node-lease", &format!("{}s", node_lease.as_secs())])
        .args(["--scale-to-zero-grace", &format!("{}s", GRACE.as_secs())])
        .arg("--data-dir")
        .arg(host.folder.join("control").into_os_string())
        .log(host.log("control"))
}

fn scheduler(binaries: &Binaries, host: &Host) -> Program {
    Program::new(&binaries.dormouse)
        .args([
            "scheduler",
            "--listen",
            &format!("[{CONTROL}]:{SCHEDULER_PORT}"),
        ])
        .arg("--state-dir")
        .arg(host.folder.join("roles"))
        .log(host.log("scheduler"))
}

fn agent(binaries: &Binaries, host: &Host) -> Program {
    host.agent(&binaries.agent)
        .args(["--runtime", "standalone"])
        .args(["--api-server", &url(API_PORT)])
        .args([
            "--metrics",
            &format!("[{}]:{AGENT_METRICS_PORT}", host.address),
        ])
        .arg("--cni")
        .arg(&binaries.cni)
        .env("PATH", path(binaries))
        // The web server of the examples serves a folder below.
        .folder(examples(binaries))
}

/// The last 20 lines of a log, which contain the reason of a failure.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Measures the duration of `work`.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let began = Instant::now();
    Ok((work()?, began.elapsed()))
}
