//! Network namespaces that exist: mounted ones, and those of running processes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The agent's mounts, and the host's where the agent can see the host's first process.
const MOUNTS: [&str; 2] = ["/proc/self/mountinfo", "/proc/1/mountinfo"];

/// The inodes of existing namespaces. One that is only held by a file descriptor is not found.
pub fn existing() -> io::Result<HashSet<u64>> {
    let mut inodes = HashSet::new();
    for path in MOUNTS {
        inodes.extend(mounted(&fs::read_to_string(path)?));
    }
    for process in fs::read_dir("/proc")? {
        // Processes end while the list is read, and not every entry is a process.
        if let Ok(namespace) = fs::metadata(process?.path().join("ns/net")) {
            inodes.insert(namespace.ino());
        }
    }
    Ok(inodes)
}

/// The namespaces in a `mountinfo`; the fourth field of a line is the mounted file, like `net:[4026532281]`.
fn mounted(mountinfo: &str) -> impl Iterator<Item = u64> {
    mountinfo.lines().filter_map(|line| {
        let root = line.split(' ').nth(3)?;
        root.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_are_distinguished_from_other_mounts() {
        let text = "\
            22 1 8:1 / / rw - ext4 /dev/root rw\n\
            90 22 0:4 net:[4026532281] /run/netns/a rw shared:1 - nsfs nsfs rw\n\
            91 22 0:4 mnt:[4026532282] /run/mnt/a rw - nsfs nsfs rw\n\n";
        assert_eq!(mounted(text).collect::<Vec<_>>(), [4_026_532_281]);
    }

    #[test]
    fn the_own_namespace_exists() {
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(existing().unwrap().contains(&own));
    }
}
