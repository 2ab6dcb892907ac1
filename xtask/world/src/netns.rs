//! Network namespaces under a name: made, entered without `ip netns exec` (which would hide the BPF file system), removed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::WorldError;

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace under a name in `/run/netns`; removed when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
    path: PathBuf,
    file: File,
}

impl Netns {
    /// Makes a namespace, after removing one of the same name that a killed run left.
    pub fn create(name: &str) -> Result<Self, WorldError> {
        let path = path(name);
        remove(name)?;
        fs::create_dir_all(NAMES).map_err(WorldError::file("make", NAMES))?;
        File::create_new(&path).map_err(WorldError::file("make", &path))?;
        // From here on a failure removes the file.
        let made = thread::scope(|scope| scope.spawn(|| bind(&path)).join());
        made.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
            .and_then(|()| File::open(&path).map_err(WorldError::file("open", &path)))
            .inspect_err(|_| drop(remove(name)))
            .map(|file| Self {
                name: name.to_owned(),
                path: path.clone(),
                file,
            })
    }

    /// The name, as `ip -n` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that names the namespace, as `CNI_NETNS` takes it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The namespace, held open.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, WorldError> {
        enter(&self.path, work)
    }

    /// Removes the namespaces whose name `is_left` picks. A failure does not keep the others from being removed.
    pub fn clear(is_left: impl Fn(&str) -> bool) -> Result<(), WorldError> {
        let mut outcome = Ok(());
        for name in list("").iter().filter(|name| is_left(name)) {
            let removed = remove(name);
            outcome = outcome.and(removed);
        }
        outcome
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The next namespace of this name is made after another attempt.
        let _ = remove(&self.name);
    }
}

/// Gives the calling thread a new namespace, and binds that to `path`.
fn bind(path: &Path) -> Result<(), WorldError> {
    let call = |source| WorldError::call("make a namespace at", path)(source);
    unshare(CloneFlags::CLONE_NEWNET).map_err(call)?;
    let nothing: Option<&str> = None;
    mount(Some(OWN), path, nothing, MsFlags::MS_BIND, nothing).map_err(call)
}

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

/// Removes a namespace's name; with the last process in it gone, the namespace goes too. No such name is no error.
pub(crate) fn remove(name: &str) -> Result<(), WorldError> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // A name that was made but never mounted, by a run that was killed between the two.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(WorldError::call("unmount", path)(error)),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(WorldError::file("remove", &path)),
    }
}
