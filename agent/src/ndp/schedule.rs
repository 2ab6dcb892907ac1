//! The times at which pods are announced. Pure: the time is an argument, as a duration since some start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Number of announcements of an address, and the pause between them (RFC 4861, 10: `MAX_NEIGHBOR_ADVERTISEMENT` and
/// `RETRANS_TIMER`).
const TIMES: u8 = 3;
const RETRANSMIT: Duration = Duration::from_secs(1);
/// Minimum average time between two announcements: 1,000 a second, or 86 kB/s.
const INTERVAL: Duration = Duration::from_millis(1);
/// Announcements that may be sent together after a pause.
const BURST: u32 = 100;
/// Time between two pods when all are announced. The three rounds overlap, and together stay below the rate of
/// [`INTERVAL`], so that a new pod does not wait.
const SPREAD: Duration = Duration::from_micros(3_400);

/// The announced pods, and their pending announcements.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    living: BTreeMap<Ipv6Addr, Turn>,
    due: BTreeSet<(Duration, Ipv6Addr)>,
    /// Token bucket: the time at which it is full again; each announcement moves it by one [`INTERVAL`].
    full_at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    at: Duration,
    left: u8,
}

impl Schedule {
    /// Adds a pod, or announces it again: the first announcement is due at once.
    pub(super) fn add(&mut self, address: Ipv6Addr, now: Duration) {
        self.remove(address);
        self.put(address, now, TIMES);
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, address: Ipv6Addr) {
        if let Some(turn) = self.living.remove(&address) {
            self.due.remove(&(turn.at, address));
        }
    }

    /// Announces all pods again, spread over time.
    pub(super) fn again(&mut self, now: Duration) {
        let mut at = now;
        for address in self.living().collect::<Vec<_>>() {
            self.remove(address);
            self.put(address, at, TIMES);
            at += SPREAD;
        }
    }

    /// The pods, in order.
    pub(super) fn living(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.living.keys().copied()
    }

    /// The next pod whose announcement is due.
    pub(super) fn next(&mut self, now: Duration) -> Option<Ipv6Addr> {
        if self.due_at()? > now {
            return None;
        }
        let (_, address) = self.due.pop_first()?;
        self.full_at = self.full_at.max(now) + INTERVAL;
        let left = self.living.get(&address)?.left.saturating_sub(1);
        self.put(address, now + RETRANSMIT, left);
        Some(address)
    }

    /// The time of the next announcement.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let (at, _) = self.due.first()?;
        let allowed = self.full_at.saturating_sub(INTERVAL * (BURST - 1));
        Some((*at).max(allowed))
    }

    fn put(&mut self, address: Ipv6Addr, at: Duration, left: u8) {
        self.living.insert(address, Turn { at, left });
        if left > 0 {
            self.due.insert((at, address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u128) -> Ipv6Addr {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | number)
    }

    /// All announcements until none is left, as (time, pod).
    fn play(schedule: &mut Schedule) -> Vec<(Duration, Ipv6Addr)> {
        let mut sent = Vec::new();
        while let Some(at) = schedule.due_at() {
            sent.push((at, schedule.next(at).unwrap()));
        }
        sent
    }

    #[test]
    fn a_new_pod_is_announced_at_once_and_twice_more_a_second_apart() {
        let mut schedule = Schedule::default();
        let start = Duration::from_secs(7);
        schedule.add(pod(1), start);
        assert_eq!(schedule.next(start.saturating_sub(INTERVAL)), None);
        let second = |seconds| (start + Duration::from_secs(seconds), pod(1));
        assert_eq!(play(&mut schedule), [second(0), second(1), second(2)]);
        assert_eq!(schedule.living().collect::<Vec<_>>(), [pod(1)]);
    }

    #[test]
    fn a_removed_pod_is_not_announced_again() {
        let mut schedule = Schedule::default();
        schedule.add(pod(1), Duration::ZERO);
        assert_eq!(schedule.next(Duration::ZERO), Some(pod(1)));
        schedule.remove(pod(1));
        schedule.remove(pod(2));
        assert_eq!((schedule.due_at(), schedule.living().count()), (None, 0));
    }

    #[test]
    fn a_pod_that_is_added_twice_is_announced_three_times_from_then_on() {
        let mut schedule = Schedule::default();
        schedule.add(pod(1), Duration::ZERO);
        assert_eq!(schedule.next(Duration::ZERO), Some(pod(1)));
        schedule.add(pod(1), INTERVAL);
        assert_eq!(play(&mut schedule).len(), 3);
    }

    #[test]
    fn many_pods_at_once_stay_below_the_rate() {
        let mut schedule = Schedule::default();
        for number in 0..2_000 {
            schedule.add(pod(number), Duration::ZERO);
        }
        let sent = play(&mut schedule);
        assert_eq!(sent.len(), 6_000);
        let burst = usize::try_from(BURST).unwrap();
        for window in sent.windows(burst + 1) {
            let took = window[burst].0.saturating_sub(window[0].0);
            assert!(took >= INTERVAL, "{took:?}");
        }
        let last = sent.last().unwrap().0;
        assert!(last >= INTERVAL * (6_000 - BURST - 1), "{last:?}");
    }

    #[test]
    fn announcing_all_pods_leaves_room_for_a_new_pod() {
        let mut schedule = Schedule::default();
        for number in 0..10_000 {
            schedule.add(pod(number), Duration::ZERO);
        }
        play(&mut schedule);
        let start = Duration::from_mins(5);
        schedule.again(start);
        let new = start + Duration::from_secs(10);
        while schedule.due_at().is_some_and(|at| at < new) {
            schedule.next(schedule.due_at().unwrap()).unwrap();
        }
        schedule.add(pod(10_000), new);
        let sent = play(&mut schedule);
        let waited = sent.iter().position(|(_, address)| *address == pod(10_000));
        assert!(waited.unwrap() < 4, "it waited for {waited:?} others");
        let all = SPREAD * 10_000 + RETRANSMIT * 3;
        assert!(
            sent.last().unwrap().0 < start + all,
            "and all were announced"
        );
    }
}
