//! What the demo asks a running cluster: its API, its store, its counters and its processes.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_world::{CONTROL, Host};
use serde_json::Value;

use super::{
    AGENT_METRICS_PORT, API_PORT, App, CONTROL_METRICS_PORT, Cluster, PATIENCE, STORE_PORT, url,
};
use crate::binaries;
use crate::demo::load::{self, Answer};

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

impl Cluster {
    /// What `dormouse ARGUMENTS` prints on the control host.
    pub(crate) fn dormouse(&self, arguments: &[&str]) -> Result<String> {
        let endpoint = url(API_PORT);
        self.on_control(
            &self.binaries.dormouse,
            &[&["--endpoint", &endpoint], arguments].concat(),
        )
    }

    /// The same as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.dormouse(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text)
            .with_context(|| format!("`dormouse {}` printed no JSON", arguments.join(" ")))
    }

    /// What `etcdctl ARGUMENTS` prints.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let endpoint = format!("--endpoints=[{CONTROL}]:{STORE_PORT}");
        self.on_control(
            Path::new("etcdctl"),
            &[&[endpoint.as_str()], arguments].concat(),
        )
    }

    fn on_control(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("ETCDCTL_API", "3")
            .current_dir(binaries::root());
        let output = self.world.control().enter(|| command.output())?;
        let output = output.with_context(|| format!("failed to start {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            said.trim()
        );
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
        let own = items(&listed)
            .iter()
            .filter(|pod| owner(pod) == Some(app.name));
        Ok(own.filter_map(pod).collect())
    }

    /// Whether no app has a pod.
    pub(crate) fn no_pods(&self) -> Result<bool> {
        Ok(items(&self.json(&["get", "pods"])?).is_empty())
    }

    /// The address of the ready pod of the app of this name.
    pub(crate) fn pod_address(&self, app: &str) -> Result<Option<Ipv6Addr>> {
        let listed = self.json(&["get", "pods"])?;
        let own = items(&listed).iter().filter(|pod| owner(pod) == Some(app));
        Ok(own
            .filter_map(pod)
            .find(|pod| pod.ready)
            .and_then(|pod| pod.address))
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
        self.interrupt.wait_for(
            &format!("{} to be in mode {mode}", app.name),
            PATIENCE,
            || Ok((self.status(app)?["mode"] == mode).then_some(())),
        )
    }

    /// Whether control counts a node as Ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> Result<bool> {
        Ok(is_ready(&self.json(&["get", "node", name])?))
    }

    /// How a person calls `dormouse` on the control host.
    pub(crate) fn command_line(&self) -> String {
        format!(
            "{} --endpoint {}",
            self.binaries.dormouse.display(),
            url(API_PORT)
        )
    }

    /// Asks an app from inside a pod of another, and gives the client address that it saw.
    pub(crate) fn ask_from_pod(&self, pod: &Pod, app: App) -> Result<String> {
        let host = self.host_of(pod)?;
        let pids = self.pod_processes_of(pod)?;
        let pid = pids
            .first()
            .with_context(|| format!("{} runs no process", pod.name))?;
        // Sockets are load-balanced for processes of the node's cgroup; nsenter alone would leave it.
        let script =
            r#"echo $$ > "$0" && exec nsenter --net="$1" curl --silent --max-time 10 "$2""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .arg(host.cgroup.join("cgroup.procs"));
        command
            .arg(format!("/proc/{pid}/ns/net"))
            .arg(format!("http://[{}]/", app.vip));
        let output = command.output().context("failed to start sh")?;
        ensure!(
            output.status.success(),
            "curl in the pod failed ({})",
            output.status
        );
        let answer: Value =
            serde_json::from_slice(&output.stdout).context("the app answered no JSON")?;
        Ok(answer["client"].as_str().unwrap_or_default().to_owned())
    }

    fn host_of(&self, pod: &Pod) -> Result<&Host> {
        let found = self
            .world
            .nodes()
            .iter()
            .find(|host| Some(host.name.as_str()) == pod.node.as_deref());
        found.with_context(|| format!("{} is on no node of ours", pod.name))
    }

    /// The process ids of one pod.
    pub(crate) fn pod_processes_of(&self, pod: &Pod) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        collect_pids(
            &self.host_of(pod)?.cgroup.join(format!("pod-{}", pod.uid)),
            &mut pids,
        );
        Ok(pids)
    }

    /// The stages of an app's last wake, once all of `names` are there, in their order: milliseconds after the first.
    pub(crate) fn last_wake(&self, app: &str, names: &[&str]) -> Result<Vec<f64>> {
        let what = format!("a complete timeline of the wake of {app}");
        self.interrupt.wait_for(&what, PATIENCE, || {
            let listed = self.json(&["wake", "timeline", app])?;
            let begin = |wake: &&Value| wake["stages"][0]["atNs"].as_u64();
            let Some(last) = items(&listed).iter().max_by_key(begin) else {
                return Ok(None);
            };
            let stages = last["stages"].as_array().map_or(&[][..], Vec::as_slice);
            let at =
                |name: &&str| stages.iter().find(|stage| stage["name"] == **name)?["ms"].as_f64();
            Ok(names.iter().map(at).collect())
        })
    }

    /// Requests that the activator has answered, whoever asked.
    pub(crate) fn activator_requests(&self) -> Result<u64> {
        const ANSWERED: &str = "http_server_request_duration_seconds_count";
        sample(self.world.control(), CONTROL_METRICS_PORT, &[ANSWERED])
    }

    /// Connections that the kernels of all nodes led straight to pods.
    pub(crate) fn direct_connections(&self) -> Result<u64> {
        const STRAIGHT: [&str; 2] = [
            "dormouse_packets_total{verdict=\"served_local\"}",
            "dormouse_packets_total{verdict=\"socket_served\"}",
        ];
        let nodes = self.world.nodes().iter();
        nodes
            .map(|node| sample(node, AGENT_METRICS_PORT, &STRAIGHT))
            .sum()
    }

    /// Waits until every node that the client's routes lead to knows the app's pods, that is: until a burst of
    /// requests leaves the activator's counter alone.
    pub(crate) fn await_direct(&self, app: App) -> Result<()> {
        const BURST: u32 = 30;
        let what = format!("all nodes to lead straight to {}", app.name);
        self.interrupt.wait_for(&what, PATIENCE, || {
            let before = self.activator_requests()?;
            let burst = || (0..BURST).try_for_each(|_| load::get(app.address(), "/").map(drop));
            self.world.client().enter(burst)??;
            Ok((self.activator_requests()? == before).then_some(()))
        })
    }
}

