//! Conflicts of service ports for an address and port: the oldest wins.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use crate::port::ServicePort;

/// The claimants of each place. Nearly every place has one claimant, so the others are stored separately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claims<K: Hash + Eq> {
    winners: HashMap<K, Arc<ServicePort>>,
    /// The claimants after the winner, in order; never empty.
    others: HashMap<K, Vec<Arc<ServicePort>>>,
}

impl<K: Hash + Eq> Default for Claims<K> {
    fn default() -> Self {
        Self {
            winners: HashMap::new(),
            others: HashMap::new(),
        }
    }
}

impl<K: Copy + Hash + Eq> Claims<K> {
    /// All claimed places.
    pub(super) fn places(&self) -> impl Iterator<Item = &K> {
        self.winners.keys()
    }

    /// The winner of a place.
    pub(super) fn winner(&self, place: &K) -> Option<&Arc<ServicePort>> {
        self.winners.get(place)
    }

    /// All claimants of a place, the winner first.
    pub(super) fn claimants<'a>(
        &'a self,
        place: &K,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a, K> {
        let others = self.others.get(place).into_iter().flatten();
        self.winners.get(place).into_iter().chain(others)
    }

    /// Adds a claim; adding it again changes nothing.
    pub(super) fn insert(&mut self, place: K, port: &Arc<ServicePort>) {
        let mut winner = match self.winners.entry(place) {
            Entry::Occupied(winner) => winner,
            Entry::Vacant(free) => {
                free.insert(Arc::clone(port));
                return;
            }
        };
        if winner.get().id == port.id {
            return;
        }
        let mut other = Arc::clone(port);
        if precedes(port, winner.get()) {
            other = winner.insert(other);
        }
        let others = self.others.entry(place).or_default();
        let rank = others.partition_point(|known| precedes(known, &other));
        if others.get(rank).is_none_or(|known| known.id != other.id) {
            others.insert(rank, other);
        }
    }

    /// Removes a claim, if it exists; the next claimant wins the place.
    pub(super) fn remove(&mut self, place: &K, port: &ServicePort) {
        let won = |winner: &Arc<ServicePort>| winner.id == port.id;
        let is_winner = self.winners.get(place).is_some_and(won);
        let Some(others) = self.others.get_mut(place) else {
            if is_winner {
                self.winners.remove(place);
            }
            return;
        };
        if is_winner {
            self.winners.insert(*place, others.remove(0));
        } else {
            others.retain(|other| other.id != port.id);
        }
        if others.is_empty() {
            self.others.remove(place);
        }
    }
}

/// The older Service wins; for equal times, names decide.
fn precedes(a: &ServicePort, b: &ServicePort) -> bool {
    (a.created_s, &a.id) < (b.created_s, &b.id)
}
