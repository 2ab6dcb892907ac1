//! Refuses early, and with the command to type, what only root can do.

use anyhow::bail;

/// Fails unless this process is root: namespaces, cgroups and BPF programs need it.
pub(crate) fn require(verb: &str) -> anyhow::Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!("run as root: sudo -E cargo xtask {verb}")
}
