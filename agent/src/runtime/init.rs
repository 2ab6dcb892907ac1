//! `pod-init`: enters the pod's namespaces, gives up root's rights, then executes the pod's command as the first process of its PID
//! namespace.

mod denied;
mod rights;
mod sandbox;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use dormouse_agent_sys::spawn::inherited;

pub use rights::Rights;

/// The places of the files that `pod-init` inherits: the pod's network namespace, the mount namespace of which it gets a copy, and an
/// empty file for the error if the command cannot be executed.
const NETNS: u8 = 0;
const ROOT: u8 = 1;
const FAILURE: u8 = 2;

/// What the names of the pod's variables begin with in the environment of `pod-init`, which itself reads none of them.
pub(super) const VARIABLE: &str = "POD:";

/// The flags of `pod-init`.
#[derive(Clone, Debug, clap::Args)]
pub struct PodInit {
    /// The pod's host name
    #[arg(long)]
    pub hostname: String,
    /// Working directory of the command; default: the agent's, or / if the pod's user cannot enter that
    #[arg(long)]
    pub working_dir: Option<PathBuf>,
    /// The rights of the pod.
    #[command(flatten)]
    pub rights: Rights,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Executes the command; returns only on an error, which it also writes to the inherited file: the command's own exit status could be
/// any.
pub fn become_pod(init: &PodInit) -> Result<()> {
    let mut failure = file(FAILURE)?;
    let Err(error) = execute(init) else {
        return Ok(());
    };
    let written = write!(failure, "{error:#}");
    written.context("failed to write the error of the pod")?;
    Err(error)
}

fn file(place: u8) -> Result<File> {
    let file = inherited(place).context("a file of the agent is missing: the agent starts this")?;
    Ok(file.into())
}

/// The variables of the pod.
fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.as_bytes().strip_prefix(VARIABLE.as_bytes())?;
        Some((OsStr::from_bytes(name).to_owned(), value))
    })
}

/// Whether no folder of PATH has the program. execvp(3) then says EACCES if the user cannot enter one of them.
fn is_missing(program: &OsStr, error: &io::Error) -> bool {
    if error.kind() != io::ErrorKind::PermissionDenied || program.as_bytes().contains(&b'/') {
        return false;
    }
    let path = variables().find_map(|(name, value)| (name == "PATH").then_some(value));
    let folders = path.unwrap_or_default();
    !std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

fn execute(init: &PodInit) -> Result<()> {
    let Some((program, arguments)) = init.command.split_first() else {
        bail!("no command given")
    };
    let own_folder = std::env::current_dir();
    sandbox::enter(&file(NETNS)?, &file(ROOT)?, &init.hostname)?;
    nix::unistd::setsid().context("failed to start a session")?;
    init.rights.take()?;
    match &init.working_dir {
        Some(folder) => std::env::set_current_dir(folder).with_context(|| {
            format!("failed to enter the working directory {}", folder.display())
        })?,
        // A failure leaves the pod in its root.
        None => drop(own_folder.and_then(std::env::set_current_dir)),
    }
    let mut command = Command::new(program);
    let error = command.args(arguments).env_clear().envs(variables()).exec();
    let error = if is_missing(program, &error) {
        nix::errno::Errno::ENOENT.into()
    } else {
        error
    };
    // execve(2): ENOENT is also the error of a script whose interpreter is missing.
    let path = Path::new(program);
    let is_script = path.components().nth(1).is_some() && path.exists();
    let what = match error.kind() {
        io::ErrorKind::NotFound if is_script => "the interpreter of ",
        _ => "",
    };
    Err(error).with_context(|| format!("failed to execute {what}{}", program.display()))
}
