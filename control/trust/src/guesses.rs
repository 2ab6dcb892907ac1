//! The limit of failed joins: guesses of tokens from one source, and from all together. Attempts with a valid token are not counted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use dormouse_handshakes::sources::source;

/// Failures of one source in a row.
const SOURCE_BURST: u32 = 5;
/// Time after which a source has one more.
const SOURCE_EVERY: Duration = Duration::from_secs(12);
/// Failures of all sources in a row.
const ALL_BURST: u32 = 100;
/// Time after which all sources have one more.
const ALL_EVERY: Duration = Duration::from_millis(100);
/// Sources that are counted one by one; further ones count only together.
const SOURCES_MAX: usize = 4_096;

/// The failed joins of late. Times are those of a monotonic clock.
#[derive(Debug, Default)]
pub struct Guesses {
    sources: BTreeMap<IpAddr, Bucket>,
    all: Bucket,
}

/// Failures that are not forgotten yet: the time at which they all are.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    empty_at: Duration,
}

impl Guesses {
    /// Whether a source may try at `now`; otherwise the time that it has to wait. One that has not failed of late does not wait for others, as
    /// long as its own failures can be counted.
    pub fn admit(&self, from: IpAddr, now: Duration) -> Result<(), Duration> {
        let of_all = self.all.wait(ALL_BURST, ALL_EVERY, now);
        let wait = match self.sources.get(&source(from)) {
            Some(bucket) if bucket.empty_at > now => {
                of_all.max(bucket.wait(SOURCE_BURST, SOURCE_EVERY, now))
            }
            _ if self.has_room(now) => Duration::ZERO,
            _ => of_all,
        };
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// Whether a failure of a further source would be counted as that source's.
    fn has_room(&self, now: Duration) -> bool {
        let is_forgotten = |bucket: &Bucket| bucket.empty_at <= now;
        self.sources.len() < SOURCES_MAX || self.sources.values().any(is_forgotten)
    }

    /// A source has failed at `now`.
    pub fn failed(&mut self, from: IpAddr, now: Duration) {
        self.all.add(ALL_EVERY, now);
        let is_new = !self.sources.contains_key(&source(from));
        if is_new && self.sources.len() >= SOURCES_MAX {
            self.sources.retain(|_, bucket| bucket.empty_at > now);
            if self.sources.len() >= SOURCES_MAX {
                return;
            }
        }
        let bucket = self.sources.entry(source(from)).or_default();
        bucket.add(SOURCE_EVERY, now);
    }
}

impl Bucket {
    fn add(&mut self, every: Duration, now: Duration) {
        self.empty_at = self.empty_at.max(now) + every;
    }

    fn wait(self, burst: u32, every: Duration, now: Duration) -> Duration {
        let level = self.empty_at.saturating_sub(now);
        level.saturating_sub(every * (burst - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_that_guesses_waits_and_others_do_not() {
        let mut guesses = Guesses::default();
        let now = Duration::from_secs(1_000);
        let (attacker, same) = (address("2001:db8::1"), address("2001:db8::2"));
        for _ in 0..SOURCE_BURST {
            assert_eq!(guesses.admit(attacker, now), Ok(()));
            guesses.failed(attacker, now);
        }
        assert_eq!(guesses.admit(same, now), Err(SOURCE_EVERY));
        assert_eq!(guesses.admit(address("2001:db8:0:1::1"), now), Ok(()));
        assert_eq!(guesses.admit(address("192.0.2.1"), now), Ok(()));
        assert_eq!(guesses.admit(attacker, now + SOURCE_EVERY), Ok(()));
    }

    #[test]
    fn a_source_without_failures_does_not_wait_for_others_that_guess() {
        let mut guesses = Guesses::default();
        let now = Duration::from_secs(1_000);
        let guessing = |source: u32| IpAddr::V4(source.into());
        for source in 0..2 * ALL_BURST {
            guesses.failed(guessing(source), now);
        }
        assert_eq!(guesses.admit(address("2001:db8::1"), now), Ok(()));
        assert!(guesses.admit(guessing(0), now).is_err());
        assert_eq!(guesses.admit(guessing(0), now + SOURCE_EVERY), Ok(()));
    }

    #[test]
    fn sources_together_are_limited_and_take_bounded_memory() {
        let mut guesses = Guesses::default();
        let now = Duration::from_secs(1_000);
        for source in 0..5_000u32 {
            guesses.failed(IpAddr::V4(source.into()), now);
        }
        assert_eq!(guesses.sources.len(), SOURCES_MAX);
        assert!(guesses.admit(address("192.0.2.1"), now).is_err());
        let later = now + ALL_EVERY * 10_000;
        assert_eq!(guesses.admit(address("192.0.2.1"), later), Ok(()));
        guesses.failed(address("192.0.2.1"), later);
        assert_eq!(guesses.sources.len(), 1);
    }
}
