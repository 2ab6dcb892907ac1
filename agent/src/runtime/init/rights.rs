//! The rights of a pod's process: an unprivileged user, no capabilities, `no_new_privs`, and a filter of system calls.

use std::io;

use anyhow::{Context, Result};
use dormouse_agent_sys::seccomp;
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, fchown, setgroups, setresgid, setresuid};
use rustix::thread::CapabilitySet;

use super::denied::DENIED;
use crate::capabilities;

/// The flags of `pod-init` about rights.
#[derive(Clone, Debug, clap::Args)]
pub struct Rights {
    /// The user
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub user: u32,
    /// The group
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub group: u32,
    /// A supplementary group
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub also_group: Vec<u32>,
    /// Do not filter system calls (seccompProfile: Unconfined)
    #[arg(long)]
    pub unfiltered: bool,
}

impl Rights {
    /// Takes these rights, for good.
    pub(super) fn take(&self) -> Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        own_output(user, group).context("failed to give the output to the pod's user")?;
        capabilities::limit(CapabilitySet::empty()).context("failed to limit capabilities")?;
        let groups: Vec<Gid> = self.also_group.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups).context("failed to set the groups")?;
        setresgid(group, group, group).context("failed to set the group")?;
        setresuid(user, user, user).context("failed to set the user")?;
        capabilities::keep(CapabilitySet::empty()).context("failed to drop capabilities")?;
        set_no_new_privs().context("failed to set no_new_privs")?;
        if self.unfiltered {
            return Ok(());
        }
        seccomp::install(&DENIED).context("failed to filter system calls")
    }
}

/// Programs that open /dev/stdout or /dev/stderr open the FIFOs of the log again.
fn own_output(user: Uid, group: Gid) -> nix::Result<()> {
    fchown(io::stdout(), Some(user), Some(group))?;
    fchown(io::stderr(), Some(user), Some(group))
}
