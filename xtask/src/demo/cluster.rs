//! The cluster that the demo and the benches run: control, a scheduler and an agent on every node, and how to ask them.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{ACTING_PREFIX, CONTROL, Host, Process, Program, Spec, VIP_RANGE, VIP_RANGE_LEN, World};
use serde_json::Value;

use super::load::{self, Answer};
use crate::binaries::{self, Binaries};
use crate::interrupt::Interrupt;

/// Everything here is ready within a second or two; a busy machine gets ten times that.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The node lease of this cluster, short so that a demo may wait for it.
pub(crate) const NODE_LEASE: Duration = Duration::from_secs(10);
/// The scale-to-zero grace of this cluster.
const GRACE: Duration = Duration::from_secs(1);
/// Ports of `dormouse up`.
const API_PORT: u16 = 6443;
const FLEET_PORT: u16 = 7443;
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
    const fn at(name: &'static str, low: u16, lower: u16) -> Self {
        let [a, b, c, d, e, f, ..] = VIP_RANGE.segments();
        Self { name, vip: Ipv6Addr::new(a, b, c, d, e, f, low, lower) }
    }

    /// Where clients connect to.
    pub(crate) const fn address(self) -> SocketAddrV6 {
        SocketAddrV6::new(self.vip, 80, 0, 0)
    }
}

/// The real web server.
pub(crate) const DOCS: App = App::at("docs", 0, 0xd0c5);
/// The app that reports who answers and who asked.
pub(crate) const HELLO: App = App::at("hello", 0x4, 0xe110);
/// The app that keeps the default burst capacity.
pub(crate) const CAREFUL: App = App::at("careful", 0xc, 0xa4ef);

/// A pod as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Its name.
    pub(crate) name: String,
    /// Unique over time.
    pub(crate) uid: String,
    /// The node it runs on, once placed.
    pub(crate) node: Option<String>,
    /// Its address, once wired.
    pub(crate) address: Option<Ipv6Addr>,
    /// Whether it is ready.
    pub(crate) ready: bool,
}

/// A running cluster; dropping it ends and removes everything.
pub(crate) struct Cluster {
    /// The agents, by node. Declared before `world`, so that processes go before their namespaces.
    agents: Vec<Process>,
    scheduler: Process,
    control: Process,
    world: World,
    binaries: Binaries,
    interrupt: Interrupt,
}

impl Cluster {
    /// Builds the world and starts control and an agent on each of `nodes` nodes; returns when all are Ready.
    pub(crate) fn start(prefix: &str, nodes: u8, binaries: &Binaries, interrupt: &Interrupt) -> Result<Self> {
        let world = World::build(&Spec { prefix: prefix.to_owned(), nodes })?;
        let control = world.spawn(world.control(), &control(binaries))?;
        let scheduler = world.spawn(world.control(), &scheduler(binaries))?;
        let agents = world
            .nodes()
            .iter()
            .map(|host| world.spawn(host, &agent(binaries, host)?).map_err(Into::into))
            .collect::<Result<_>>()?;
        let mut cluster = Self {
            agents,
            scheduler,
            control,
            world,
            binaries: binaries.clone(),
            interrupt: interrupt.clone(),
        };
        cluster.await_nodes(nodes.into())?;
        Ok(cluster)
    }

