//! The lock of a node's state folder: two agents on one node would undo each other's changes. Only the agent's user can take it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use dormouse_agent_sys::retry;
use nix::fcntl::{Flock, FlockArg};

/// Permissions of the state folder. Others pass through it to folders of their own: the control plane's is in it by default.
const FOLDER_MODE: u32 = 0o711;
/// Permissions of the lock: who can open it can hold it.
const LOCK_MODE: u32 = 0o600;

/// Locks the state folder, which is created if needed.
pub(super) fn lock(state_dir: &Path) -> Result<Flock<OwnedFd>> {
    let failed = || format!("failed to use the state folder {}", state_dir.display());
    create(state_dir).with_context(failed)?;
    let path = state_dir.join("agent.lock");
    let attempt = || {
        let file = open(&path)?;
        let locked = Flock::lock(OwnedFd::from(file), FlockArg::LockExclusiveNonblock);
        locked.map_err(|(_, error)| io::Error::from(error))
    };
    let is_held = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    retry::wait(retry::INSTANT, is_held, attempt).map_err(|error| {
        if !is_held(&error) {
            return anyhow::Error::new(error).context(failed());
        }
        anyhow::anyhow!(
            "another agent uses {}; stop it first, or give --state-dir",
            state_dir.display()
        )
    })
}

/// Creates the folder, or takes from others what they may not do in it, if it is this user's.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE).create(folder)?;
    let found = fs::metadata(folder)?;
    let mode = found.mode() & 0o7777;
    if found.uid() != nix::unistd::geteuid().as_raw() || mode & FOLDER_MODE == mode {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(mode & FOLDER_MODE))
}

/// Opens the lock. That of an earlier release could be opened by all users.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options.mode(LOCK_MODE).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(LOCK_MODE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(folder: &Path) -> [u32; 2] {
        [folder.to_owned(), folder.join("agent.lock")]
            .map(|path| fs::metadata(path).unwrap().mode() & 0o777)
    }

    #[test]
    fn no_other_user_can_open_the_lock_or_list_the_folder_also_of_an_earlier_release() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        drop(lock(&folder).unwrap());
        assert_eq!(modes(&folder), [FOLDER_MODE, LOCK_MODE]);
        for (path, mode) in [(folder.clone(), 0o755), (folder.join("agent.lock"), 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        drop(lock(&folder).unwrap());
        assert_eq!(modes(&folder), [FOLDER_MODE, LOCK_MODE]);
        // An administrator may be stricter.
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        drop(lock(&folder).unwrap());
        assert_eq!(modes(&folder), [0o700, LOCK_MODE]);
    }

    #[test]
    fn a_second_agent_on_one_state_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(
            lock(dir.path())
                .unwrap_err()
                .to_string()
                .contains("--state-dir")
        );
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn the_lock_of_a_killed_agent_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                both.wait();
                lock(dir.path()).map(drop)
            });
            both.wait();
            // A child that the killed agent has forked holds the lock until it has called exec.
            std::thread::yield_now();
            drop(held);
            waiting.join().unwrap().unwrap();
        });
    }
}
