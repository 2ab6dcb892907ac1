//! One host of a world: where its namespace, cgroup, pins and folders are.

use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use crate::error::WorldError;
use crate::netns;
use crate::plan::Seat;

/// The device that is cabled to the switch, on every host.
const UPLINK: &str = "eth0";

/// A host: a network namespace and a cgroup, with folders of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its full name: the world's prefix, a dash, `node-1`, `client` or `control`.
    pub name: String,
    /// Its own address on the link that all hosts share.
    pub address: Ipv6Addr,
    /// The /96 that is routed here: a node's own, or the control host's acting prefix.
    pub prefix: Option<Ipv6Addr>,
    /// The file that names its network namespace.
    pub netns: PathBuf,
    /// The cgroup (version 2) of all its processes.
    pub cgroup: PathBuf,
    /// Where its BPF objects may be pinned. The program that pins makes it.
    pub bpffs: PathBuf,
    /// Its folder for sockets, state and logs.
    pub folder: PathBuf,
}

impl Host {
    /// The host at this seat of the world `prefix`.
    pub(crate) fn new(prefix: &str, seat: &Seat, roots: &Roots) -> Self {
        let name = format!("{prefix}-{}", seat.name);
        Self {
            address: seat.address,
            prefix: seat.prefix(),
            netns: netns::path(&name),
            cgroup: roots.cgroup.join(&seat.name),
            bpffs: roots.pins.join(&name),
            folder: roots.folder.join(&seat.name),
            name,
        }
    }

    /// The device that connects it to the other hosts.
    pub fn uplink(&self) -> &'static str {
        UPLINK
    }

    /// Runs `work` on a thread inside this host's network namespace: sockets it opens, and programs it starts,
    /// stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, WorldError> {
        netns::enter(&self.netns, work)
    }

    /// The pinned map `name` of the agent that runs here, whatever the version of its layout.
    pub fn pinned(&self, name: &str) -> io::Result<PathBuf> {
        let mut layouts = std::fs::read_dir(&self.bpffs)?
            .map(|entry| Ok(entry?.path().join(name)))
            .collect::<io::Result<Vec<_>>>()?;
        layouts.sort();
        let newest = layouts.into_iter().rfind(|map| map.exists());
        newest.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such pinned map"))
    }

    /// The file for what `program` writes.
    pub fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }
}

/// Where the parts of one world lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Roots {
    /// The cgroup that holds those of all hosts.
    pub(crate) cgroup: PathBuf,
    /// The folder in which each host has one for its pins.
    pub(crate) pins: PathBuf,
    /// The folder of sockets, state and logs.
    pub(crate) folder: PathBuf,
}

impl Roots {
    /// The places of the world `prefix`, on a machine whose cgroups lie below `cgroups`.
    pub(crate) fn new(prefix: &str, cgroups: &Path) -> Self {
        Self {
            cgroup: cgroups.join("dormouse").join(prefix),
            pins: Path::new("/sys/fs/bpf/dormouse").to_path_buf(),
            folder: PathBuf::from(format!("/run/dormouse-{prefix}")),
        }
    }
}
