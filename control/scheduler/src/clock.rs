//! The scheduler's clock: monotonic, from the wall clock's time at its start.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nix::time::{ClockId, clock_gettime};

/// A clock whose time never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Timestamp,
    boottime_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start: Timestamp::now(),
            boottime_ns: boottime_ns(),
        }
    }

    /// The time that has passed since.
    pub(crate) fn since(&self, before: Timestamp) -> Duration {
        let passed = self.now().duration_since(before);
        Duration::try_from(passed).unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed = boottime_ns().saturating_sub(self.boottime_ns);
        let passed = SignedDuration::from_nanos(i64::try_from(passed).unwrap_or(i64::MAX));
        self.start.checked_add(passed).unwrap_or(self.start)
    }
}

/// `CLOCK_BOOTTIME`, the clock of all timestamps of a wake.
pub(crate) fn boottime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let fraction = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds * 1_000_000_000 + fraction
    })
}
