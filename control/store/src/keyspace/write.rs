//! One revision in the making: its puts and deletes, seen at once by its own reads.

use std::sync::Arc;

use bytes::Bytes;

use super::{Event, KeyRange, Keyspace, Revision};
use crate::proto::mvccpb::KeyValue;

/// An open revision. It becomes one when it is finished and has changed something.
#[derive(Debug)]
#[must_use = "a write that is not finished leaves changes without a revision"]
pub struct Write<'a> {
    keyspace: &'a mut Keyspace,
    events: Vec<Event>,
}

impl<'a> Write<'a> {
    pub(super) fn new(keyspace: &'a mut Keyspace) -> Self {
        Self {
            keyspace,
            events: Vec::new(),
        }
    }

    /// The keyspace with what was written so far.
    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace
    }

    /// The revision that an answer given now shows: the new one once something has changed.
    pub fn revision(&self) -> Revision {
        self.keyspace.current + Revision::from(!self.events.is_empty())
    }

    /// Writes a key and returns what it was.
    pub fn put(&mut self, key: &Bytes, value: &Bytes, lease: i64) -> Option<Arc<KeyValue>> {
        let revision = self.keyspace.current + 1;
        let prev = self.keyspace.latest(key).cloned();
        // Copies: the request's buffer is larger than what is kept of it.
        let kept = self
            .keyspace
            .keys
            .get_key_value(key)
            .map(|(kept, _)| kept.clone());
        let key = kept.unwrap_or_else(|| Bytes::copy_from_slice(key));
        let kv = Arc::new(KeyValue {
            key: key.clone(),
            create_revision: prev.as_ref().map_or(revision, |prev| prev.create_revision),
            mod_revision: revision,
            version: prev.as_ref().map_or(0, |prev| prev.version) + 1,
            value: Bytes::copy_from_slice(value),
            lease,
        });
        self.keyspace.keys_live += u64::from(prev.is_none());
        let history = self.keyspace.keys.entry(key).or_default();
        self.keyspace.bytes += history.push(revision, Some(Arc::clone(&kv)));
        self.events.push(Event {
            revision,
            deleted: false,
            kv,
            prev: prev.clone(),
        });
        prev
    }

    /// Deletes the keys of a range, in key order, and returns what they were.
    pub fn delete(&mut self, range: &KeyRange) -> Vec<Arc<KeyValue>> {
        let revision = self.keyspace.current + 1;
        let mut gone = Vec::new();
        if range.is_empty() {
            return gone;
        }
        for (key, history) in self.keyspace.keys.range_mut::<[u8], _>(range.bounds()) {
            let Some(prev) = history.latest().cloned() else {
                continue;
            };
            let kv = KeyValue {
                key: key.clone(),
                mod_revision: revision,
                ..KeyValue::default()
            };
            self.keyspace.bytes += history.push(revision, None);
            self.keyspace.keys_live -= 1;
            let (kv, prev_of_event) = (Arc::new(kv), Some(Arc::clone(&prev)));
            self.events.push(Event {
                revision,
                deleted: true,
                kv,
                prev: prev_of_event,
            });
            gone.push(prev);
        }
        gone
    }

    /// Closes the revision and returns its changes, in order; none: there is no new revision.
    pub fn finish(self) -> Vec<Event> {
        if !self.events.is_empty() {
            self.keyspace.current += 1;
            self.keyspace.log.extend(&self.events);
        }
        self.events
    }
}
