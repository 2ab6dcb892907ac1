//! The lock of a node's state folder: two agents on one node would undo each other's changes.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
use dormouse_agent_sys::retry;
use nix::fcntl::{Flock, FlockArg};

/// Locks the state folder, which is created if needed.
pub(super) fn lock(state_dir: &Path) -> Result<Flock<OwnedFd>> {
    let failed = || format!("failed to use the state folder {}", state_dir.display());
    fs::create_dir_all(state_dir).with_context(failed)?;
    let path = state_dir.join("agent.lock");
    let attempt = || {
        let file = File::create(&path)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
