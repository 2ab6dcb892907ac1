//! The moment between the agent and the pod's command: enters the pod's namespace and cgroup, then becomes the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

/// What `pod-init` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct PodInit {
    /// The pod's network namespace
    #[arg(long)]
    pub netns: PathBuf,
    /// The pod's cgroup
    #[arg(long)]
    pub cgroup: PathBuf,
    /// Where the command starts; without it, where the agent did
    #[arg(long)]
    pub working_dir: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Returns only when something failed.
pub fn become_pod(init: &PodInit) -> Result<()> {
    let Some((program, arguments)) = init.command.split_first() else {
        bail!("no command")
    };
    // The cgroup first: whatever fails later is found there and killed.
    let procs = init.cgroup.join("cgroup.procs");
    fs::write(&procs, "0").with_context(|| format!("failed to join {}", procs.display()))?;
    let netns = File::open(&init.netns)
        .with_context(|| format!("failed to open {}", init.netns.display()))?;
    setns(netns, CloneFlags::CLONE_NEWNET).context("failed to enter the pod's namespace")?;
    nix::unistd::setsid().context("failed to start a session")?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(folder) = &init.working_dir {
        command.current_dir(folder);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("failed to execute {}", program.display()))
}
