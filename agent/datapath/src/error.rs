//! What can go wrong between the agent and the kernel, each with the operation that failed.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use super::probe::Unsupported;

/// An operation on the data path failed.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// This machine or this user cannot run the data path.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A folder of pins.
    #[error("failed to prepare or remove the pins in {path}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder of pins that was given is no such folder.
    #[error("{path} is not on a bpffs, so it holds no pins: check --bpffs and --node", path = path.display())]
    NoPins {
        /// The folder.
        path: PathBuf,
    },
    /// Somebody else writes the maps.
    #[error("an agent uses the pins in {path}: stop it first, or give another --node or --bpffs", path = path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The object did not load.
    #[error("failed to load the BPF object")]
    Object(#[from] aya::EbpfError),
    /// A program did not load or attach.
    #[error("failed to {operation} program `{program}`")]
    Program {
        /// What was tried.
        operation: &'static str,
        /// Which.
        program: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A map could not be used.
    #[error("failed to {operation} map `{map}`")]
    Map {
        /// What was tried.
        operation: &'static str,
        /// Which.
        map: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The object lacks a part: agent and object are not of one build.
    #[error("the BPF object has no `{name}`")]
    Absent {
        /// The map or program.
        name: &'static str,
    },
    /// The uplink is not there.
    #[error(
        "there is no interface `{name}` with a link-layer address: name the outer interface by --uplink"
    )]
    Uplink {
        /// The name that was given.
        name: String,
    },
    /// The cgroup cannot be opened.
    #[error("failed to open the cgroup {path}: it must be a folder of a cgroup2 file system", path = path.display())]
    Cgroup {
        /// The path that was given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A prefix of a length that the maps cannot hold.
    #[error("{prefix}/{len} cannot be {what}")]
    Prefix {
        /// Its address.
        prefix: Ipv6Addr,
        /// Its length.
        len: u8,
        /// What it was given as, and what that needs.
        what: &'static str,
    },
    /// More than the maps hold.
    #[error("too many {what}: at most {max}")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// Somebody reads the events already.
    #[error("the kernel's events were taken before: they have one reader")]
    Taken,
    /// Services came before the facts by which they are decided.
    #[error("the cluster's facts were not told yet: Services cannot be placed")]
    NoCluster,
    /// An app's VIP where a Service's is.
    #[error("VIP index {vip} belongs to a Service")]
    NotAnApp {
        /// The index.
        vip: u32,
    },
    /// Two ranges want the same slots.
    #[error(
        "VIP range {range} (indexes from {base}) overlaps with the slots of service range {services}: give it a lower base"
    )]
    Overlap {
        /// The apps' range.
        range: String,
        /// Where control puts it.
        base: u32,
        /// The Services' range.
        services: String,
    },
    /// An index past the maps.
    #[error("VIP index {vip} is past the maps' end")]
    Index {
        /// The index.
        vip: u32,
    },
}

impl DatapathError {
    /// For `map_err`: an operation on a map failed.
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

    /// For `map_err`: an operation on a program failed.
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