/// The sum of the counters whose line begins with one of these names.
fn sample(host: &Host, port: u16, names: &[&str]) -> Result<u64> {
    let from = SocketAddrV6::new(host.address, port, 0, 0);
    let page: Answer = host.enter(|| load::get(from, "/metrics"))??;
    let text = String::from_utf8_lossy(&page.body);
    let lines = text
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    Ok(lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum())
}

/// The process ids of everything in the pods of a node.
pub(crate) fn pod_processes(node: &Host) -> Vec<u32> {
    let mut pids = Vec::new();
    let groups = std::fs::read_dir(&node.cgroup)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for group in groups.filter(|group| group.file_name().to_string_lossy().starts_with("pod-")) {
        collect_pids(&group.path(), &mut pids);
    }
    pids.sort_unstable();
    pids
}

fn collect_pids(cgroup: &Path, pids: &mut Vec<u32>) {
    let text = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    let below = std::fs::read_dir(cgroup)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for entry in below.filter(|entry| entry.path().is_dir()) {
        collect_pids(&entry.path(), pids);
    }
}

pub(super) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn owner(pod: &Value) -> Option<&str> {
    pod["metadata"]["ownerReferences"][0]["name"].as_str()
}

fn pod(object: &Value) -> Option<Pod> {
    Some(Pod {
        name: object["metadata"]["name"].as_str()?.to_owned(),
        uid: object["metadata"]["uid"].as_str()?.to_owned(),
        node: object["spec"]["nodeName"].as_str().map(str::to_owned),
        address: object["status"]["podIP"]
            .as_str()
            .and_then(|address| address.parse().ok()),
        ready: is_ready(object),
    })
}
