//! The output of a node's pods: files in the CRI log format, bounded per pod and per node, kept for a time after a pod ended.
//!
//! A pod writes to two FIFOs in the folder of logs, which it holds open for reading too: so it is never without a reader, and its
//! output waits in them while no writer runs. One process per node, the writer ([`writer`]), reads the FIFOs of all pods, adds
//! timestamps and appends to files. It is not the agent, so that pods do not wait for an agent that is stopped or replaced; it keeps
//! nothing in memory between two reads: SIGKILL loses at most what it has read and not written, 16 KiB of each stream. Anything may read the files ([`reader`], [`tail`]).
//!
//! Reading order: the names of files ([`name`]), records ([`record`]) and the lines that they become ([`lines`]), what is removed
//! ([`retention`]): all pure. With I/O: the folder ([`folder`]), [`reader`], [`writer`].

#![forbid(unsafe_code)]

pub mod folder;
pub mod lines;
pub mod name;
pub mod reader;
pub mod record;
pub mod retention;
pub mod writer;

pub use folder::{Extent, Folder, Meta, Output, tail};
pub use lines::Selection;
pub use name::Run;
pub use reader::{Next, Reader};
pub use retention::Limits;
