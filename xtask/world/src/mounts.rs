//! Finds the file systems that a world needs, and mounts those that a bare machine lacks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};

use crate::error::WorldError;

/// Where the BPF file system belongs.
const BPFFS: &str = "/sys/fs/bpf";
/// Where cgroups are mounted on a machine that has them nowhere.
const CGROUPS: &str = "/run/dormouse-cgroups";

/// Mounts the BPF file system where it is missing.
pub(crate) fn bpffs() -> Result<(), WorldError> {
    let path = Path::new(BPFFS);
    find_or_mount(
        path,
        || {
            let found = find("bpf").into_iter().any(|mounted| mounted == path);
            found.then(|| path.to_path_buf())
        },
        "bpf",
    )
    .map(drop)
}

/// The root of the cgroups of version 2, mounted where it is missing.
pub fn cgroups() -> Result<PathBuf, WorldError> {
    if let Some(found) = find("cgroup2").into_iter().next() {
        return Ok(found);
    }
    fs::create_dir_all(CGROUPS).map_err(WorldError::file("make", CGROUPS))?;
    find_or_mount(
        Path::new(CGROUPS),
        || find("cgroup2").into_iter().next(),
        "cgroup2",
    )
}

/// Looks and mounts under a lock: a second mount would hide what the first one holds.
fn find_or_mount(
    path: &Path,
    find: impl Fn() -> Option<PathBuf>,
    kind: &'static str,
) -> Result<PathBuf, WorldError> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let folder = File::open(path).map_err(WorldError::file("open", path))?;
    let _lock = Flock::lock(folder, FlockArg::LockExclusive)
        .map_err(|(_, source)| WorldError::call("lock", path)(source))?;
    if let Some(found) = find() {
        return Ok(found);
    }
    let nothing: Option<&str> = None;
    mount(Some(kind), path, Some(kind), MsFlags::empty(), nothing)
        .map_err(WorldError::call("mount a file system at", path))?;
    Ok(path.to_path_buf())
}

/// Where file systems of this kind are mounted.
fn find(kind: &str) -> Vec<PathBuf> {
    parse(
        &fs::read_to_string("/proc/self/mounts").unwrap_or_default(),
        kind,
    )
}

fn parse(mounts: &str, kind: &str) -> Vec<PathBuf> {
    let found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (path, found) = (words.nth(1)?, words.next()?);
        (found == kind).then(|| PathBuf::from(path))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_kind() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nhalf a line";
        assert_eq!(
            parse(mounts, "cgroup2"),
            [PathBuf::from("/sys/fs/cgroup/unified")]
        );
        assert!(parse(mounts, "bpf").is_empty());
    }
}
