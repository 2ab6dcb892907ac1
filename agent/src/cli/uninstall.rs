//! Takes a node's things off the machine, and says what goes.

use std::io::Write;

use anyhow::Result;

use super::{Uninstall, bpffs};
use crate::uninstall::{Place, look, remove};

/// Removes, or lists, what is there of a node.
pub(super) fn uninstall(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let place = Place {
        node: flags.node.clone(),
        bpffs: bpffs(flags.bpffs.as_ref(), &flags.node),
        state_dir: flags.state_dir.clone(),
        socket: flags.socket.clone(),
        bridge: flags.bridge.clone(),
        cgroup: flags.cgroup.clone(),
    };
    let plan = look(&place)?;
    if flags.dry_run {
        for removal in &plan.removals {
            writeln!(out, "would remove {removal}")?;
        }
        for pod in &plan.live {
            writeln!(out, "in the way: pod {pod} lives")?;
        }
        return Ok(());
    }
    let mut written = Ok(());
    let removed = remove(&place, &plan, flags.force, |removal| {
        if written.is_ok() {
            written = writeln!(out, "removed {removal}");
        }
    });
    // What is gone is gone, whoever reads of it.
    removed?;
    Ok(written?)
}
