//! `pod-init`: joins the pod's network namespace, then executes the pod's command.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

/// The flags of `pod-init`.
#[derive(Clone, Debug, clap::Args)]
pub struct PodInit {
    /// The pod's network namespace
    #[arg(long)]
    pub netns: PathBuf,
    /// Working directory of the command; default: the agent's
    #[arg(long)]
    pub working_dir: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Executes the command; returns only on an error.
pub fn become_pod(init: &PodInit) -> Result<()> {
    let Some((program, arguments)) = init.command.split_first() else {
        bail!("no command given")
    };
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
