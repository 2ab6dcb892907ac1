//! The clock of all timestamps in messages: `CLOCK_BOOTTIME`, which runs during suspend and is never set.

use std::ops::Add;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A time on `CLOCK_BOOTTIME`, in nanoseconds since the machine booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boottime(pub u64);

impl Boottime {
    /// The current time. Pure cores take time as an argument instead.
    pub fn now() -> Self {
        // Every supported kernel has the clock; should it fail, time 0 only makes leases end early.
        let nanoseconds = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            let fraction = u64::try_from(time.tv_nsec()).unwrap_or(0);
            seconds * 1_000_000_000 + fraction
        });
        Self(nanoseconds)
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Boottime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let earlier = Boottime::now();
        assert!(earlier.0 > 0);
        assert!(Boottime::now() >= earlier);
    }

    #[test]
    fn the_time_since_a_later_moment_is_zero() {
        assert_eq!(Boottime(5).since(Boottime(9)), Duration::ZERO);
        assert_eq!(Boottime(9).since(Boottime(5)), Duration::from_nanos(4));
        assert_eq!(
            Boottime(u64::MAX) + Duration::from_secs(1),
            Boottime(u64::MAX)
        );
    }
}
