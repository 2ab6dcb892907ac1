//! The clock of the data path.

use std::time::Duration;

/// CLOCK_BOOTTIME in nanoseconds: the clock of all times in maps and events.
pub(crate) fn boottime_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
        u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
    })
}
