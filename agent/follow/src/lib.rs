//! A client that follows the objects of one kind at a Kubernetes API server: requests out, bytes in, changes out. Pure.
//!
//! There are no sockets or clocks here: the caller sends each [`Request`], passes on the response as it arrives, and waits
//! between requests. Objects are passed on one by one and not stored; of each only its name is kept, to find those that a
//! list no longer contains. Tests replay what a real kube-apiserver sent (`tests/kube_api_vectors`).
//!
//! kube-runtime's watcher is not used: it cannot fall back from streaming lists, collects whole pages, and does not notice
//! that a server was restored from a backup.
//!
//! Reading order: what is found out ([`event`]), the state machine ([`follower`]), its requests ([`request`]), the documents of lists ([`mod@list`]) and of
//! watches ([`watch`]), and refusals ([`fault`]).

#![forbid(unsafe_code)]

pub mod event;
mod exchange;
pub mod fault;
pub mod follower;
mod inflate;
mod list;
mod names;
pub mod request;
mod watch;

pub use event::{Ended, Event};
pub use fault::Fault;
pub use follower::Follower;
pub use names::Key;
pub use request::{Head, Relist, Request, Scope};
