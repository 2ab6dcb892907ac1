//! Queries to a running cluster: its API, its store and its counters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV6;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dormouse_world::Host;
use serde_json::Value;

use super::{
    AGENT_METRICS_PORT, App, CONTROL_METRICS_PORT, Cluster, PATIENCE, STORE_PORT, authority,
    kubeconfig, role_certificate, url,
};
use crate::binaries;
use crate::demo::load::{self, Answer};

/// The names of a wake's stages, in their order.
pub(crate) const WAKE_STAGES: [&str; 8] = [
    "see",
    "park",
    "decide",
    "place",
    "wire",
    "start",
    "ready",
    "first byte",
];

/// Times of the known [`WAKE_STAGES`] of a wake, in milliseconds after its first event.
pub(crate) type WakeTimes = BTreeMap<&'static str, f64>;

impl Cluster {
    /// The output of `dormouse ARGUMENTS` on the control host.
    pub(crate) fn dormouse(&self, arguments: &[&str]) -> Result<String> {
        self.on_control(&self.binaries.dormouse, arguments)
    }

    /// The same as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.dormouse(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text)
            .with_context(|| format!("`dormouse {}` printed no JSON", arguments.join(" ")))
    }

    /// Kind and name of every App, Pod and Node.
    pub(crate) fn object_names(&self) -> Result<BTreeSet<(&'static str, String)>> {
        let mut names = BTreeSet::new();
        for kind in ["apps", "pods", "nodes"] {
            let listed = self.json(&["get", kind])?;
            let found = items(&listed).iter();
            let found = found.filter_map(|object| object["metadata"]["name"].as_str());
            names.extend(found.map(|name| (kind, name.to_owned())));
        }
        Ok(names)
    }

    /// The output of `etcdctl ARGUMENTS`.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let host = self.world.control();
        let certificate = role_certificate(host).display().to_string();
        let flags = [
            format!("--endpoints={}", url(STORE_PORT)),
            format!("--cacert={}", authority(host).display()),
            format!("--cert={certificate}"),
            format!("--key={certificate}"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.on_control(Path::new("etcdctl"), &[&flags, arguments].concat())
    }

    fn on_control(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("ETCDCTL_API", "3")
            .env("KUBECONFIG", kubeconfig(self.world.control()))
            .current_dir(binaries::root());
        let output = self.world.control().enter(|| command.output())?;
        let output = output.with_context(|| format!("failed to start {}", program.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            errors.trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies an app's manifest.
    pub(crate) fn apply(&self, app: App, manifest: &str) -> Result<()> {
        let file = format!("{}.yaml", app.name);
        let file = self.world.control().folder.join(file);
        std::fs::write(&file, manifest).context("failed to write the manifest")?;
        self.dormouse(&["apply", "-f", &file.display().to_string()])?;
        Ok(())
    }

    /// Applies a manifest of this repository with kubectl, or with `dormouse` on a machine without it; returns the program's name
    /// and output.
    pub(crate) fn apply_as_users_do(&self, manifest: &str) -> Result<(&'static str, String)> {
        let found = Command::new("kubectl")
            .args(["version", "--client"])
            .output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Ok(("dormouse", self.dormouse(&["apply", "-f", manifest])?));
        }
        let arguments = ["apply", "-f", manifest];
        Ok((
            "kubectl",
            self.on_control(Path::new("kubectl"), &arguments)?,
        ))
    }

    /// The JSON that answers a request from a process of a node; none: nothing answers.
    pub(crate) fn request_from_node(
        &self,
        index: usize,
        to: SocketAddrV6,
    ) -> Result<Option<Value>> {
        let nodes = self.world.nodes();
        let host = nodes
            .get(index)
            .with_context(|| format!("there is no node {index}"))?;
        // Socket load balancing applies to processes in the node's cgroup.
        let script = r#"echo $$ > "$0" && exec nsenter --net="$1" curl --silent --max-time 5 "$2""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .arg(host.cgroup.join("cgroup.procs"));
        command.arg(&host.netns).arg(format!("http://{to}/"));
        let output = command.output().context("failed to start sh")?;
        Ok(serde_json::from_slice(&output.stdout)
            .ok()
            .filter(|_| output.status.success()))
    }

    /// An app's status.
    pub(crate) fn status(&self, app: App) -> Result<Value> {
        let object = self.json(&["get", "app", app.name])?;
        Ok(object.get("status").cloned().unwrap_or(Value::Null))
    }

    /// Waits until an app is in this mode.
    pub(crate) fn await_mode(&self, app: App, mode: &str) -> Result<()> {
        self.interrupt.wait_for(
            &format!("{} to be in mode {mode}", app.name),
            PATIENCE,
            || Ok((self.status(app)?["mode"] == mode).then_some(())),
        )
    }

    /// Whether a node is Ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> Result<bool> {
        Ok(is_ready(&self.json(&["get", "node", name])?))
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig(self.world.control())
    }

    /// The program `dormouse`.
    pub(crate) fn program(&self) -> &Path {
        &self.binaries.dormouse
    }

    /// An app's last wake; waits until its first response.
    pub(crate) fn last_wake(&self, app: &str) -> Result<WakeTimes> {
        let what = format!("the first byte of the wake of {app}");
        let mut last = Value::Null;
        let times = self.interrupt.wait_for(&what, PATIENCE, || {
            let listed = self.json(&["wake", "timeline", app])?;
            last = items(&listed).first().cloned().unwrap_or_default();
            Ok(complete(&last))
        });
        times.with_context(|| format!("its last wake is {last}"))
    }

    /// Requests that the activator has handled.
    pub(crate) fn activator_requests(&self) -> Result<u64> {
        const ANSWERED: &str = "http_server_request_duration_seconds_count";
        let host = self.world.control();
        let certificate = role_certificate(host).display().to_string();
        let mut flags = vec!["--silent", "--show-error", "--fail", "--globoff"];
        let authority = authority(host).display().to_string();
        flags.extend(["--cacert", &authority, "--cert", &certificate]);
        let url = format!("{}/metrics", url(CONTROL_METRICS_PORT));
        flags.push(&url);
        let page = self.on_control(Path::new("curl"), &flags)?;
        Ok(sum(&page, &[ANSWERED]))
    }

    /// Connections that the kernels of all nodes redirected to pods.
    pub(crate) fn direct_connections(&self) -> Result<u64> {
        const DIRECT: [&str; 2] = [
            "dormouse_packets_total{verdict=\"served_local\"}",
            "dormouse_packets_total{verdict=\"socket_served\"}",
        ];
        let nodes = self.world.nodes().iter();
        nodes
            .map(|node| sample(node, AGENT_METRICS_PORT, &DIRECT))
            .sum()
    }

    /// The VIPs without an entry for which the kernel of a node has raised an event: the most of one node.
    pub(crate) fn missed(&self) -> Result<u64> {
        const MISSED: &str = "dormouse_packets_total{verdict=\"missed\"}";
        let nodes = self.world.nodes().iter();
        let mut missed = nodes.map(|node| sample(node, AGENT_METRICS_PORT, &[MISSED]));
        missed.try_fold(0, |most, missed| Ok(most.max(missed?)))
    }

    /// Waits until every node on the client's routes has the app's pods: until a burst of requests does not change the
    /// activator's counter.
    pub(crate) fn await_direct(&self, app: App) -> Result<()> {
        const BURST: u32 = 30;
        let what = format!("all nodes to redirect to the pods of {}", app.name);
        self.interrupt.wait_for(&what, PATIENCE, || {
            let before = self.activator_requests()?;
            let burst = || (0..BURST).try_for_each(|_| load::get(app.address(), "/").map(drop));
            self.world.client().enter(burst)??;
            Ok((self.activator_requests()? == before).then_some(()))
        })
    }
}

/// The sum of the counters whose lines begin with one of these names.
pub(crate) fn sample(host: &Host, port: u16, names: &[&str]) -> Result<u64> {
    let from = SocketAddrV6::new(host.address, port, 0, 0);
    let page: Answer = host.enter(|| load::get(from, "/metrics"))??;
    Ok(sum(&String::from_utf8_lossy(&page.body), names))
}

fn sum(page: &str, names: &[&str]) -> u64 {
    let lines = page
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The times of a wake that has ended. `see` is missing if the first packet came before its node knew that the app sleeps: then
/// the activator's demand began the wake, and the kernel raised no event.
fn complete(wake: &Value) -> Option<WakeTimes> {
    let stages = wake["stages"].as_array()?;
    let at = |name: &str| stages.iter().find(|stage| stage["name"] == *name)?["ms"].as_f64();
    at("first byte")?;
    let times = WAKE_STAGES
        .iter()
        .filter_map(|name| Some((*name, at(name)?)));
    Some(times.collect())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wake(names: &[&str]) -> Value {
        let stages = names.iter().zip(0_u32..);
        let stages = stages.map(|(name, ms)| json!({"name": name, "ms": f64::from(ms)}));
        json!({"stages": stages.collect::<Vec<_>>()})
    }

    #[test]
    fn a_wake_has_ended_with_the_first_byte_even_if_the_kernel_saw_no_packet() {
        assert_eq!(complete(&Value::Null), None);
        assert_eq!(complete(&wake(&WAKE_STAGES[..7])), None);
        let all = complete(&wake(&WAKE_STAGES)).unwrap();
        assert_eq!(all.len(), WAKE_STAGES.len());
        let unseen = complete(&wake(&WAKE_STAGES[1..])).unwrap();
        assert_eq!((unseen.get("see"), unseen["park"]), (None, 0.0));
    }
}
