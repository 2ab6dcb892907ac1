//! The guarantees of watches: ordered, unique, atomic, complete (so that a watch can be resumed) and bookmarkable, with
//! the events that the operations explain.

mod truth;

use std::collections::HashMap;

use crate::history::{Delivery, Event, Key, Operation, Revision, Version, Watch};
use truth::Truth;

/// A broken guarantee of a watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An event is not newer than an event of an earlier response, or older than one before it in its response.
    #[error(
        "revision {revision} after {last} in another response or in the wrong order: {event:?}"
    )]
    Order {
        /// The revision before.
        last: Revision,
        /// The event's revision.
        revision: Revision,
        /// The event.
        event: Event,
    },
    /// A key has two events at one revision.
    #[error("delivered twice: {0:?}")]
    Twice(Event),
    /// The event is below the start, outside the prefix, or above its response's revision.
    #[error("not an event of this watch or response: {0:?}")]
    Outside(Event),
    /// A bookmark is older than what was delivered before it.
    #[error("bookmark {bookmark} after revision {delivered}")]
    Bookmark {
        /// The bookmark's revision.
        bookmark: Revision,
        /// The revision delivered before it.
        delivered: Revision,
    },
    /// An event at or below a bookmark came after it.
    #[error("bookmark {bookmark} came before {event:?}")]
    AfterBookmark {
        /// The bookmark's revision.
        bookmark: Revision,
        /// The late event.
        event: Event,
    },
    /// No write explains the event.
    #[error("no operation or other watch explains {0:?}")]
    Invented(Event),
    /// An event is missing below a delivered revision.
    #[error("no event of `{key}` at revision {revision}, but revision {reached} was reached")]
    Missing {
        /// The key of the missing event.
        key: Key,
        /// The revision of the missing event.
        revision: Revision,
        /// The revision up to which the watch claims to be complete.
        reached: Revision,
    },
    /// `prev_kv` is not the version that the same watch delivered before.
    #[error("the version before was {wanted:?}: {event:?}")]
    Previous {
        /// The version delivered before.
        wanted: Option<Version>,
        /// The event.
        event: Event,
    },
}

/// Checks all watches against the operations and against each other.
pub fn check(operations: &[Operation], watches: &[Watch]) -> Result<(), Violation> {
    let truth = Truth::new(operations, watches);
    for watch in watches {
        ordered(watch)?;
        previous(watch)?;
        truth.explains(watch)?;
        truth.is_covered_by(watch)?;
    }
    Ok(())
}

/// Order, uniqueness, atomicity and bookmarks, which need no other source.
fn ordered(watch: &Watch) -> Result<(), Violation> {
    let mut delivered = watch.start - 1;
    let mut bookmark = watch.start - 1;
    for delivery in &watch.deliveries {
        if delivery.events.is_empty() {
            if delivery.revision < delivered {
                let bookmark = delivery.revision;
                return Err(Violation::Bookmark {
                    bookmark,
                    delivered,
                });
            }
            bookmark = bookmark.max(delivery.revision);
        }
        batch(watch, delivery, delivered, bookmark)?;
        delivered = delivery
            .events
            .last()
            .map_or(delivered, |last| last.revision);
    }
    Ok(())
}

/// One response: its events are in order, and all events of a revision are in it.
fn batch(
    watch: &Watch,
    delivery: &Delivery,
    delivered: Revision,
    bookmark: Revision,
) -> Result<(), Violation> {
    let mut last = delivered;
    for (index, event) in delivery.events.iter().enumerate() {
        let event = event.clone();
        let revision = event.revision;
        let inside = event.key.starts_with(&watch.prefix) && revision <= delivery.revision;
        if !inside || revision < watch.start {
            return Err(Violation::Outside(event));
        }
        if revision <= bookmark {
            return Err(Violation::AfterBookmark { bookmark, event });
        }
        if revision <= delivered || revision < last {
            return Err(Violation::Order {
                last,
                revision,
                event,
            });
        }
        let mut before = delivery.events[..index].iter();
        if before.any(|other| other.revision == revision && other.key == event.key) {
            return Err(Violation::Twice(event));
        }
        last = revision;
    }
    Ok(())
}

/// `prev_kv` of an event is the key's version in the event before, if the watch delivered one.
fn previous(watch: &Watch) -> Result<(), Violation> {
    let mut versions: HashMap<&Key, Option<Version>> = HashMap::new();
    for event in watch
        .deliveries
        .iter()
        .flat_map(|delivery| &delivery.events)
    {
        let mod_revision = event.revision;
        let version = event.value.map(|value| Version {
            value,
            mod_revision,
        });
        if let Some(wanted) = versions.insert(&event.key, version)
            && wanted != event.previous
        {
            let event = event.clone();
            return Err(Violation::Previous { wanted, event });
        }
    }
    Ok(())
}
