//! The numbers in use, in quarantine and next to be drawn: allocation as IPv6 and IPv4 share it. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ipv4::Ipv4Range;
use crate::lane::Lane;
use crate::order::Order;
use crate::prefix::{NodePrefix, Suffix};

/// Limit of numbers in quarantine, which bounds memory and journal: 4 releases per second in an hour. Beyond it the oldest
/// become free.
const QUARANTINED_MAX: usize = 1 << 14;

/// The kind of numbers in a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Space {
    /// Suffixes of addresses of the node's prefix.
    Suffixes(NodePrefix),
    /// IPv4 addresses.
    Ipv4(Ipv4Range),
}

impl Space {
    fn lane_of(self, number: u32) -> Option<Lane> {
        match self {
            Self::Suffixes(prefix) => prefix.lane_of(Suffix(number)),
            Self::Ipv4(range) => {
                let lane = range.lane();
                let offset = number.checked_sub(lane.first);
                offset
                    .is_some_and(|offset| offset < lane.count)
                    .then_some(lane)
            }
        }
    }

    /// A number that is never drawn. A pod may still hold it from a time when the range was another.
    fn gateway(self) -> Option<u32> {
        match self {
            Self::Suffixes(_) => None,
            Self::Ipv4(range) => Some(range.gateway().to_bits()),
        }
    }

    /// The lane whose cursor is kept without pods. Cursors of cohorts are not, because the number of cohorts has no bound
    /// over time.
    fn lasting_lane(self) -> Lane {
        match self {
            Self::Suffixes(prefix) => prefix.anonymous(),
            Self::Ipv4(range) => range.lane(),
        }
    }
}

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// May be drawn.
    Free,
    /// Leased or claimed.
    Held,
    /// In quarantine since then (since boot).
    QuarantinedAt(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cursor {
    /// The number at which the search for a free one begins.
    next: u32,
    /// Count of the lane's numbers that are held or in quarantine.
    used: u32,
}

/// The numbers in use; free ones take no memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    space: Space,
    order: Order,
    quarantine: Duration,
    /// Held numbers (`None`) and quarantined ones (since when); `quarantined` has the latter too, oldest first.
    uses: HashMap<u32, Option<Duration>>,
    quarantined: VecDeque<(u32, Duration)>,
    cursors: HashMap<Lane, Cursor>,
}

impl Pool {
    pub(crate) fn new(space: Space, order: Order, quarantine: Duration) -> Self {
        let mut pool = Self {
            space,
            order,
            quarantine,
            uses: HashMap::new(),
            quarantined: VecDeque::new(),
            cursors: HashMap::new(),
        };
        pool.cursor(space.lasting_lane());
        if let Some(gateway) = space.gateway() {
            pool.uses.insert(gateway, None);
            pool.count_used(gateway);
        }
        pool
    }

    /// The next free number of a lane. It skips at most as many as are in use, in practice none: the cursor meets a number
    /// again only after all others.
    pub(crate) fn draw(&self, lane: Lane) -> Option<u32> {
        let Some(cursor) = self.cursors.get(&lane) else {
            return Some(self.order.first(lane));
        };
        if cursor.used >= lane.count {
            return None;
        }
        let mut numbers = self.order.from(lane, cursor.next);
        numbers.find(|number| !self.uses.contains_key(number))
    }

    /// The number of the lanes that is in quarantine for the longest time.
    pub(crate) fn draw_quarantined(&self, lanes: &[Lane]) -> Option<u32> {
        let of_lanes = |number: &u32| {
            let lane = self.space.lane_of(*number);
            lane.is_some_and(|lane| lanes.contains(&lane))
        };
        let mut oldest_first = self.quarantined.iter().map(|(number, _)| *number);
        oldest_first.find(of_lanes)
    }

    pub(crate) fn state(&self, number: u32) -> Use {
        match self.uses.get(&number) {
            None => Use::Free,
            Some(None) => Use::Held,
            Some(Some(at)) => Use::QuarantinedAt(*at),
        }
    }

    /// Count of numbers in quarantine.
    pub(crate) fn quarantined_count(&self) -> usize {
        self.quarantined.len()
    }

    /// Count of free numbers of a lane.
    pub(crate) fn free(&self, lane: Lane) -> u32 {
        let used = self.cursors.get(&lane).map_or(0, |cursor| cursor.used);
        lane.count.saturating_sub(used)
    }

