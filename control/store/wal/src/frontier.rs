//! The commit frontier: the mark up to which every record is as durable as its mode asks. Pure.

use std::collections::VecDeque;

use crate::frame::Position;

/// The place of a record in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// A ticket that is never reached.
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

/// The state of the log that a record needs to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// The log is written up to this position.
    Written(Position),
    /// The log is synced up to this position.
    Synced(Position),
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    mark: u64,
    need: Need,
}

/// Records that are not acknowledged, in order, and how far the log is written and synced.
#[derive(Debug)]
pub(crate) struct Frontier {
    pending: VecDeque<Pending>,
    issued: Ticket,
    reached: Ticket,
    visible: u64,
    written: Position,
    synced: Position,
    /// Marks above it are not acknowledged.
    ceiling: u64,
    /// The next ceiling, and the position up to which the log must be synced before it holds.
    raising: Option<(Position, u64)>,
}

impl Frontier {
    /// A frontier at a mark, with the log written and synced up to a position.
    pub(crate) fn new(visible: u64, position: Position, ceiling: u64) -> Self {
        Self {
            pending: VecDeque::new(),
            issued: Ticket(0),
            reached: Ticket(0),
            visible,
            written: position,
            synced: position,
            ceiling,
            raising: None,
        }
    }

    /// The mark of the last record that is acknowledged.
    pub(crate) fn visible(&self) -> u64 {
        self.visible
    }

    /// Whether a record and all before it are acknowledged.
    pub(crate) fn is_reached(&self, ticket: Ticket) -> bool {
        ticket <= self.reached
    }

    /// Number of records that are not acknowledged.
    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The position up to which the log is synced.
    pub(crate) fn synced_position(&self) -> Position {
        self.synced
    }

    /// The last ticket that is reached.
    pub(crate) fn reached(&self) -> Ticket {
        self.reached
    }

    /// The ceiling that holds, or that will hold after a sync.
    pub(crate) fn ceiling(&self) -> u64 {
        self.raising.map_or(self.ceiling, |(_, ceiling)| ceiling)
    }

    /// Adds a record after all others.
    pub(crate) fn push(&mut self, mark: u64, need: Need) -> Ticket {
        self.issued = Ticket(self.issued.0 + 1);
        self.pending.push_back(Pending {
            ticket: self.issued,
            mark,
            need,
        });
        self.settle();
        self.issued
    }

    /// The ceiling rises when the log is synced up to the position.
    pub(crate) fn raise(&mut self, position: Position, ceiling: u64) {
        self.raising = Some((position, ceiling));
    }

    /// The log is written up to the position.
    pub(crate) fn wrote(&mut self, position: Position) {
        self.written = self.written.max(position);
        self.settle();
    }

    /// The log is synced up to the position.
    pub(crate) fn synced(&mut self, position: Position) {
        self.synced = self.synced.max(position);
        if let Some((needed, ceiling)) = self.raising
            && needed <= self.synced
        {
            self.ceiling = ceiling;
            self.raising = None;
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(first) = self.pending.front()
            && first.mark <= self.ceiling
            && self.is_met(first.need)
        {
            self.reached = first.ticket;
            self.visible = self.visible.max(first.mark);
            self.pending.pop_front();
        }
    }

    fn is_met(&self, need: Need) -> bool {
        match need {
            Need::Nothing => true,
            Need::Written(position) => position <= self.written,
            Need::Synced(position) => position <= self.synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_weaker_record_waits_for_a_stricter_one_before_it() {
        let mut frontier = Frontier::new(1, 0, 100);
        let synced = frontier.push(2, Need::Synced(10));
        let none = frontier.push(3, Need::Nothing);
        assert_eq!(frontier.visible(), 1);
        frontier.wrote(10);
        assert!(!frontier.is_reached(none));
        frontier.synced(10);
        assert!(frontier.is_reached(synced) && frontier.is_reached(none));
        assert_eq!(frontier.visible(), 3);
    }

    #[test]
    fn a_mark_above_the_ceiling_waits_until_the_ceiling_is_synced() {
        let mut frontier = Frontier::new(1, 0, 5);
        frontier.push(5, Need::Nothing);
        let above = frontier.push(6, Need::Nothing);
        frontier.raise(20, 50);
        assert_eq!((frontier.visible(), frontier.ceiling()), (5, 50));
        frontier.wrote(20);
        assert!(!frontier.is_reached(above));
        frontier.synced(20);
        assert!(frontier.is_reached(above));
    }

    proptest! {
        /// Against the definition: visible is the last mark before the first record whose need is
        /// not met.
        #[test]
        fn the_frontier_is_the_longest_prefix_of_met_records(
            needs in prop::collection::vec((0u8..3, 1u64..20), 1..40),
            (written, synced) in (0u64..400).prop_flat_map(|w| (Just(w), 0..=w)),
        ) {
            let mut frontier = Frontier::new(0, 0, u64::MAX);
            let mut end = 0;
            let records: Vec<Need> = needs.iter().map(|&(mode, len)| match mode {
                0 => Need::Nothing,
                1 => { end += len; Need::Written(end) }
                _ => { end += len; Need::Synced(end) }
            }).collect();
            for (mark, &need) in (1..).zip(&records) {
                frontier.push(mark, need);
            }
            frontier.wrote(written);
            frontier.synced(synced);
            let met = records.iter().take_while(|need| match **need {
                Need::Nothing => true,
                Need::Written(end) => end <= written,
                Need::Synced(end) => end <= synced,
            });
            prop_assert_eq!(frontier.visible(), met.count() as u64);
        }
    }
}
