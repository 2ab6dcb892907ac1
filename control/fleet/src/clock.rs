//! The one clock that crosses parts: `CLOCK_BOOTTIME`, which goes on in suspend and never steps.

use std::ops::Add;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment on `CLOCK_BOOTTIME`, in nanoseconds since the machine booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boottime(pub u64);

impl Boottime {
    /// The moment now. Pure cores never call this: they take time as an argument.
    pub fn now() -> Self {
        // The clock exists on every Linux that we run on; 0 (the boot) would only make leases end early.
        let nanoseconds = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            let fraction = u64::try_from(time.tv_nsec()).unwrap_or(0);
            seconds * 1_000_000_000 + fraction
        });
        Self(nanoseconds)
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
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
    fn a_later_moment_is_no_time_before_an_earlier_one() {
        assert_eq!(Boottime(5).since(Boottime(9)), Duration::ZERO);
        assert_eq!(Boottime(9).since(Boottime(5)), Duration::from_nanos(4));
        assert_eq!(
            Boottime(u64::MAX) + Duration::from_secs(1),
            Boottime(u64::MAX)
        );
    }
}
