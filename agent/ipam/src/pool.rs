//! Which numbers are held, which rest and which comes next: the part of allocation that IPv6 and IPv4 share. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ipv4::Ipv4Range;
use crate::lane::Lane;
use crate::order::Order;
use crate::prefix::{NodePrefix, Suffix};

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Space {
    /// Suffixes of the node's prefix.
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

    /// The number that nobody is given. A pod that had it before the range was another may hold it, and gives it back.
    fn gateway(self) -> Option<u32> {
        match self {
            Self::Suffixes(_) => None,
            Self::Ipv4(range) => Some(range.gateway().to_bits()),
        }
    }

    /// The lane whose cursor outlives its last pod. Those of cohorts do not: they come and go without end.
    fn lasting_lane(self) -> Lane {
        match self {
            Self::Suffixes(prefix) => prefix.anonymous(),
            Self::Ipv4(range) => range.lane(),
        }
    }
}

/// What someone has to know before asking for a certain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nobody has it.
    Free,
    /// Someone has it.
    Held,
    /// It may be held again from then on (since boot).
    RestsUntil(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cursor {
    /// Where the search for a free number begins.
    next: u32,
    /// Numbers of the lane that are held or rest.
    used: u32,
}

/// The numbers in use, sparse.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    space: Space,
    order: Order,
    rest: Duration,
    /// Those that are held (none) and those that rest (until when); `rests` has the latter too, oldest first.
    uses: HashMap<u32, Option<Duration>>,
    rests: VecDeque<(u32, Duration)>,
    cursors: HashMap<Lane, Cursor>,
}

impl Pool {
    pub(crate) fn new(space: Space, order: Order, rest: Duration) -> Self {
        let mut pool = Self {
            space,
            order,
            rest,
            uses: HashMap::new(),
            rests: VecDeque::new(),
            cursors: HashMap::new(),
        };
        pool.cursor(space.lasting_lane());
        if let Some(gateway) = space.gateway() {
            pool.uses.insert(gateway, None);
            pool.enter(gateway);
        }
        pool
    }

    /// The next free number of a lane. It skips at most as many as are in use, and in practice none: a number just
    /// passed is the last to be met again.
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

    pub(crate) fn state(&self, number: u32) -> Use {
        match self.uses.get(&number) {
            None => Use::Free,
            Some(None) => Use::Held,
            Some(Some(until)) => Use::RestsUntil(*until),
        }
    }

    /// Numbers that rest.
    pub(crate) fn resting(&self) -> usize {
        self.rests.len()
    }

    /// Numbers of a lane that nobody has.
    pub(crate) fn free(&self, lane: Lane) -> u32 {
        let used = self.cursors.get(&lane).map_or(0, |cursor| cursor.used);
        lane.count.saturating_sub(used)
    }

    /// Someone has the number from now on; drawing goes on behind it.
    pub(crate) fn hold(&mut self, number: u32) {
        let before = self.uses.insert(number, None);
        if before.flatten().is_some() {
            self.rests.retain(|(resting, _)| *resting != number);
        }
        if let Some(lane) = self.space.lane_of(number) {
            let next = self.order.after(lane, number);
            let cursor = self.cursor(lane);
            cursor.next = next;
            cursor.used += u32::from(before.is_none());
        }
    }

    /// The number was never told to anyone: it need not rest.
    pub(crate) fn give_back(&mut self, number: u32) {
        if self.space.gateway() != Some(number) && self.uses.remove(&number).is_some() {
            self.leave(number);
        }
    }

    /// The number, held before or not, rests from `at` (since boot); one that rests already goes on.
    pub(crate) fn begin_rest(&mut self, number: u32, at: Duration) {
        if self.space.gateway() == Some(number) {
            return;
        }
        let until = at + self.rest;
        match self.uses.insert(number, Some(until)) {
            Some(Some(earlier)) => {
                self.uses.insert(number, Some(earlier));
                return;
            }
            Some(None) => {}
            None => self.enter(number),
        }
        self.rests.push_back((number, until));
    }

    /// Ends the rest of those whose time has come.
    pub(crate) fn wake(&mut self, now: Duration) {
        while let Some((number, _)) = self.rests.pop_front_if(|(_, until)| *until <= now) {
            self.give_back(number);
        }
    }

    /// Drawing goes on at `number` in its lane.
    pub(crate) fn go_on_at(&mut self, number: u32) {
        if let Some(lane) = self.space.lane_of(number) {
            self.cursor(lane).next = number;
        }
    }

    /// Those that rest and since when, oldest first.
    pub(crate) fn rests(&self) -> impl Iterator<Item = (u32, Duration)> {
        let since = |(number, until): &(u32, Duration)| (*number, until.saturating_sub(self.rest));
        self.rests.iter().map(since)
    }

    /// Where drawing goes on in each lane.
    pub(crate) fn next_numbers(&self) -> impl Iterator<Item = u32> {
        self.cursors.values().map(|cursor| cursor.next)
    }

    /// The same places to go on drawing, with nothing held and nothing resting. Only lanes in use count: otherwise each
    /// reboot would leave some for ever.
    pub(crate) fn forget_all(&self) -> Self {
        let mut fresh = Self::new(self.space, self.order, self.rest);
        for (lane, cursor) in &self.cursors {
            if cursor.used > 0 || *lane == self.space.lasting_lane() {
                fresh.go_on_at(cursor.next);
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

    fn leave(&mut self, number: u32) {
        let Some(lane) = self.space.lane_of(number) else {
            return;
        };
        let cursor = self.cursor(lane);
        cursor.used -= 1;
        if cursor.used == 0 && lane != self.space.lasting_lane() {
            self.cursors.remove(&lane);
        }
    }

    fn enter(&mut self, number: u32) {
        if let Some(lane) = self.space.lane_of(number) {
            self.cursor(lane).used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_a_pod_had_before_goes_to_no_other() {
        let range: Ipv4Range = "10.0.0.0/29".parse().unwrap();
        let gateway = range.gateway().to_bits();
        let mut pool = Pool::new(Space::Ipv4(range), Order::Counting, Duration::ZERO);
        let fresh = pool.clone();
        pool.hold(gateway);
        pool.begin_rest(gateway, Duration::ZERO);
        pool.wake(Duration::from_secs(1));
        pool.hold(gateway);
        pool.give_back(gateway);
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
