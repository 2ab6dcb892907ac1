//! The root of the pods: a mount namespace with the node's files, read-only, of which each pod gets a copy. Made once per agent, so that the
//! start of a pod costs a copy of few mounts.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dormouse_agent_sys::mounts;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};

use super::RuntimeConfig;

/// What the node has mounted at these places is removed, with all below: a pod gets its own, or an empty folder.
const OWN: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"];
/// Empty for pods, besides the places that the agent was given: sockets, keys, other pods' files.
const EMPTY: [&str; 4] = ["/run", "/var/tmp", "/var/lib/dormouse", "/etc/dormouse"];
/// Devices of a pod, with their numbers (admin-guide/devices.txt).
const DEVICES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
/// Folders in /dev, in which each pod has a file system of its own.
const FOLDERS: [&str; 3] = ["pts", "shm", "mqueue"];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
const RESOLVER: &str = "/etc/resolv.conf";

/// Makes the namespace.
pub(super) fn make(config: &RuntimeConfig) -> io::Result<OwnedFd> {
    let mut masked: Vec<PathBuf> = EMPTY.map(PathBuf::from).into();
    masked.push(absolute(&config.state_dir));
    // A socket is made again by each agent, so a mask of it alone would be lost. A folder like /var has more than sockets.
    let folder = absolute(&config.socket).parent().map(Path::to_owned);
    masked.extend(folder.filter(|folder| folder.components().count() > 2));
    mounts::namespace(move || build(&masked))
}

/// The path without symbolic links, as far as it exists.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize()
        .unwrap_or_else(|_missing| path.to_owned())
}

fn build(masked: &[PathBuf]) -> io::Result<()> {
    mounts::seal(Path::new("/"))?;
    // The thread's own, as all of its file system attributes.
    umask(Mode::empty());
    let resolver = resolver();
    for place in OWN {
        detach(Path::new(place))?;
    }
    make_devices(Path::new("/dev"))?;
    for place in masked.iter().filter(|place| place.is_dir()) {
        let files = resolver
            .as_ref()
            .filter(|(path, _)| path.starts_with(place));
        cover(place, files)?;
    }
    Ok(())
}

/// The file of the name servers where /etc/resolv.conf points to; it is often in /run.
fn resolver() -> Option<(PathBuf, Vec<u8>)> {
    let path = Path::new(RESOLVER).canonicalize().ok()?;
    let text = fs::read(&path).ok()?;
    Some((path, text))
}

/// Removes all mounts at a place.
fn detach(place: &Path) -> io::Result<()> {
    loop {
        match umount2(place, MntFlags::MNT_DETACH) {
            Ok(()) => {}
            // No mount is left there, or no folder.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Mounts an empty folder there, with at most one file, and makes it read-only.
fn cover(place: &Path, file: Option<&(PathBuf, Vec<u8>)>) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    tmpfs(place, flags)?;
    if let Some((path, text)) = file {
        fs::create_dir_all(path.parent().unwrap_or(place))?;
        fs::write(path, text)?;
    }
    remount(place, flags)
}

fn make_devices(place: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    tmpfs(place, flags)?;
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_bits_truncate(0o666);
        mknod(
            &place.join(name),
            SFlag::S_IFCHR,
            mode,
            makedev(major, minor),
        )?;
    }
    for (name, target) in LINKS {
        symlink(target, place.join(name))?;
    }
    for name in FOLDERS {
        fs::create_dir(place.join(name))?;
    }
    remount(place, flags)
}

fn tmpfs(place: &Path, flags: MsFlags) -> io::Result<()> {
    mount(
        Some("tmpfs"),
        place,
        Some("tmpfs"),
        flags,
        Some("mode=755,size=64k"),
    )?;
    Ok(())
}

fn remount(place: &Path, flags: MsFlags) -> io::Result<()> {
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, place, None::<&str>, flags, None::<&str>)?;
    Ok(())
}
