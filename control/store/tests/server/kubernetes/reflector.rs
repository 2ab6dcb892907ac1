//! A watch as kube-apiserver's cache makes it: from a list's revision, with the state before each event and bookmarks.

use std::collections::BTreeMap;

use etcd_client::{Event, EventType, WatchOptions, WatchStream};

use super::storage::{Object, Storage};
use crate::harness::{created, within};

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added(Object),
    Modified(Object),
    /// The last state, at the revision of the deletion.
    Deleted(Object),
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    Changes(Vec<Change>),
    /// All changes up to this revision were delivered.
    Bookmark(i64),
    /// The history is compacted up to this revision: list again.
    Gone(i64),
}

/// Objects below a prefix, kept up to date by a watch.
pub(super) struct Reflector {
    pub(super) stream: WatchStream,
    pub(super) objects: BTreeMap<String, Object>,
    /// The revision of the list or of what was delivered last.
    pub(super) revision: i64,
}

/// Watches the changes after a resource version.
pub(super) async fn watch(storage: &mut Storage, prefix: &str, after: i64) -> WatchStream {
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(after + 1)
        .with_prev_key()
        .with_progress_notify();
    let watched = storage.client.watch(prefix, Some(options));
    let mut stream = watched.await.unwrap();
    created(&mut stream).await;
    stream
}

/// The next response of a watch.
pub(super) async fn next(stream: &mut WatchStream) -> Delivered {
    let response = within(stream.message()).await.unwrap().unwrap();
    if response.canceled() {
        assert!(response.compact_revision() > 0, "{response:?}");
        return Delivered::Gone(response.compact_revision());
    }
    if response.events().is_empty() {
        return Delivered::Bookmark(response.header().unwrap().revision());
    }
    Delivered::Changes(response.events().iter().map(change).collect())
}

/// The next changes of a watch, which has no bookmarks before them.
pub(super) async fn changes(stream: &mut WatchStream, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    while changes.len() < count {
        match next(stream).await {
            Delivered::Changes(more) => changes.extend(more),
            other => panic!("{other:?} after {changes:?}"),
        }
    }
    changes
}

fn change(event: &Event) -> Change {
    let kv = event.kv().unwrap();
    match (event.event_type(), event.prev_kv()) {
        (EventType::Delete, Some(previous)) => Change::Deleted(Object {
            revision: kv.mod_revision(),
            ..Object::new(previous)
        }),
        (EventType::Put, None) => {
            assert_eq!(
                kv.create_revision(),
                kv.mod_revision(),
                "an update without its previous state"
            );
            Change::Added(Object::new(kv))
        }
        (EventType::Put, Some(previous)) => {
            assert!(previous.mod_revision() < kv.mod_revision());
            Change::Modified(Object::new(kv))
        }
        (EventType::Delete, None) => panic!("a deletion without its previous state: {event:?}"),
    }
}

impl Reflector {
    /// Lists the objects, and watches from that revision on.
    pub(super) async fn start(storage: &mut Storage, prefix: &str) -> Self {
        let (objects, revision) = storage.list(prefix, 500).await;
        let objects = objects
            .into_iter()
            .map(|object| (object.key.clone(), object));
        Self {
            objects: objects.collect(),
            stream: watch(storage, prefix, revision).await,
            revision,
        }
    }

    /// Requests bookmarks until one is at a revision or later, and applies what is delivered meanwhile.
    pub(super) async fn reach(&mut self, revision: i64) {
        while self.revision < revision {
            self.stream.request_progress().await.unwrap();
            match next(&mut self.stream).await {
                Delivered::Changes(changes) => {
                    for change in changes {
                        self.apply(change);
                    }
                }
                Delivered::Bookmark(at) => {
                    assert!(at >= self.revision, "bookmark {at} after {}", self.revision);
                    self.revision = at;
                }
                gone @ Delivered::Gone(_) => panic!("{gone:?}"),
            }
        }
    }

    fn apply(&mut self, change: Change) {
        let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) = &change;
        // Changes of one transaction share a revision; no bookmark was beyond it.
        assert!(
            object.revision > self.revision,
            "{change:?} after {}",
            self.revision
        );
        let known = self.objects.contains_key(&object.key);
        assert_eq!(known, !matches!(change, Change::Added(_)), "{change:?}");
        match change {
            Change::Deleted(object) => drop(self.objects.remove(&object.key)),
            Change::Added(object) | Change::Modified(object) => {
                self.objects.insert(object.key.clone(), object);
            }
        }
    }
}
