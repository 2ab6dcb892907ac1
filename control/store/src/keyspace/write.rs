//! A write transaction: its puts and deletes, which its own reads see before the commit.

use std::sync::Arc;

use bytes::Bytes;

use super::{Event, KeyRange, Keyspace, Revision};
use crate::proto::mvccpb::KeyValue;

/// An open write transaction. Its commit creates a revision if it wrote something.
#[derive(Debug)]
#[must_use = "a transaction that is not committed leaves writes without a revision"]
pub struct WriteTxn<'a> {
    keyspace: &'a mut Keyspace,
    events: Vec<Event>,
}

impl<'a> WriteTxn<'a> {
    pub(super) fn new(keyspace: &'a mut Keyspace) -> Self {
        Self {
            keyspace,
            events: Vec::new(),
        }
    }

    /// The keyspace with the writes of this transaction so far.
    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace
    }

    /// The revision for the header of a nested response: the new one after the first write.
    pub fn revision(&self) -> Revision {
        self.keyspace.current + Revision::from(!self.events.is_empty())
    }

    /// Puts a key; returns its previous version.
    pub fn put(&mut self, key: &Bytes, value: &Bytes, lease: i64) -> Option<Arc<KeyValue>> {
        let revision = self.keyspace.current + 1;
        let prev = self.keyspace.latest(key).cloned();
        // Key and value are copied: a slice would keep the whole buffer of the request alive.
        let stored_key = self
            .keyspace
            .keys
            .get_key_value(key)
            .map(|(stored, _)| stored.clone());
        let key = stored_key.unwrap_or_else(|| Bytes::copy_from_slice(key));
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

    /// Deletes the keys of a range, in key order; returns their previous versions.
    pub fn delete(&mut self, range: &KeyRange) -> Vec<Arc<KeyValue>> {
        let revision = self.keyspace.current + 1;
        let mut deleted = Vec::new();
        if range.is_empty() {
            return deleted;
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
            deleted.push(prev);
        }
        deleted
    }

    /// Commits; returns the events in order. Without events there is no new revision.
    pub fn commit(self) -> Vec<Event> {
        if !self.events.is_empty() {
            self.keyspace.current += 1;
            self.keyspace.log.extend(&self.events);
        }
        self.events
    }
}
