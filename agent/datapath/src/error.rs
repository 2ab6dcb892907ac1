//! Errors of the data path, each with the failed operation.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use super::probe::Unsupported;

/// Why an operation of the data path failed.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The kernel or the user's privileges are not sufficient.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The folder of pins cannot be created or removed.
    #[error("failed to prepare or remove the pins in {path}", path = path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The given folder is not on a bpffs.
    #[error("{path} is not on a bpffs, so it holds no pins: check --bpffs and --node", path = path.display())]
    NoPins {
        /// Path of the folder.
        path: PathBuf,
    },
    /// Another agent writes the maps.
    #[error("an agent uses the pins in {path}: stop it first, or give another --node or --bpffs", path = path.display())]
    InUse {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The object did not load.
    #[error("failed to load the BPF object")]
    Object(#[from] aya::EbpfError),
    /// A program did not load or attach.
    #[error("failed to {operation} program `{program}`")]
    Program {
        /// The operation.
        operation: &'static str,
        /// The program's name.
        program: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A map operation failed.
    #[error("failed to {operation} map `{map}`")]
    Map {
        /// The operation.
        operation: &'static str,
        /// The map's name.
        map: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The object lacks a program or map: agent and object are from different builds.
    #[error("the BPF object has no `{name}`")]
    Absent {
        /// The map's or program's name.
        name: &'static str,
    },
    /// There is no such uplink.
    #[error(
        "there is no interface `{name}` with a link-layer address: give the node's uplink with --uplink"
    )]
    Uplink {
        /// The given name.
        name: String,
    },
    /// The cgroup cannot be opened.
    #[error("failed to open the cgroup {path}: it must be a folder of a cgroup2 file system", path = path.display())]
    Cgroup {
        /// The given path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A prefix of an unsupported length.
    #[error("{prefix}/{len} cannot be {what}")]
    Prefix {
        /// Network address.
        prefix: Ipv6Addr,
        /// Prefix length in bits.
        len: u8,
        /// Its intended use, and the requirement.
        what: &'static str,
    },
    /// More entries than the maps can hold.
    #[error("too many {what}: at most {max}")]
    Full {
        /// The kind of entries.
        what: &'static str,
        /// The maximum number.
        max: usize,
    },
    /// The reader of events was taken before.
    #[error("the kernel's events have a reader already")]
    Taken,
    /// Services were written before the cluster's configuration.
    #[error("the cluster's ranges are not configured yet: Services cannot be programmed")]
    NoCluster,
    /// An app's VIP has the index of a Service's slot.
    #[error("VIP index {vip} belongs to a Service")]
    NotAnApp {
        /// Index of the VIP.
        vip: u32,
    },
    /// Two ranges overlap in the `svc` map.
    #[error(
        "VIP range {range} (indexes from {base}) overlaps with the slots of service range {services}: give it a lower base"
    )]
    Overlap {
        /// The apps' range.
        range: String,
        /// First index of the apps' range, set by control.
        base: u32,
        /// The Services' range.
        services: String,
    },
    /// An index beyond the end of the maps.
    #[error("VIP index {vip} is beyond the maps' capacity")]
    Index {
        /// Index of the VIP.
        vip: u32,
    },
}

impl DatapathError {
    /// A map without room for more than `max` entries.
    pub(super) fn full(what: &'static str, max: u32) -> Self {
        Self::Full {
            what,
            max: max as usize,
        }
    }

    /// For `map_err`: a failed map operation.
    pub(super) fn map<E>(operation: &'static str, map: &'static str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |error| Self::Map {
            operation,
            map,
            source: error.into(),
        }
    }

    /// For `map_err`: a failed program operation.
    pub(super) fn program<E>(
        operation: &'static str,
        program: &'static str,
    ) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |error| Self::Program {
            operation,
            program,
            source: error.into(),
        }
    }
}
