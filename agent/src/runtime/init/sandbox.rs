//! The namespaces of a pod: the network namespace that the plugin has wired, a copy of the pods' root with file systems of the pod's own, and
//! IPC, UTS and cgroup namespaces.

use std::fs::{self, File};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::sethostname;

/// The first port that needs no capability, of a network namespace.
const LOW_PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// Longest name of a host (utsname(2)).
const HOSTNAME_LEN_MAX: usize = 63;

/// File systems: type, place, whether it is read-only and whether programs of it can be executed, options. /tmp and /dev/shm count as the pod's
/// memory.
const OWN: [(&str, &str, MsFlags, &str); 7] = [
    ("proc", "/proc", MsFlags::MS_NOEXEC, ""),
    ("sysfs", "/sys", READ_ONLY, ""),
    ("cgroup2", "/sys/fs/cgroup", READ_ONLY, ""),
    (
        "devpts",
        "/dev/pts",
        MsFlags::MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620",
    ),
    (
        "tmpfs",
        "/dev/shm",
        MsFlags::MS_NOEXEC,
        "mode=1777,size=64m",
    ),
    ("mqueue", "/dev/mqueue", MsFlags::MS_NOEXEC, ""),
    ("tmpfs", "/tmp", MsFlags::MS_NODEV, "mode=1777,size=25%"),
];
const READ_ONLY: MsFlags = MsFlags::MS_NOEXEC.union(MsFlags::MS_RDONLY);

/// Enters them. The calling process must be the first one of its PID namespace, with one thread.
pub(super) fn enter(netns: &File, root: &File, hostname: &str) -> Result<()> {
    setns(netns, CloneFlags::CLONE_NEWNET)
        .context("failed to enter the pod's network namespace")?;
    fs::write(LOW_PORTS, "0").with_context(|| format!("failed to write {LOW_PORTS}"))?;
    setns(root, CloneFlags::CLONE_NEWNS).context("failed to enter the root of the pods")?;
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(own).context("failed to make the pod's namespaces")?;
    let length = hostname.len().min(HOSTNAME_LEN_MAX);
    sethostname(&hostname[..length]).context("failed to set the host name")?;
    OWN.iter().try_for_each(|(kind, place, flags, options)| {
        let flags = *flags | MsFlags::MS_NOSUID;
        let options = Some(*options).filter(|options| !options.is_empty());
        match mount(Some(*kind), *place, Some(*kind), flags, options) {
            // A kernel without POSIX message queues.
            Err(Errno::ENODEV) if *kind == "mqueue" => Ok(()),
            mounted => mounted.with_context(|| format!("failed to mount {kind} at {place}")),
        }
    })
}
