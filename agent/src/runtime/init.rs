//! `pod-init`: joins the pod's network namespace, then executes the pod's command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
    /// File for the error if the command cannot be executed
    #[arg(long)]
    pub error_file: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Executes the command; returns only on an error, which it also writes to the error file: the command's own exit status could be
/// any.
pub fn become_pod(init: &PodInit) -> Result<()> {
    let Err(error) = execute(init) else {
        return Ok(());
    };
    if let Some(path) = &init.error_file {
        fs::write(path, format!("{error:#}"))
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Err(error)
}

fn execute(init: &PodInit) -> Result<()> {
    let Some((program, arguments)) = init.command.split_first() else {
        bail!("no command given")
    };
    let netns = File::open(&init.netns)
        .with_context(|| format!("failed to open {}", init.netns.display()))?;
    setns(netns, CloneFlags::CLONE_NEWNET).context("failed to enter the pod's namespace")?;
    nix::unistd::setsid().context("failed to start a session")?;
    if let Some(folder) = &init.working_dir {
        std::env::set_current_dir(folder).with_context(|| {
            format!("failed to enter the working directory {}", folder.display())
        })?;
    }
    let error = Command::new(program).args(arguments).exec();
    // execve(2): ENOENT is also the error of a script whose interpreter is missing.
    let path = Path::new(program);
    let is_script = path.components().nth(1).is_some() && path.exists();
    let what = match error.kind() {
        io::ErrorKind::NotFound if is_script => "the interpreter of ",
        _ => "",
    };
    Err(error).with_context(|| format!("failed to execute {what}{}", program.display()))
}
