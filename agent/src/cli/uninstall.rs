//! `dormouse-agent uninstall`: removes a node's objects from the machine, and prints each.

use std::io::Write;

use anyhow::Result;

use super::{Uninstall, bpffs};
use crate::uninstall::{NodePaths, look, remove};

/// Removes the node's objects, or lists them with `--dry-run`.
pub(super) fn uninstall(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let paths = NodePaths {
        node: flags.node.clone(),
        bpffs: bpffs(flags.bpffs.as_ref(), &flags.node),
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
