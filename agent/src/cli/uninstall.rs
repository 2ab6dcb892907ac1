//! `dormouse-agent uninstall`: removes a node's objects from the machine, or what kube-proxy left on it, and prints each.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};

use super::{Uninstall, bpffs, check_name};
use crate::doctor::probe::processes;
use crate::leftovers;
use crate::uninstall::{NodePaths, look, remove};

/// Removes what the flags say, or lists it with `--dry-run`.
pub(super) fn run(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    if flags.kube_proxy_leftovers {
        return remove_leftovers(flags, out);
    }
    let node = flags.node.as_deref().context("--node is needed")?;
    check_name(node)?;
    uninstall(node, flags, out)
}

/// Removes what kube-proxy left.
fn remove_leftovers(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let found = leftovers::look();
    for what in &found.unknown {
        writeln!(out, "cannot be looked at: {what}")?;
    }
    let running = processes::kube_proxy();
    let refused = running.first().filter(|_| !flags.force);
    if flags.dry_run {
        for line in found.leftovers.iter().flat_map(leftovers::Leftover::lines) {
            writeln!(out, "would remove {line}")?;
        }
        if let Some(pid) = refused {
            writeln!(
                out,
                "refused without --force: kube-proxy runs (process {pid})"
            )?;
        }
        return Ok(());
    }
    if let Some(pid) = refused {
        bail!(
            "kube-proxy runs (process {pid}), and would write its rules again: remove it first, or give --force"
        );
    }
    let mut failures = Vec::new();
    for leftover in &found.leftovers {
        match leftover.remove() {
            Ok(()) => {
                for line in leftover.lines() {
                    writeln!(out, "removed {line}")?;
                }
            }
            Err(error) => failures.push(format!("{leftover}: {error}")),
        }
    }
    ensure!(
        failures.is_empty(),
        "failed to remove {}; the rest is removed",
        failures.join("; ")
    );
    Ok(())
}

/// Removes the node's objects, or lists them with `--dry-run`.
fn uninstall(node: &str, flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let paths = NodePaths {
        node: node.to_owned(),
        bpffs: bpffs(flags.bpffs.as_ref(), node),
        state_dir: flags.state_dir.clone(),
        socket: flags.socket.clone(),
        bridge: flags.bridge.clone(),
        cgroup: flags.cgroup.clone(),
    };
    let plan = look(&paths)?;
    if flags.dry_run {
        for removal in &plan.removals {
            writeln!(out, "would remove {removal}")?;
        }
        for pod in &plan.live {
            writeln!(out, "refused without --force: pod {pod} is running")?;
        }
        return Ok(());
    }
    let mut written = Ok(());
    let removed = remove(&paths, &plan, flags.force, |removal| {
        if written.is_ok() {
            written = writeln!(out, "removed {removal}");
        }
    });
    // Removal goes on if stdout is closed; the write error is reported after it.
    removed?;
    written?;
    for container in &plan.left {
        writeln!(
            out,
            "container {container} runs on without its network: kubectl delete pod, or crictl rmp --force {container}"
        )?;
    }
    Ok(())
}