    fn await_nodes(&mut self, nodes: usize) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let ready = interrupt.wait_for("all nodes to be Ready", PATIENCE, || {
            self.check_processes()?;
            let Ok(listed) = self.json(&["get", "nodes"]) else { return Ok(None) };
            let ready = items(&listed).iter().filter(|node| is_ready(node)).count();
            Ok((ready == nodes).then_some(()))
        });
        ready.with_context(|| format!("control says:\n{}", tail(&self.control.output())))
    }

    /// Fails when one of ours ended by itself.
    fn check_processes(&mut self) -> Result<()> {
        let own = [&mut self.control, &mut self.scheduler];
        for process in own.into_iter().chain(&mut self.agents) {
            if let Some(status) = process.ended() {
                bail!("a process ended ({status}); it said:\n{}", tail(&process.output()));
            }
        }
        Ok(())
    }

    /// The hosts.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Says when the person pressed Ctrl-C.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The agent of the node with this index.
    pub(crate) fn agent(&self, index: usize) -> Result<&Process> {
        self.agents.get(index).with_context(|| format!("there is no node {index}"))
    }

    /// Kills an agent as a crash would and starts it again at once.
    pub(crate) fn crash_agent(&mut self, index: usize) -> Result<()> {
        let host = self.world.nodes().get(index).with_context(|| format!("there is no node {index}"))?;
        let agent = self.agents.get_mut(index).with_context(|| format!("there is no agent {index}"))?;
        agent.kill()?;
        *agent = self.world.spawn(host, &self::agent(&self.binaries, host)?)?;
        Ok(())
    }

    /// Ends the scheduler.
    pub(crate) fn stop_scheduler(&mut self) -> Result<()> {
        self.scheduler.terminate(PATIENCE)?;
        Ok(())
    }

    /// Starts it again.
    pub(crate) fn start_scheduler(&mut self) -> Result<()> {
        self.scheduler = self.world.spawn(self.world.control(), &scheduler(&self.binaries))?;
        Ok(())
    }

    /// What `dormouse ARGUMENTS` prints on the control host.
    pub(crate) fn dormouse(&self, arguments: &[&str]) -> Result<String> {
        let endpoint = url(API_PORT);
        self.on_control(&self.binaries.dormouse, &[&["--endpoint", &endpoint], arguments].concat())
    }

    /// The same as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.dormouse(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("`dormouse {}` printed no JSON", arguments.join(" ")))
    }

    /// What `etcdctl ARGUMENTS` prints.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let endpoint = format!("--endpoints={}", url(STORE_PORT));
        self.on_control(Path::new("etcdctl"), &[&[endpoint.as_str()], arguments].concat())
    }

    fn on_control(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = std::process::Command::new(program);
        command.args(arguments).env("ETCDCTL_API", "3").current_dir(binaries::root());
        let output = self.world.control().enter(|| command.output())?;
        let output = output.with_context(|| format!("failed to start {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} {}: {}", program.display(), arguments.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// An app's status.
    pub(crate) fn status(&self, app: App) -> Result<Value> {
        let object = self.json(&["get", "app", app.name])?;
        Ok(object.get("status").cloned().unwrap_or(Value::Null))
    }

    /// An app's pods.
    pub(crate) fn pods(&self, app: App) -> Result<Vec<Pod>> {
        let listed = self.json(&["get", "pods"])?;
        let own = items(&listed).iter().filter(|pod| owner(pod) == Some(app.name));
        Ok(own.filter_map(pod).collect())
    }

    /// Waits until an app has exactly `count` pods, all ready.
    pub(crate) fn await_pods(&self, app: App, count: usize, limit: Duration) -> Result<Vec<Pod>> {
        let what = format!("{} to have {count} ready pods", app.name);
        self.interrupt.wait_for(&what, limit, || {
            let pods = self.pods(app)?;
            Ok((pods.len() == count && pods.iter().all(|pod| pod.ready)).then_some(pods))
        })
    }

    /// Waits until an app is in this mode.
    pub(crate) fn await_mode(&self, app: App, mode: &str) -> Result<()> {
        self.interrupt.wait_for(&format!("{} to be in mode {mode}", app.name), PATIENCE, || {
            Ok((self.status(app)?["mode"] == mode).then_some(()))
        })
    }

    /// The process ids of everything in the pods of a node.
    pub(crate) fn pod_processes(&self, node: &Host) -> Vec<u32> {
        let mut pids = Vec::new();
        collect_pids(&node.cgroup.join("pods"), &mut pids);
        pids.sort_unstable();
        pids
    }

    /// The sum of an agent's or control's samples whose line begins with `name` and holds all of `labels`.
    fn metric(&self, host: &Host, port: u16, name: &str, labels: &[&str]) -> Result<f64> {
        let from = SocketAddrV6::new(host.address, port, 0, 0);
        let page: Answer = host.enter(|| load::get(from, "/metrics"))??;
        let text = String::from_utf8_lossy(&page.body);
        let lines = text.lines().filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Requests that the activator has answered, whoever asked.
    pub(crate) fn activator_requests(&self) -> Result<f64> {
        self.metric(self.world.control(), CONTROL_METRICS_PORT, "http_server_request_duration_seconds_count", &[])
    }

    /// Connections that the kernels of all nodes led straight to pods.
    pub(crate) fn direct_connections(&self) -> Result<f64> {
        let each = self.world.nodes().iter();
        each.map(|node| self.metric(node, AGENT_METRICS_PORT, "dormouse_direct_connections_total", &[])).sum()
    }
}

fn collect_pids(cgroup: &Path, pids: &mut Vec<u32>) {
    let text = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    let below = std::fs::read_dir(cgroup).into_iter().flatten().filter_map(Result::ok);
    for entry in below.filter(|entry| entry.path().is_dir()) {
        collect_pids(&entry.path(), pids);
    }
}

fn url(port: u16) -> String {
    format!("http://[{CONTROL}]:{port}")
}

/// The programs' folder first, so that `dormouse-hello` is found by its name.
fn path(binaries: &Binaries) -> std::ffi::OsString {
    let folder = binaries.hello.parent().map(PathBuf::from).unwrap_or_default();
    let inherited = std::env::var("PATH").unwrap_or_default();
    format!("{}:{inherited}", folder.display()).into()
}

fn control(binaries: &Binaries) -> Program {
    Program::new(&binaries.dormouse)
        .args(["up", "--without", "scheduler", "--address", &CONTROL.to_string()])
        .args(["--acting-prefix", &format!("{ACTING_PREFIX}/96")])
        .args(["--vip-range", &format!("{VIP_RANGE}/{VIP_RANGE_LEN}")])
        .args(["--node-lease", &format!("{}s", NODE_LEASE.as_secs())])
        .args(["--scale-to-zero-grace", &format!("{}s", GRACE.as_secs())])
}

fn scheduler(binaries: &Binaries) -> Program {
    Program::new(&binaries.dormouse)
        .args(["scheduler", "--store", &url(STORE_PORT), "--listen", &format!("[{CONTROL}]:{SCHEDULER_PORT}")])
        .log("/dev/null")
}

fn agent(binaries: &Binaries, host: &Host) -> Result<Program> {
    let prefix = host.prefix.with_context(|| format!("{} has no prefix", host.name))?;
    let at = |name: &str| host.folder.join(name).into_os_string();
    Ok(Program::new(&binaries.agent)
        .args(["run", "--node", node_name(host), "--uplink", host.uplink(), "--runtime", "standalone"])
        .args(["--prefix", &format!("{prefix}/96"), "--address", &host.address.to_string()])
        .args(["--control", &url(FLEET_PORT), "--metrics", &format!("[{}]:{AGENT_METRICS_PORT}", host.address)])
        .arg("--state-dir").arg(at("state")).arg("--socket").arg(at("agent.sock"))
        .arg("--bpffs").arg(&host.bpffs).arg("--cgroup").arg(&host.cgroup)
        .arg("--cni").arg(&binaries.cni)
        .env("PATH", path(binaries)))
}

/// The name under which a host's agent registers: without the world's prefix.
pub(crate) fn node_name(host: &Host) -> &str {
    host.name.split_once('-').map_or(&host.name, |(_, name)| name)
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn owner(pod: &Value) -> Option<&str> {
    pod["metadata"]["ownerReferences"][0]["name"].as_str()
}

fn pod(object: &Value) -> Option<Pod> {
    Some(Pod {
        name: object["metadata"]["name"].as_str()?.to_owned(),
        uid: object["metadata"]["uid"].as_str()?.to_owned(),
        node: object["spec"]["nodeName"].as_str().map(str::to_owned),
        address: object["status"]["podIP"].as_str().and_then(|address| address.parse().ok()),
        ready: is_ready(object),
    })
}

/// The end of a log, where its reason is.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Measures how long `work` takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let began = Instant::now();
    Ok((work()?, began.elapsed()))
}
