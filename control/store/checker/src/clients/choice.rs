//! The requests of one client, by a seeded generator: half of them depend on revisions that the client has seen.

use std::collections::HashMap;

use crate::history::{Key, Op, Operation, Outcome, Request, Revision, Value};

pub(super) struct Chooser {
    keys: Vec<Key>,
    random: fastrand::Rng,
    /// The mod revisions seen last; 0: the key does not exist.
    seen: HashMap<Key, Revision>,
}

impl Chooser {
    pub(super) fn new(keys: &[Key], seed: u64) -> Self {
        Self {
            keys: keys.to_vec(),
            random: fastrand::Rng::with_seed(seed),
            seen: HashMap::new(),
        }
    }

    /// The next request; `value` gives values that no other put writes.
    pub(super) fn next(&mut self, value: impl Fn() -> Value) -> Request {
        let index = self.random.usize(..self.keys.len());
        let key = self.keys[index].clone();
        let neighbour = self.keys.get(index ^ 1).unwrap_or(&key).clone();
        let seen = self.seen.get(&key).copied().unwrap_or(0);
        let put = |key: &Key| Op::Put(key.clone(), value());
        match self.random.u8(..10) {
            0..=1 => Request::of(vec![Op::Get(key)]),
            2..=3 => Request::of(vec![put(&key)]),
            4 => Request::of(vec![Op::Delete(key)]),
            5..=6 => Request::unchanged(key.clone(), seen, vec![put(&key)]),
            7 => Request::unchanged(key.clone(), seen, vec![Op::Delete(key)]),
            8 if neighbour != key => Request::of(vec![Op::Get(key), Op::Get(neighbour)]),
            _ if neighbour != key => {
                let both = vec![put(&key), put(&neighbour)];
                Request::unchanged(key, seen, both)
            }
            _ => Request::of(vec![Op::Get(key)]),
        }
    }

    /// Takes note of the revisions in a response.
    pub(super) fn learn(&mut self, operation: &Operation) {
        let Some((_, response)) = operation.answer() else {
            return;
        };
        let ops = operation.request.branch(response.succeeded);
        for (op, outcome) in ops.iter().zip(&response.outcomes) {
            let revision = match outcome {
                Outcome::Put => response.revision,
                Outcome::Got(version) => version.map_or(0, |version| version.mod_revision),
                Outcome::Deleted(_) => 0,
            };
            self.seen.insert(op.key().clone(), revision);
        }
    }
}
