//! The model: all keys after each revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{KeyRange, Revision};
use crate::wire::Fields;

pub(super) fn everything() -> KeyRange {
    KeyRange::From(Bytes::from_static(b"\0"))
}

pub(super) fn key(n: u8) -> Bytes {
    Bytes::from(vec![b'a' + n])
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Put(u8, u8),
    Delete(u8, u8),
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The changes of one revision.
    Write(Vec<Change>),
    /// Compacts at this share (of 255) of the current revision.
    Compact(u8),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let put = (0..8_u8, any::<u8>()).prop_map(|(key, value)| Change::Put(key, value));
    let delete = (0..8_u8, 0..9_u8).prop_map(|(from, to)| Change::Delete(from, to));
    let change = prop_oneof![3 => put, 1 => delete];
    let write = prop::collection::vec(change, 1..4).prop_map(Step::Write);
    prop_oneof![9 => write, 1 => any::<u8>().prop_map(Step::Compact)]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    create_revision: Revision,
    mod_revision: Revision,
    version: i64,
    value: Vec<u8>,
    lease: i64,
}

impl From<Fields<'_>> for Pair {
    fn from(fields: Fields<'_>) -> Self {
        Self {
            create_revision: fields.create_revision,
            mod_revision: fields.mod_revision,
            version: fields.version,
            value: fields.value.to_vec(),
            lease: fields.lease,
        }
    }
}

pub(super) type Snapshot = BTreeMap<Bytes, Pair>;

/// All keys after each revision; the first is revision 1.
pub(super) struct Model {
    snapshots: Vec<Snapshot>,
    pub(super) compacted: Revision,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            snapshots: vec![Snapshot::new()],
            compacted: -1,
        }
    }
}

impl Model {
    pub(super) fn current(&self) -> Revision {
        Revision::try_from(self.snapshots.len()).unwrap()
    }

    pub(super) fn at(&self, revision: Revision) -> &Snapshot {
        &self.snapshots[usize::try_from(revision).unwrap() - 1]
    }

    pub(super) fn write(&mut self, changes: &[Change]) {
        let revision = self.current() + 1;
        let mut now = self.at(revision - 1).clone();
        let mut wrote = false;
        for change in changes {
            match *change {
                Change::Put(n, value) => {
                    wrote = true;
                    let before = now.get(&key(n));
                    let pair = Pair {
                        create_revision: before.map_or(revision, |kv| kv.create_revision),
                        mod_revision: revision,
                        version: before.map_or(1, |kv| kv.version + 1),
                        value: vec![value],
                        lease: value.into(),
                    };
                    now.insert(key(n), pair);
                }
                Change::Delete(from, to) => {
                    let before = now.len();
                    now.retain(|k, _| !(key(from)..key(to)).contains(k));
                    wrote |= now.len() != before;
                }
            }
        }
        if wrote {
            self.snapshots.push(now);
        }
    }
}
