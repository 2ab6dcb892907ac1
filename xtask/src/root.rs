//! The check for root, with the command to run instead.

use anyhow::bail;

/// Fails unless this process is root, which namespaces, cgroups and BPF programs need.
pub(crate) fn require(verb: &str) -> anyhow::Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!("run as root: sudo -E cargo xtask {verb}")
}
