//! The write-ahead log of the store: checksummed records in segments, group commit, and snapshots.
//!
//! The format is pure: [`frame`] (checksummed records), [`segment`] (headers of files) and `scan`
//! (records of a segment, torn or damaged). `frontier` computes which marks are as durable as asked,
//! `group` is the group commit on top of it. [`Recovery`] reads a directory, [`Journal`] appends to
//! it, and [`files`] is the file layer that tests replace to inject faults.
//!
//! A *mark* is a number that the caller assigns to its records and that never decreases; the store
//! uses its revisions. This package interprets neither marks nor payloads.
#![forbid(unsafe_code)]

mod durability;
mod error;
pub mod files;
pub mod frame;
mod frontier;
mod group;
mod journal;
mod recovery;
mod scan;
pub mod segment;
mod snapshot;
mod threads;
mod writer;

pub use durability::{Durability, UnknownDurability};
pub use error::{Failure, FileError, OpenError};
pub use frontier::Ticket;
pub use journal::{CompleteSnapshot, Journal, Observer};
pub use recovery::{Config, PreviousRun, Record, Recovered, Recovery, Refused, Visitor};
pub use segment::Identity;
pub use snapshot::SnapshotWriter;
