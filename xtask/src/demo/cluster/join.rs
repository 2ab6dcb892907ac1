//! The lines with which nodes and roles join the cluster.

use std::process::Command;

use anyhow::{Context, Result};
use dormouse_world::World;

use super::{PATIENCE, kubeconfig};
use crate::binaries::Binaries;
use crate::interrupt::Interrupt;

/// The line for a subject, such as `--node n1`; waits until control serves.
pub(super) fn line(
    world: &World,
    binaries: &Binaries,
    interrupt: &Interrupt,
    subject: [&str; 2],
) -> Result<String> {
    let host = world.control();
    let mut last = String::new();
    let line = interrupt.wait_for("control to make a join token", PATIENCE, || {
        let mut command = Command::new(&binaries.dormouse);
        command
            .args(["token", "create"])
            .args(subject)
            .env("KUBECONFIG", kubeconfig(host));
        let output = host.enter(|| command.output())??;
        last = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(output.status.success().then_some(line))
    });
    line.with_context(|| format!("the last attempt: {}", last.trim()))
}
