//! Enters network namespaces without `ip netns exec`, which would hide the BPF file system; removes them.

use std::fs::{self, File};
use std::panic;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};

use crate::error::WorldError;

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// The file that names a namespace.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Runs `work` on a thread of its own inside the namespace that the file `netns` names. A panic of `work`
/// goes on in the caller.
pub fn enter<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> Result<T, WorldError> {
    let inside = || {
        let namespace = File::open(netns).map_err(WorldError::file("open", netns))?;
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(WorldError::call("enter", netns))?;
        Ok(work())
    };
    let outcome = thread::scope(|scope| scope.spawn(inside).join());
    outcome.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// The names of all namespaces that begin with `start`.
pub(crate) fn list(start: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(NAMES) else {
        return Vec::new();
    };
    let names = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(start))
        .collect()
}

/// Removes a namespace's name; with the last process in it gone, the namespace goes too.
pub(crate) fn remove(name: &str) -> Result<(), WorldError> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // A name that was made but never mounted, by a run that was killed between the two.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(error) => return Err(WorldError::call("unmount", path)(error)),
    }
    fs::remove_file(&path).map_err(WorldError::file("remove", &path))
}
