//! The node loop: its fleet stream, its pods' processes, and the node's status for control.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result};
use dormouse_fleet::Stale;
use dormouse_fleet::lease::LEASE_DEFAULT;
use dormouse_fleet::node as fleet;
use dormouse_fleet::proto::NodeStatus;

use super::Control;
use crate::cli::run::{Run, RuntimeKind};
use crate::metrics::Collected;
use crate::node::{Activators, EpochFile, Gone, Node, Pods, Routes};
use crate::own_node::Place;
use crate::runtime::{Runtime, RuntimeConfig};
use crate::source::fleet::Source;
use crate::source::fleet_logs::FleetLogs;

/// Opens the loop.
pub(super) fn join(run: &Run, place: &Place, parts: &Collected, control: Control) -> Result<Node> {
    let pods = match run.pods.runtime {
        RuntimeKind::Standalone => Some(open_runtime(run)?),
        RuntimeKind::None => None,
    };
    let uplink = nix::net::if_::if_nametoindex(run.node.uplink.as_str())
        .with_context(|| format!("there is no interface {}", run.node.uplink))?;
    let datapath = Arc::clone(&parts.datapath);
    let alone = datapath.apps.is_stale();
    let (held, events) = (datapath.apps.followed(), datapath.take_events()?);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut fleet = fleet::Node::new(run.node.node.clone(), boot_id, version, &held);
    fleet.describe(status(run, place));
    let epoch = EpochFile::load(&run.state_dir);
    fleet.follow_epoch(epoch.epoch().clone());
    let logs = pods.as_ref().map(|pods| FleetLogs {
        node: run.node.node.clone(),
        folder: pods.runtime.logs(),
    });
    let source = control.target.map(|target| Source::new(target, logs));
    let routes = Routes::open(uplink).context("failed to open a routing socket")?;
    Ok(Node {
        fleet,
        source,
        datapath,
        events,
        pods,
        routes,
        state: Arc::clone(&parts.fleet),
        graced: None,
        gone: Gone::default(),
        drops: None,
        stale: Stale::new(alone, LEASE_DEFAULT),
        activators: Activators::load(&run.state_dir),
        epoch,
        probe_tls: control.probe,
        probe: None,
        reported: String::new(),
    })
}

fn open_runtime(run: &Run) -> Result<Pods> {
    let config = RuntimeConfig {
        node: run.node.node.clone(),
        state_dir: run.state_dir.clone(),
        cgroup: run.datapath.cgroup.clone(),
        cni: run.pods.cni.clone(),
        socket: run.socket.clone(),
        // Also finds the running binary after a newer one has replaced the file.
        agent: "/proc/self/exe".into(),
        log_flags: run.pods.logs,
    };
    let (runtime, statuses) = Runtime::open(config).context("failed to recover the pods")?;
    Ok(Pods { runtime, statuses })
}

/// The node's status as reported to control.
fn status(run: &Run, place: &Place) -> NodeStatus {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    NodeStatus {
        prefix: place
            .pods
            .as_ref()
            .map_or_else(|_| String::new(), |pods| pods.prefix.to_string()),
        address: place
            .address
            .map_or_else(String::new, |address| address.to_string()),
        pods: run.pods.pods_max,
        cpu_milli: u64::try_from(cpus).unwrap_or(1) * 1_000,
        memory_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| memory_total(&text))
            .unwrap_or(0),
        labels: [("kubernetes.io/hostname".to_owned(), run.node.node.clone())].into(),
        runs_pods: run.pods.runtime == RuntimeKind::Standalone,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// MemTotal of `/proc/meminfo`, in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            memory_total("MemTotal:       2 kB\nMemFree: 1 kB\n"),
            Some(2_048)
        );
        assert_eq!(memory_total("nothing"), None);
    }
}
