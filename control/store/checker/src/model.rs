//! The sequential store that explains responses: keys with values and mod revisions, and a revision that never goes back.

use std::collections::BTreeMap;

use crate::history::{Ending, Key, Op, Operation, Outcome, Response, Revision, Value, Version};

/// The revision of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Written {
    /// Its response, or a read, gave the revision.
    At(Revision),
    /// The put of the lost operation with this number: only its revision's lower bound (exclusive) is known.
    After(usize, Revision),
}

impl Written {
    /// Whether the revision can be `revision`.
    fn can_be(self, revision: Revision) -> bool {
        match self {
            Self::At(known) => known == revision,
            Self::After(_, bound) => revision > bound,
        }
    }
}

/// The state of some keys of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The highest revision seen; the store's is not below.
    revision: Revision,
    keys: BTreeMap<Key, (Value, Written)>,
}

impl State {
    /// The states after an operation: none if the response contradicts this state, several if a lost operation can have
    /// had several effects. `number` identifies the operation.
    pub fn after(&self, number: usize, operation: &Operation) -> Vec<Self> {
        match &operation.ending {
            Ending::Answered { response, .. } => {
                self.answered(operation, response).into_iter().collect()
            }
            Ending::Lost { .. } => self.lost(number, operation),
        }
    }

    fn answered(&self, operation: &Operation, response: &Response) -> Option<Self> {
        let mut state = self.clone();
        let request = &operation.request;
        if response.succeeded {
            for (key, revision) in &request.compares {
                state.learn(key, *revision)?;
            }
        } else if request
            .compares
            .iter()
            .all(|(key, revision)| self.holds(key, *revision) == Some(true))
        {
            return None;
        }
        let branch = request.branch(response.succeeded);
        if branch.len() != response.outcomes.len() {
            return None;
        }
        let mut wrote = false;
        for (op, outcome) in branch.iter().zip(&response.outcomes) {
            wrote |= state.observe(op, *outcome, response.revision)?;
        }
        let least = self.revision + Revision::from(wrote);
        state.revision = response.revision;
        (response.revision >= least).then_some(state)
    }

    /// Applies an operation with a known outcome; returns whether it wrote, or `None` if the outcome is impossible.
    fn observe(&mut self, op: &Op, outcome: Outcome, revision: Revision) -> Option<bool> {
        match (op, outcome) {
            (Op::Get(key), Outcome::Got(version)) => {
                self.read(key, version, revision)?;
                Some(false)
            }
            (Op::Put(key, value), Outcome::Put) => {
                self.keys
                    .insert(key.clone(), (*value, Written::At(revision)));
                Some(true)
            }
            (Op::Delete(key), Outcome::Deleted(existed)) => {
                (self.keys.remove(key).is_some() == existed).then_some(existed)
            }
            _ => None,
        }
    }

    fn read(&mut self, key: &str, version: Option<Version>, revision: Revision) -> Option<()> {
        match (self.keys.get(key), version) {
            (None, None) => Some(()),
            (Some((value, _)), Some(version))
                if *value == version.value && version.mod_revision <= revision =>
            {
                self.learn(key, version.mod_revision)
            }
            _ => None,
        }
    }

    /// Takes note of a key's mod revision (0: it does not exist); `None` if it is another one. A lost transaction has one
    /// revision for all its keys.
    fn learn(&mut self, key: &str, revision: Revision) -> Option<()> {
        if self.holds(key, revision) == Some(false) {
            return None;
        }
        if let Some((_, Written::After(number, _))) = self.keys.get(key).copied() {
            for (_, written) in self.keys.values_mut() {
                if matches!(*written, Written::After(other, _) if other == number) {
                    *written = Written::At(revision);
                }
            }
        }
        Some(())
    }

    /// Whether a key has a mod revision; `None` if that is not known.
    fn holds(&self, key: &str, revision: Revision) -> Option<bool> {
        match self.keys.get(key) {
            None => Some(revision == 0),
            Some((_, written)) if !written.can_be(revision) => Some(false),
            Some((_, Written::At(_))) => Some(true),
            Some((_, Written::After(..))) => None,
        }
    }

    /// The states after the branches that a lost operation can have taken; a branch without an effect is left out, since
    /// it does not differ from an operation that never ran.
    fn lost(&self, number: usize, operation: &Operation) -> Vec<Self> {
        let request = &operation.request;
        let known = request.compares.iter();
        let known: Vec<_> = known
            .map(|(key, revision)| self.holds(key, *revision))
            .collect();
        let may_succeed = known.iter().all(|holds| *holds != Some(false));
        let may_fail = known.iter().any(|holds| *holds != Some(true));
        let branches = [(true, may_succeed), (false, may_fail)];
        let taken = branches.into_iter().filter(|(_, possible)| *possible);
        taken
            .filter_map(|(succeeded, _)| self.written_by(number, request.branch(succeeded)))
            .collect()
    }

    fn written_by(&self, number: usize, ops: &[Op]) -> Option<Self> {
        let mut state = self.clone();
        let written = Written::After(number, self.revision);
        let mut wrote = false;
        for op in ops {
            wrote |= match op {
                Op::Get(_) => false,
                Op::Put(key, value) => {
                    state.keys.insert(key.clone(), (*value, written));
                    true
                }
                Op::Delete(key) => state.keys.remove(key).is_some(),
            };
        }
        state.revision += 1;
        wrote.then_some(state)
    }
}
