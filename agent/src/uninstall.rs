//! Removal of everything that Dormouse created on a node, and of nothing else. An object belongs to Dormouse if it carries
//! Dormouse's name and mark, or lies in one of its folders; appearance alone is not enough. First all objects are collected
//! ([`plan`]: objects to remove, and obstacles), then they are removed.
//!
//! Kernel settings (forwarding, table limits) stay: other software may depend on them by now.

mod files;
mod plan;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use dormouse_agent_datapath::{Pinned, detach};
use dormouse_agent_inspect::InspectError;
use dormouse_agent_inspect::kernel::ask;
use dormouse_agent_inspect::wiring::Wiring;
use dormouse_agent_pod::saved_config;
use dormouse_agent_sys::{netns, retry};

pub use plan::{Plan, Removal};

/// The paths and names of a node's objects.
#[derive(Clone, Debug)]
pub struct NodePaths {
    /// Name of the node.
    pub node: String,
    /// Folder of its pins.
    pub bpffs: PathBuf,
    /// Its state folder.
    pub state_dir: PathBuf,
    /// The plugin's socket.
    pub socket: PathBuf,
    /// Its first bridge; the names of further bridges begin with it.
    pub bridge: String,
    /// Its cgroup; standalone pods have children of it.
    pub cgroup: PathBuf,
}

/// Why a node's objects are not removed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A running agent would create the objects again.
    #[error("an agent uses {0}: stop it first (systemctl stop dormouse-agent), or give --force")]
    AgentRuns(PathBuf),
    /// Running pods would lose their network.
    #[error(
        "{} pods of this node are running, such as {}: drain the node first, or give --force",
        .0.len(), .0.first().map(String::as_str).unwrap_or_default()
    )]
    PodsLive(Vec<String>),
    /// The objects cannot be listed.
    #[error("failed to list the node's objects: {0}")]
    Look(String),
    /// Some objects could not be removed.
    #[error("failed to remove {} objects: {}; try again", .0.len(), .0.join("; "))]
    Incomplete(Vec<String>),
}

impl From<InspectError> for UninstallError {
    fn from(error: InspectError) -> Self {
        Self::Look(error.message.clone())
    }
}

/// Lists all objects that are to be removed.
pub fn look(paths: &NodePaths) -> Result<Plan, UninstallError> {
    let unreadable = |error: io::Error| UninstallError::Look(error.to_string());
    let pinned = Pinned::open(&paths.bpffs).ok();
    let wiring = Wiring::look(&paths.state_dir, pinned.as_ref())?;
    let uplink = saved_config::load(&paths.state_dir).map(|config| config.uplink);
    let facts = pinned.as_ref().map(Pinned::facts);
    let mut plan = plan::of_kernel(paths, &wiring, facts, uplink.ok().as_deref());
    plan.removals
        .extend(files::removals(paths).map_err(unreadable)?);
    let own = files::uids(paths).map_err(unreadable)?;
    // A holder is network/container/interface.
    let containers = plan
        .live
        .iter()
        .filter_map(|holder| holder.split('/').nth(1));
    plan.left = containers
        .filter(|container| !own.iter().any(|uid| uid == container))
        .map(str::to_owned)
        .collect();
    plan.live
        .extend(files::processes(paths).map_err(unreadable)?);
    Ok(plan)
}

/// Removes the planned objects, and calls `removed` for each. A failure does not stop the removal of the others.
///
/// `force`: also while an agent runs, and with running pods.
pub fn remove(
    paths: &NodePaths,
    plan: &Plan,
    force: bool,
    mut removed: impl FnMut(&Removal),
) -> Result<(), UninstallError> {
    // Locked until the end, so that no agent starts meanwhile.
    let _lock = match lock(&paths.state_dir) {
        Err(_) if force => None,
        lock => lock?,
    };
    if !force && !plan.live.is_empty() {
        return Err(UninstallError::PodsLive(plan.live.clone()));
    }
    let mut failures = Vec::new();
    for removal in &plan.removals {
        match remove_one(removal, force) {
            Ok(true) => removed(removal),
            Ok(false) => {}
            Err(error) => failures.push(format!("{removal}: {error}")),
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(UninstallError::Incomplete(failures))
    }
}

/// Takes the running agent's lock; none if there is no lock file.
fn lock(state_dir: &Path) -> Result<Option<Flock<OwnedFd>>, UninstallError> {
    let Ok(file) = File::open(state_dir.join("agent.lock")) else {
        return Ok(None);
    };
    let locked = Flock::lock(OwnedFd::from(file), FlockArg::LockExclusiveNonblock);
    locked
        .map(Some)
        .map_err(|_busy| UninstallError::AgentRuns(state_dir.to_owned()))
}

/// Removes one object. Returns whether it existed.
fn remove_one(removal: &Removal, force: bool) -> io::Result<bool> {
    match removal {
        Removal::Link { index, .. } => {
            let index = *index;
            ask(async |handle| gone(handle.link().del(index).execute().await))
        }
        Removal::Neighbour { entry, .. } => {
            let message = entry.message.clone();
            ask(async |handle| gone(handle.neighbours().del(message).execute().await))
        }
        Removal::Route { route, .. } => {
            let message = route.message.clone();
            ask(async |handle| gone(handle.route().del(message).execute().await))
        }
        Removal::Namespace(path) => netns::remove(path).map(|()| true),
        Removal::Pins(path) => remove_pins(path, force),
        Removal::File(path) => was_there(fs::remove_file(path)),
        Removal::Cgroup(path) => was_there(end_cgroup(path)),
        Removal::Folder(path) => match fs::remove_dir(path) {
            // The folder contains something that Dormouse did not create.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            done => was_there(done),
        },
    }
}

/// Kills the processes of a cgroup, and removes it when they are gone.
fn end_cgroup(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.kill"), "1")?;
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    retry::wait(retry::INSTANT, is_busy, || fs::remove_dir(path))
}

fn remove_pins(path: &Path, force: bool) -> io::Result<bool> {
    match detach(path) {
        Err(_) if force => was_there(fs::remove_dir_all(path)),
        done => done.map(|()| true).map_err(io::Error::other),
    }
}

fn was_there(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        done => done.map(|()| true),
    }
}

/// Objects that were removed with another one, such as a bridge's routes, count as removed.
fn gone(done: Result<(), rtnetlink::Error>) -> io::Result<bool> {
    const GONE: [i32; 3] = [libc::ENODEV, libc::ENOENT, libc::ESRCH];
    match done {
        Err(rtnetlink::Error::NetlinkError(error))
            if GONE.contains(&error.raw_code().saturating_neg()) =>
        {
            Ok(false)
        }
        done => done.map(|()| true).map_err(io::Error::other),
    }
}
