//! On which node each bound pod is: a table of hashes and slots, which grows without a look at pods.

use hashbrown::HashTable;

use super::hash;
use crate::pod::PodKey;

/// Pods that are not in the table yet.
const LATE_MAX: usize = 16;

/// A pod on the node of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    hash: u32,
    slot: u32,
}

/// The pods of all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct BoundPods {
    table: HashTable<Bound>,
    /// The last ones. A write to the table is to memory that is in no cache, for which the next atomic operation would wait: several
    /// such writes wait once.
    late: Vec<Bound>,
}

/// The part of the hash that is kept of a pod.
fn hash_of(key: &PodKey) -> u32 {
    u32::try_from(hash(key) >> 32).unwrap_or(u32::MAX)
}

/// The table takes the first and the last bits of a hash.
fn spread(hash: u32) -> u64 {
    (u64::from(hash) << 32) | u64::from(hash)
}

impl BoundPods {
    /// The slot of the node that has the pod; `has`: whether the node of a slot has it.
    pub(super) fn find(&self, key: &PodKey, has: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = hash_of(key);
        let is_it = |one: &&Bound| one.hash == hash && has(one.slot);
        let late = self.late.iter().find(is_it);
        let bound = late.or_else(|| self.table.find(spread(hash), |one| is_it(&one)));
        bound.map(|bound| bound.slot)
    }

    /// Adds a pod that is not there.
    pub(super) fn add(&mut self, key: &PodKey, slot: u32) {
        let hash = hash_of(key);
        self.late.push(Bound { hash, slot });
        if self.late.len() < LATE_MAX {
            return;
        }
        for bound in self.late.drain(..) {
            let hash = |one: &Bound| spread(one.hash);
            self.table.insert_unique(hash(&bound), bound, hash);
        }
    }

    /// Removes a pod of a node.
    pub(super) fn remove(&mut self, key: &PodKey, slot: u32) {
        let hash = hash_of(key);
        let bound = Bound { hash, slot };
        if let Some(index) = self.late.iter().position(|one| *one == bound) {
            self.late.swap_remove(index);
        } else if let Ok(entry) = self.table.find_entry(spread(hash), |one| *one == bound) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> PodKey {
        PodKey {
            namespace: "default".to_owned(),
            name: format!("pod-{index}"),
        }
    }

    #[test]
    fn pods_are_found_and_removed_wherever_they_are() {
        let mut pods = BoundPods::default();
        let all = || 0..3 * u32::try_from(LATE_MAX).unwrap() - 1;
        all().for_each(|index| pods.add(&key(index), index));
        let found = |pods: &BoundPods, index: u32| pods.find(&key(index), |slot| slot == index);
        assert!(all().all(|index| found(&pods, index) == Some(index)));
        assert_eq!(pods.find(&key(0), |slot| slot == 1), None);
        all()
            .step_by(2)
            .for_each(|index| pods.remove(&key(index), index));
        let left = |index: u32| (index % 2 == 1).then_some(index);
        assert!(all().all(|index| found(&pods, index) == left(index)));
    }
}
