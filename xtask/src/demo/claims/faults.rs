//! Claims about nodes whose agent is dead or frozen: the kernel forwards on its own until the node lease ends.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::Host;
use nix::time::{ClockId, clock_gettime};

use crate::demo::cluster::{Cluster, HELLO, PATIENCE, Pod};
use crate::demo::load;
use crate::report::{Bound, Row};

/// New connections per second while an agent is killed.
const RATE: u32 = 500;
/// Time under load before the kill, and again after it.
const HALF: Duration = Duration::from_secs(5);
/// Time from the last request to the freeze. The autoscaler stops an idle app of the examples 7 to 9 s after its last
/// request; after a freeze at 4 s the node's lease lasts another 6.7 to 10 s, so it is still valid at that decision.
const FREEZE_AFTER: Duration = Duration::from_secs(4);
/// Most attempts to freeze an agent in time.
const TRIES: u32 = 4;
/// Longest time until the frozen node's lease has ended and the pod is removed.
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);
/// Longest time between the ends of the node's lease and of the pod, in milliseconds: the lease's margin for clock drift, a
/// transaction, and the interval of our polling.
const REMOVAL_LATE_MS_MAX: f64 = 1_000.0;

/// An agent is killed and restarted under load: no connection fails, and its pod is not affected.
pub(crate) fn agent_is_killed(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let pod = cluster.awake(HELLO)?;
    let index = index_of(cluster, &pod)?;
    let host = host(cluster, index)?.clone();
    let before = cluster.pod_processes_of(&pod)?;
    ensure!(!before.is_empty(), "{} runs no process", pod.name);
    let netns = cluster.world().client().netns.clone();
    let load = thread::spawn(move || {
        dormouse_world::enter(&netns, || {
            load::steady(HELLO.address(), "/", RATE, HALF * 2)
        })
    });
    cluster.interrupt().sleep(HALF)?;
    cluster.crash_agent(index)?;
    let (outcome, rate) = load.join().ok().context("the client panicked")??;
    await_ready(cluster, &host)?;
    let after = cluster.pod_processes_of(&pod)?;
    Ok(vec![
        Row::measured("new connections around kill -9 of the agent", rate, "/s")
            .must(Bound::AtLeast(f64::from(RATE) * 0.98)),
        outcome.none_failed("  failed"),
        Row::claim(
            "  its pod keeps its process id",
            before == after,
            &format!("{after:?}"),
        ),
    ])
}

/// An agent is frozen: the node's kernel uses its entries until the lease ends, and the pod in them is removed right after.
pub(crate) fn agent_is_frozen(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let pod = cluster.awake(HELLO)?;
    let index = (index_of(cluster, &pod)? + 1) % cluster.world().nodes().len();
    let frozen = host(cluster, index)?.clone();
    let client = cluster.world().client().clone();
    route_through(&client, Some(&frozen))?;
    let rows = while_frozen(cluster, index, &frozen);
    // Also after a failure: later scenes need the node and the routes.
    cluster.agent(index)?.thaw()?;
    route_through(&client, None)?;
    await_ready(cluster, &frozen)?;
    rows
}

fn while_frozen(cluster: &Cluster, index: usize, frozen: &Host) -> Result<Vec<Row>> {
    let client = cluster.world().client();
    let interrupt = cluster.interrupt();
    freeze_in_serve(cluster, index, frozen)?;
    let lease_ends = lease_end(frozen)?;
    let asleep = interrupt.wait_for("the app to leave mode serve", REMOVAL_LIMIT, || {
        Ok((cluster.status(HELLO)?["mode"] == "Proxy").then(boottime))
    })?;
    let gone = interrupt.wait_for("the pod to be removed", REMOVAL_LIMIT, || {
        Ok(cluster.pods(HELLO)?.is_empty().then(boottime))
    })?;
    let ms = |later: u64, earlier: u64| (i128::from(later) - i128::from(earlier)) as f64 / 1e6;
    let activator = cluster.activator_requests()?;
    let statuses = client.enter(|| {
        (0..5)
            .map(|_| Ok(load::get(HELLO.address(), "/")?.status))
            .collect::<std::io::Result<Vec<_>>>()
    })??;
    let by_activator = cluster.activator_requests()? - activator;
    Ok(vec![
        Row::measured(
            "frozen agent: the app falls asleep before its lease ends, by",
            ms(lease_ends, asleep),
            "ms",
        )
        .must(Bound::AtLeast(0.0)),
        Row::measured(
            "  the pod is removed after the lease's end, not before",
            ms(gone, lease_ends),
            "ms",
        )
        .must(Bound::AtLeast(0.0)),
        Row::measured("  and right after it", ms(gone, lease_ends), "ms")
            .must(Bound::AtMost(REMOVAL_LATE_MS_MAX)),
        Row::claim(
            "  requests through the frozen node succeed",
            statuses.iter().all(|status| *status == 200),
            &format!("{statuses:?}"),
        ),
        Row::counted(
            "  all through the activator, decided by the node's kernel",
            by_activator,
            "",
        )
        .must(Bound::AtLeast(5.0)),
    ])
}

