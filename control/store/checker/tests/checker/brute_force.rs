//! The search against all orders of small histories, whole and with random faults.

use std::collections::BTreeMap;

use dormouse_store_checker::{
    history::{Ending, Key, Op, Operation, Outcome, Revision, Version},
    linearize, revisions,
};
use proptest::prelude::*;

use crate::simulation::{Shape, history};

#[derive(Clone, Default)]
struct Store {
    revision: Revision,
    keys: BTreeMap<Key, Version>,
}

impl Store {
    /// Whether the response is this store's; applies the operation.
    fn explains(&mut self, operation: &Operation) -> bool {
        let (_, response) = operation.answer().unwrap();
        let mod_revision = |key: &Key| self.keys.get(key).map_or(0, |version| version.mod_revision);
        let mut compares = operation.request.compares.iter();
        let succeeded = compares.all(|(key, revision)| mod_revision(key) == *revision);
        let mut wrote = false;
        let mut outcomes = Vec::new();
        for op in operation.request.branch(succeeded) {
            outcomes.push(match op {
                Op::Get(key) => Outcome::Got(self.keys.get(key).copied()),
                Op::Put(key, value) => {
                    let version = Version {
                        value: *value,
                        mod_revision: response.revision,
                    };
                    self.keys.insert(key.clone(), version);
                    wrote = true;
                    Outcome::Put
                }
                Op::Delete(key) => {
                    let existed = self.keys.remove(key).is_some();
                    wrote |= existed;
                    Outcome::Deleted(existed)
                }
            });
        }
        let least = self.revision + Revision::from(wrote);
        self.revision = response.revision;
        response.revision >= least
            && (succeeded, outcomes) == (response.succeeded, response.outcomes.clone())
    }
}

/// Whether any order of the operations that are left is explained by the store.
fn any_order(store: &Store, left: &[&Operation]) -> bool {
    left.is_empty()
        || (0..left.len()).any(|index| {
            let next = left[index];
            let mut others = left.to_vec();
            others.remove(index);
            let first = others
                .iter()
                .all(|other| other.answer().unwrap().0 >= next.called);
            let mut store = store.clone();
            first && store.explains(next) && any_order(&store, &others)
        })
}

/// Changes one response or one time.
fn plant(operation: &mut Operation, fault: u8, amount: i64) {
    let Ending::Answered { at, response } = &mut operation.ending else {
        panic!("a lost operation")
    };
    match fault {
        0 => response.revision += amount,
        1 => response.succeeded = !response.succeeded,
        2 => operation.called = operation.called.saturating_sub(300).max(1),
        3 => *at += 300,
        4 => {
            *at += 500;
            operation.called += 500;
        }
        _ => match response.outcomes.first_mut() {
            Some(Outcome::Got(Some(version))) => version.mod_revision += amount,
            Some(Outcome::Deleted(existed)) => *existed = !*existed,
            Some(outcome @ Outcome::Got(None)) => {
                *outcome = Outcome::Got(Some(Version {
                    value: 1,
                    mod_revision: 1,
                }));
            }
            _ => {}
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_search_finds_an_order_if_there_is_one(
        seed in any::<u64>(),
        fault in 0_u8..12,
        index in any::<prop::sample::Index>(),
        amount in prop_oneof![-2_i64..0, 1_i64..3],
    ) {
        let shape = Shape { seed, clients: 4, operations: 6, keys: 2, lost_of: 0 };
        let (mut operations, _) = history(shape);
        if fault < 6 {
            let index = index.index(operations.len());
            plant(&mut operations[index], fault, amount);
        }
        let whole: Vec<&Operation> = operations.iter().collect();
        // Groups of keys are searched one by one; their common revisions are checked against the clock.
        let accepted = linearize::check(&operations).is_ok() && revisions::check(&operations).is_ok();
        prop_assert_eq!(accepted, any_order(&Store::default(), &whole));
    }
}
