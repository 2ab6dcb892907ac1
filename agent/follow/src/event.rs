//! What a follower finds out: changes of objects, complete lists, ends of responses.

use std::time::Duration;

use crate::fault::Fault;
use crate::names::Key;

/// A change, or the end of a list.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<T> {
    /// An object is new or may have changed.
    Applied(T),
    /// An object is gone.
    Deleted(Key),
    /// A list is complete, and so are the events since it began.
    Listed {
        /// Number of objects.
        objects: usize,
    },
    /// An object cannot be parsed; its previous state stays.
    Unreadable {
        /// The object.
        key: Key,
        /// The mistake.
        what: String,
    },
}

/// The end of a response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Whether the response brought anything: then the pauses between requests start from the shortest one.
    pub progress: bool,
    /// The server asks for a pause of at least this length.
    pub retry_after: Option<Duration>,
    /// Why the request failed; none: nothing to report.
    pub fault: Option<Fault>,
}
