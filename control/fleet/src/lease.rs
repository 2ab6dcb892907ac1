//! How long a node may go on using what it was told, and how much longer its root must believe that it does.

use std::time::Duration;

use crate::clock::Boottime;

/// Assumed bound of the difference in rate between two machines' clocks: 1,000 ppm, ten times what quartz needs.
pub const DRIFT_PPM: u32 = 1_000;
/// Covers the reading of clocks and the rounding of a lease to milliseconds.
pub const MARGIN: Duration = Duration::from_millis(50);
/// The usual node lease: long, because waiting for it costs one idle pod a little time, and only for a silent node.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The node lease's length, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long after a beat was sent its grant lasts, by the node's clock.
    pub lease: Duration,
}

impl Terms {
    /// How long, by the root's clock, a node may use a grant counted from its sending: L(1+2ρ) + 50 ms.
    pub fn usable(&self) -> Duration {
        self.lease + self.lease * (2 * DRIFT_PPM) / 1_000_000 + MARGIN
    }

    /// When a grant sent at `sent` is surely over.
    pub fn usable_until(&self, sent: Boottime) -> Boottime {
        sent + self.usable()
    }

    /// How often a node sends a beat: three chances a lease.
    pub fn beat(&self) -> Duration {
        self.lease / 3
    }

    /// The lease as it travels; one that does not fit is cut, which errs to the safe side.
    pub fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_waits_longer_than_the_fastest_and_the_slowest_clock_differ() {
        let terms = Terms {
            lease: Duration::from_secs(30),
        };
        assert_eq!(terms.usable(), Duration::from_millis(30_000 + 60 + 50));
        assert_eq!(terms.beat(), Duration::from_secs(10));
    }
}