/// Freezes the node's agent while the app is in mode serve. On a busy machine, a node reports a request so late that the app falls
/// asleep before: then it is tried again.
fn freeze_in_serve(cluster: &Cluster, index: usize, node: &Host) -> Result<()> {
    let (client, interrupt) = (cluster.world().client(), cluster.interrupt());
    for _ in 0..TRIES {
        interrupt.wait_for("the node to redirect to the pod", PATIENCE, || {
            let before = cluster.activator_requests()?;
            client.enter(|| load::get(HELLO.address(), "/"))??;
            Ok((cluster.activator_requests()? == before).then_some(()))
        })?;
        interrupt.sleep(FREEZE_AFTER)?;
        cluster.agent(index)?.freeze()?;
        if cluster.status(HELLO)?["mode"] == "Serve" {
            return Ok(());
        }
        cluster.agent(index)?.thaw()?;
        await_ready(cluster, node)?;
    }
    bail!("the app fell asleep before its node's agent was frozen, {TRIES} times")
}

fn index_of(cluster: &Cluster, pod: &Pod) -> Result<usize> {
    let node = pod.node.as_deref();
    let found = cluster
        .world()
        .nodes()
        .iter()
        .position(|host| Some(host.name.as_str()) == node);
    found.with_context(|| format!("{} is on an unknown node", pod.name))
}

fn host(cluster: &Cluster, index: usize) -> Result<&Host> {
    cluster
        .world()
        .nodes()
        .get(index)
        .with_context(|| format!("there is no node {index}"))
}

fn await_ready(cluster: &Cluster, host: &Host) -> Result<()> {
    let name = host.name.as_str();
    cluster
        .interrupt()
        .wait_for(&format!("{name} to be Ready again"), PATIENCE, || {
            Ok(cluster.is_node_ready(name)?.then_some(()))
        })
}

/// Routes the client's packets for the app to one node, or to all nodes again.
fn route_through(client: &Host, node: Option<&Host>) -> Result<()> {
    let mut command = Command::new("ip");
    let vip = format!("{}/128", HELLO.vip);
    match node {
        Some(node) => command.args([
            "-6",
            "route",
            "replace",
            &vip,
            "via",
            &node.address.to_string(),
        ]),
        None => command.args(["-6", "route", "del", &vip]),
    };
    let status = client
        .enter(|| command.status())?
        .context("failed to start ip")?;
    ensure!(
        status.success(),
        "ip could not change the client's route ({status})"
    );
    Ok(())
}

/// The end of the node's lease from the kernel's map: CLOCK_BOOTTIME in nanoseconds.
fn lease_end(host: &Host) -> Result<u64> {
    let map = host.pinned("lease")?;
    let output = Command::new("bpftool")
        .args(["-j", "map", "dump", "pinned"])
        .arg(&map)
        .output();
    let output = output.context("failed to start bpftool")?;
    ensure!(
        output.status.success(),
        "bpftool: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let dump: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("bpftool printed no JSON")?;
    let bytes = dump[0]["value"]
        .as_array()
        .context("the lease map is empty")?;
    let byte = |value: &serde_json::Value| {
        u8::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok()
    };
    let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
    Ok(u64::from_le_bytes(
        bytes.try_into().ok().context("the lease is not one word")?,
    ))
}

/// CLOCK_BOOTTIME in nanoseconds, with which the kernel compares leases.
fn boottime() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map(|now| now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
        .unwrap_or_default()
}