    /// Marks a number as held; the lane's cursor moves behind it.
    pub(crate) fn hold(&mut self, number: u32) {
        let before = self.uses.insert(number, None);
        if before.flatten().is_some() {
            self.quarantined
                .retain(|(quarantined, _)| *quarantined != number);
        }
        if let Some(lane) = self.space.lane_of(number) {
            let next = self.order.after(lane, number);
            let cursor = self.cursor(lane);
            cursor.next = next;
            cursor.used += u32::from(before.is_none());
        }
    }

    /// Frees a number without quarantine: it was never used, or its quarantine has ended.
    pub(crate) fn release(&mut self, number: u32) {
        if self.space.gateway() != Some(number) && self.uses.remove(&number).is_some() {
            self.count_free(number);
        }
    }

    /// Quarantines a number, held or not, from `at` (since boot); one that is in quarantine already keeps its begin.
    pub(crate) fn quarantine(&mut self, number: u32, at: Duration) {
        if self.space.gateway() == Some(number) {
            return;
        }
        match self.uses.insert(number, Some(at)) {
            Some(Some(earlier)) => {
                self.uses.insert(number, Some(earlier));
                return;
            }
            Some(None) => {}
            None => self.count_used(number),
        }
        self.quarantined.push_back((number, at));
        if self.quarantined.len() > QUARANTINED_MAX {
            self.free_oldest(|_| true);
        }
    }

    /// Frees numbers whose quarantine has ended.
    pub(crate) fn expire(&mut self, now: Duration) {
        let quarantine = self.quarantine;
        while self.free_oldest(|at| at + quarantine <= now) {}
    }

    /// Ends the oldest quarantine if `ended` is true for its begin.
    fn free_oldest(&mut self, ended: impl Fn(Duration) -> bool) -> bool {
        let oldest = self.quarantined.pop_front_if(|(_, at)| ended(*at));
        if let Some((number, _)) = oldest {
            self.release(number);
        }
        oldest.is_some()
    }

    /// Sets the cursor of the number's lane to `number`.
    pub(crate) fn set_cursor(&mut self, number: u32) {
        if let Some(lane) = self.space.lane_of(number) {
            self.cursor(lane).next = number;
        }
    }

    /// Quarantined numbers and since when, oldest first.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = (u32, Duration)> {
        self.quarantined.iter().copied()
    }

    /// The next number of each lane.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = u32> {
        self.cursors.values().map(|cursor| cursor.next)
    }

    /// The pool after a reboot: the cursors without numbers in use. Cursors of unused lanes are dropped, as they would
    /// accumulate with each reboot.
    pub(crate) fn after_reboot(&self) -> Self {
        let mut fresh = Self::new(self.space, self.order, self.quarantine);
        for (lane, cursor) in &self.cursors {
            if cursor.used > 0 || *lane == self.space.lasting_lane() {
                fresh.set_cursor(cursor.next);
            }
        }
        fresh
    }

    fn cursor(&mut self, lane: Lane) -> &mut Cursor {
        let order = self.order;
        let begin = || Cursor {
            next: order.first(lane),
            used: 0,
        };
        self.cursors.entry(lane).or_insert_with(begin)
    }

    fn count_free(&mut self, number: u32) {
        let Some(lane) = self.space.lane_of(number) else {
            return;
        };
        let cursor = self.cursor(lane);
        cursor.used -= 1;
        if cursor.used == 0 && lane != self.space.lasting_lane() {
            self.cursors.remove(&lane);
        }
    }

    fn count_used(&mut self, number: u32) {
        if let Some(lane) = self.space.lane_of(number) {
            self.cursor(lane).used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_a_pod_held_before_is_not_drawn_again() {
        let range: Ipv4Range = "10.0.0.0/29".parse().unwrap();
        let gateway = range.gateway().to_bits();
        let mut pool = Pool::new(Space::Ipv4(range), Order::Counting, Duration::ZERO);
        let fresh = pool.clone();
        pool.hold(gateway);
        pool.quarantine(gateway, Duration::ZERO);
        pool.expire(Duration::from_secs(1));
        pool.hold(gateway);
        pool.release(gateway);
        let numbers = |mut pool: Pool| {
            let mut numbers = Vec::new();
            while let Some(number) = pool.draw(range.lane()) {
                pool.hold(number);
                numbers.push(number);
            }
            numbers.sort_unstable();
            numbers
        };
        let left = numbers(pool);
        assert_eq!(left, numbers(fresh));
        assert!(!left.contains(&gateway));
    }
}
