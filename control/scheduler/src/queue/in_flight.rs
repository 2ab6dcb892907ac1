//! The changes that happened while pods were in flight, each kept until all attempts that have missed it ended.

use std::collections::{BTreeMap, VecDeque};

use super::Happened;

/// Changes that are kept. An attempt that has missed more counts as helped.
const CHANGES_MAX: usize = 10_000;

/// The attempts in flight, and the changes since the oldest of them began.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The number of the first change that each attempt has missed, by its ticket. A later ticket never has a smaller one.
    began: BTreeMap<u64, u64>,
    changes: VecDeque<Happened>,
    /// The number of the first change in the list.
    first: u64,
}

impl InFlight {
    pub(super) fn begin(&mut self, ticket: u64) {
        let next = self.first + u64::try_from(self.changes.len()).unwrap_or(u64::MAX);
        self.began.insert(ticket, next);
    }

    pub(super) fn record(&mut self, happened: Happened) {
        if self.began.is_empty() {
            return;
        }
        self.changes.push_back(happened);
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
    }

    /// The changes that an attempt has missed; `None` if some of them were dropped.
    pub(super) fn missed(&self, ticket: u64) -> Option<Vec<Happened>> {
        let began = *self.began.get(&ticket)?;
        let skip = usize::try_from(began.checked_sub(self.first)?).ok()?;
        Some(self.changes.iter().skip(skip).cloned().collect())
    }

    pub(super) fn end(&mut self, ticket: u64) {
        self.began.remove(&ticket);
        let Some((_, &oldest)) = self.began.first_key_value() else {
            self.first += u64::try_from(self.changes.len()).unwrap_or(u64::MAX);
            self.changes.clear();
            return;
        };
        while self.first < oldest && self.changes.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Happened {
        Happened::Node {
            old: None,
            new: None,
        }
    }

    fn missed(in_flight: &InFlight, ticket: u64) -> Option<usize> {
        in_flight.missed(ticket).map(|missed| missed.len())
    }

    #[test]
    fn a_change_is_kept_while_an_attempt_that_missed_it_is_in_flight() {
        let mut in_flight = InFlight::default();
        in_flight.record(node());
        in_flight.begin(1);
        in_flight.record(node());
        in_flight.begin(2);
        in_flight.record(node());
        assert_eq!(
            (missed(&in_flight, 1), missed(&in_flight, 2)),
            (Some(2), Some(1))
        );
        in_flight.end(1);
        assert_eq!(in_flight.changes.len(), 1);
        assert_eq!(missed(&in_flight, 2), Some(1));
        in_flight.end(2);
        assert!(in_flight.changes.is_empty());
    }

    #[test]
    fn an_attempt_that_missed_too_many_changes_has_an_unknown_number_of_them() {
        let mut in_flight = InFlight::default();
        in_flight.begin(1);
        (0..=CHANGES_MAX).for_each(|_| in_flight.record(node()));
        assert_eq!(missed(&in_flight, 1), None);
        in_flight.begin(2);
        assert_eq!(missed(&in_flight, 2), Some(0));
    }
}
