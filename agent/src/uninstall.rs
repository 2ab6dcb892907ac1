//! Takes all that Dormouse made off a node, and nothing else. What is ours is told by what it bears (a name and a mark of
//! ours, a place in a folder of ours), never by its looks alone. First everything is looked at ([`plan`]: what goes, and
//! what stands in the way), then it is removed.
//!
//! Settings of the kernel (forwarding, limits of tables) stay: nobody knows who else relies on them by now.

mod files;
mod plan;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use dormouse_agent_datapath::{Pinned, detach};
use dormouse_agent_inspect::Trouble;
use dormouse_agent_inspect::kernel::ask;
use dormouse_agent_inspect::wiring::Wiring;
use dormouse_agent_pod::remembered;
use dormouse_agent_sys::netns;

pub use plan::{Plan, Removal};

/// Where a node's things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// Its folder of pins.
    pub bpffs: PathBuf,
    /// Its state folder.
    pub state_dir: PathBuf,
    /// The socket that the plugin calls.
    pub socket: PathBuf,
    /// The bridge of its pods; further ones have names that begin so.
    pub bridge: String,
    /// Its cgroup: standalone pods have children of it.
    pub cgroup: PathBuf,
}

/// Why a node is not cleaned.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// An agent would make again what is removed.
    #[error("an agent uses {0}: stop it first (systemctl stop dormouse-agent), or give --force")]
    AgentRuns(PathBuf),
    /// Pods would lose their network.
    #[error(
        "{} of this node's pods live, such as {}: drain the node first, or give --force",
        .0.len(), .0.first().map(String::as_str).unwrap_or_default()
    )]
    PodsLive(Vec<String>),
    /// What is there cannot be seen.
    #[error("failed to look at what is there: {0}")]
    Look(String),
    /// Some of it is still there.
    #[error("failed to remove {} things: {}; try again", .0.len(), .0.join("; "))]
    Incomplete(Vec<String>),
}

impl From<Trouble> for UninstallError {
    fn from(trouble: Trouble) -> Self {
        Self::Look(trouble.message)
    }
}

/// Looks at all that there is to remove.
pub fn look(place: &Place) -> Result<Plan, UninstallError> {
    let unreadable = |error: io::Error| UninstallError::Look(error.to_string());
    let pinned = Pinned::open(&place.bpffs).ok();
    let wiring = Wiring::look(&place.state_dir, pinned.as_ref())?;
    let uplink = remembered::recall(&place.state_dir).map(|config| config.uplink);
    let facts = pinned.as_ref().map(Pinned::facts);
    let mut plan = plan::of_kernel(place, &wiring, facts, uplink.ok().as_deref());
    plan.removals
        .extend(files::removals(place).map_err(unreadable)?);
    plan.live
        .extend(files::processes(place).map_err(unreadable)?);
    Ok(plan)
}

/// Removes what was planned, and tells each thing that is gone. What fails does not keep the rest.
///
/// `force`: also under a running agent, and under pods that live.
pub fn remove(
    place: &Place,
    plan: &Plan,
    force: bool,
    mut tell: impl FnMut(&Removal),
) -> Result<(), UninstallError> {
    // Held to the end: no agent begins meanwhile.
    let _lock = match lock(&place.state_dir) {
        Err(_) if force => None,
        lock => lock?,
    };
    if !force && !plan.live.is_empty() {
        return Err(UninstallError::PodsLive(plan.live.clone()));
    }
    let mut failures = Vec::new();
    for removal in &plan.removals {
        match remove_one(removal, force) {
            Ok(true) => tell(removal),
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

/// The lock that a running agent holds; none where there is no file to lock.
fn lock(state_dir: &Path) -> Result<Option<Flock<OwnedFd>>, UninstallError> {
    let Ok(file) = File::open(state_dir.join("agent.lock")) else {
        return Ok(None);
    };
    let locked = Flock::lock(OwnedFd::from(file), FlockArg::LockExclusiveNonblock);
    locked
        .map(Some)
        .map_err(|_busy| UninstallError::AgentRuns(state_dir.to_owned()))
}

/// Whether it was there.
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
        Removal::Folder(path) => match fs::remove_dir(path) {
            // Somebody else has something in it.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            done => was_there(done),
        },
    }
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

/// What went with something else, such as a bridge's routes, is gone already.
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
