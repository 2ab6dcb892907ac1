//! Network namespaces: create, delete, identify, enter.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use dormouse_agent_ipam::NetnsId;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

mod cookie;
mod existing;

pub use cookie::cookie;
pub use existing::existing;

const OWN: &str = "/proc/thread-self/ns/net";

/// Creates a namespace and mounts it at `path`, like `ip netns add`. Fails if the path exists.
pub fn create(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create_new(path)?;
    let bound = on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(
            Some(OWN),
            path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )?;
        Ok(())
    });
    if bound.is_err() {
        // The first error says more than a failed cleanup.
        let _ = fs::remove_file(path);
    }
    bound
}

/// Removes a namespace created by [`create`]; a missing one is no error. The namespace exists while processes are in it.
pub fn remove(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The namespace of a descriptor (device and inode); an error if it is not a network namespace.
pub fn identity(netns: impl AsFd) -> io::Result<NetnsId> {
    let netns = netns.as_fd();
    if fstatfs(netns)?.filesystem_type() != NSFS_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a network namespace",
        ));
    }
    let stat = fstat(netns)?;
    Ok(NetnsId {
        dev: stat.st_dev,
        ino: stat.st_ino,
    })
}

/// The calling thread's namespace.
pub fn own_identity() -> io::Result<NetnsId> {
    identity(File::open(OWN)?)
}

/// Mounted namespaces, as container runtimes create them: paths by inode.
pub fn mounted() -> io::Result<HashMap<u64, PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().filter_map(mounted_at).collect())
}

/// Parses a line of mountinfo: the fourth field is the mounted file, the fifth the mount point.
fn mounted_at(mount: &str) -> Option<(u64, PathBuf)> {
    let mut words = mount.split(' ').skip(3);
    let inode = words.next()?.strip_prefix("net:[")?.strip_suffix(']')?;
    Some((inode.parse().ok()?, words.next()?.into()))
}

/// Runs `work` inside the namespace on the calling thread, and returns to the previous one afterwards, also after a panic.
pub fn enter<T>(netns: BorrowedFd<'_>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = Own(File::open(OWN)?);
    setns(netns, CloneFlags::CLONE_NEWNET)?;
    let done = work();
    drop(own);
    done
}

/// The thread's namespace, to which it returns on drop.
struct Own(File);

impl Drop for Own {
    fn drop(&mut self) {
        if let Err(error) = setns(&self.0, CloneFlags::CLONE_NEWNET) {
            // The next pod's wiring on this thread would be done in this pod.
            tracing::error!(%error, "failed to leave a pod's namespace");
            std::process::abort();
        }
    }
}

pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned());
        let thread = thread.spawn_scoped(scope, work)?;
        let died = || io::Error::other("the thread inside the namespace panicked");
        thread.join().unwrap_or_else(|_| Err(died()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_are_found() {
        let mount = "44 43 0:4 net:[4026532202] /run/netns/a rw shared:2 - nsfs nsfs rw";
        assert_eq!(
            mounted_at(mount),
            Some((4_026_532_202, "/run/netns/a".into()))
        );
        assert_eq!(
            mounted_at("25 30 0:23 / /sys rw,relatime - sysfs sysfs rw"),
            None
        );
    }
}
