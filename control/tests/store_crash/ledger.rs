//! The ledger of acknowledged writes: the last version of each key, and the highest revision that a client saw.

use std::collections::{HashMap, HashSet};

use dormouse_store_checker::history::{Key, Op, Operation, Outcome, Revision, Value};

#[derive(Default)]
pub(crate) struct Ledger {
    /// The revision and the value of the last acknowledged change; `None` is a deletion.
    keys: HashMap<Key, (Revision, Option<Value>)>,
    /// Keys that a call without an answer may have deleted in the last round.
    perhaps_deleted: HashSet<Key>,
    revision: Revision,
    writes: u64,
}

impl Ledger {
    /// Acknowledged writes.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// The highest revision of a response.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Enters the operations of one round.
    pub(crate) fn learn(&mut self, operations: &[Operation]) {
        self.learn_revisions(operations);
        self.perhaps_deleted.clear();
        for operation in operations {
            let Some((_, response)) = operation.answer() else {
                self.perhaps_deleted.extend(deletes(operation));
                continue;
            };
            for (key, value) in operation.effects() {
                self.writes += 1;
                let entry = self.keys.entry(key.clone()).or_default();
                if entry.0 < response.revision {
                    *entry = (response.revision, value);
                }
            }
        }
    }

    /// Enters only the revisions.
    pub(crate) fn learn_revisions(&mut self, operations: &[Operation]) {
        let answers = operations.iter().filter_map(Operation::answer);
        let revisions = answers.map(|(_, response)| response.revision);
        self.revision = revisions.fold(self.revision, Revision::max);
    }

    /// A read after a restart returns the last acknowledged version of its key or a later one, at a revision that is not
    /// below any that was seen.
    pub(crate) fn check(&mut self, read: &Operation) {
        let (_, response) = read.answer().expect("the store answers after its restart");
        assert!(
            response.revision >= self.revision,
            "the revision went back from {}: {read:?}",
            self.revision
        );
        self.revision = response.revision;
        let ([Op::Get(key)], [Outcome::Got(got)]) = (
            read.request.success.as_slice(),
            response.outcomes.as_slice(),
        ) else {
            panic!("not a read of one key: {read:?}")
        };
        let (revision, value) = self.keys.get(key).copied().unwrap_or_default();
        let unchanged = got.map(|version| version.value) == value;
        let changed = match got {
            Some(version) => version.mod_revision > revision,
            None => self.perhaps_deleted.contains(key),
        };
        assert!(
            unchanged || changed,
            "revision {revision} wrote {value:?}: {read:?}"
        );
        let read = got.map(|version| (version.mod_revision, Some(version.value)));
        let read = read.unwrap_or((response.revision, None));
        self.keys.insert(key.clone(), read);
    }
}

/// The keys that the operation may have deleted.
fn deletes(operation: &Operation) -> impl Iterator<Item = Key> {
    let ops = operation.request.success.iter();
    ops.filter_map(|op| match op {
        Op::Delete(key) => Some(key.clone()),
        Op::Get(_) | Op::Put(..) => None,
    })
}
