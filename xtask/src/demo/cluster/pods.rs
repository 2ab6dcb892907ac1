//! The pods of a running cluster, in the API and as processes.

use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_world::Host;
use serde_json::Value;

use super::ask::{is_ready, items};
use super::{App, Cluster, PATIENCE};
use crate::demo::load;

/// A pod in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Its node, once scheduled.
    pub(crate) node: Option<String>,
    /// Its address, once wired.
    pub(crate) address: Option<Ipv6Addr>,
    /// Whether it is ready.
    pub(crate) ready: bool,
}

impl Cluster {
    /// An app's pods.
    pub(crate) fn pods(&self, app: App) -> Result<Vec<Pod>> {
        let listed = self.json(&["get", "pods"])?;
        let owned = items(&listed)
            .iter()
            .filter(|pod| owner(pod) == Some(app.name));
        Ok(owned.filter_map(pod).collect())
    }

    /// Waits until an app has exactly `count` pods, all ready.
    pub(crate) fn await_pods(&self, app: App, count: usize, limit: Duration) -> Result<Vec<Pod>> {
        let what = format!("{} to have {count} ready pods", app.name);
        self.interrupt.wait_for(&what, limit, || {
            let pods = self.pods(app)?;
            Ok((pods.len() == count && pods.iter().all(|pod| pod.ready)).then_some(pods))
        })
    }

    /// Sends a request to an app; returns its pod once it is the only one, ready, and the app is in mode serve.
    pub(crate) fn awake(&self, app: App) -> Result<Pod> {
        self.world
            .client()
            .enter(|| load::get(app.address(), "/"))??;
        let pod = self.await_pods(app, 1, PATIENCE)?.pop();
        self.await_mode(app, "Serve")?;
        pod.with_context(|| format!("{} has no pod", app.name))
    }

    /// Whether every app is asleep.
    pub(crate) fn all_asleep(&self) -> Result<bool> {
        Ok(self.apps_awake()? == 0)
    }

    /// The number of apps that are not asleep.
    pub(crate) fn apps_awake(&self) -> Result<usize> {
        let listed = self.json(&["get", "apps"])?;
        let apps = items(&listed).iter();
        Ok(apps
            .filter(|app| app["status"]["state"] != "Asleep")
            .count())
    }

    /// The address of the ready pod of the app of this name.
    pub(crate) fn pod_address(&self, app: &str) -> Result<Option<Ipv6Addr>> {
        let listed = self.json(&["get", "pods"])?;
        let owned = items(&listed).iter().filter(|pod| owner(pod) == Some(app));
        Ok(owned
            .filter_map(pod)
            .find(|pod| pod.ready)
            .and_then(|pod| pod.address))
    }

    /// Sends a request to an app from a pod of another app; returns the client address that the app saw.
    pub(crate) fn request_from_pod(&self, pod: &Pod, app: App) -> Result<String> {
        let host = self.host_of(pod)?;
        let pids = self.pod_processes_of(pod)?;
        let pid = pids
            .first()
            .with_context(|| format!("{} runs no process", pod.name))?;
        // Socket load balancing applies to processes in the node's cgroup, which nsenter does not enter.
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
            serde_json::from_slice(&output.stdout).context("the app's reply is not JSON")?;
        Ok(answer["client"].as_str().unwrap_or_default().to_owned())
    }

    fn host_of(&self, pod: &Pod) -> Result<&Host> {
        let found = self
            .world
            .nodes()
            .iter()
            .find(|host| Some(host.name.as_str()) == pod.node.as_deref());
        found.with_context(|| format!("{} is on an unknown node", pod.name))
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
