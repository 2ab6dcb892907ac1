//! A pod's cgroup, which contains all processes of the pod and is used to kill them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Number of attempts to remove a cgroup that still has processes, and the pause between them.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// Creates the cgroup.
pub(super) fn make(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Kills all processes of the cgroup and removes it. A cgroup that does not exist is no error.
pub(super) async fn remove(path: &Path) -> io::Result<()> {
    for _ in 0..REMOVE_TRIES {
        kill(path)?;
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tokio::time::sleep(REMOVE_PAUSE).await;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

/// Kills all processes of the cgroup at once (cgroup.kill, Linux 5.14).
pub(super) fn kill(path: &Path) -> io::Result<()> {
    match fs::write(path.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
