//! A pod's cgroup: where its processes are found, and killed, whatever they forked.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often a group that is busy is tried again, and how long to wait between.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// Makes the group.
pub(super) fn make(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Kills everything in the group and removes it. One that does not exist is done.
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

/// Kills everything in the group at once (Linux 5.14).
pub(super) fn kill(path: &Path) -> io::Result<()> {
    match fs::write(path.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
