//! The node lease: how long a node may use its entries after a grant, and how long the root must assume that it does.

use std::time::Duration;

use crate::clock::Boottime;

/// Assumed bound of the clock rate difference between two machines: 1,000 ppm, ten times that of a usual quartz.
pub const DRIFT_PPM: u32 = 1_000;
/// Allowance for clock reads and for rounding the lease to milliseconds.
pub const MARGIN: Duration = Duration::from_millis(50);
/// Default node lease. Long, because its only cost is that one idle pod stays longer while a node is silent.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The node lease's length, and the times derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time from the sending of a beat to the end of the lease that its grant gives, by the node's clock.
    pub lease: Duration,
}

impl Terms {
    /// Time from the sending of a grant until no node can use it, by the root's clock: L(1+2ρ) + 50 ms.
    pub fn usable(&self) -> Duration {
        self.lease + self.lease * (2 * DRIFT_PPM) / 1_000_000 + MARGIN
    }

    /// The time at which a grant sent at `sent` has expired on the node, whatever its clock's drift.
    pub fn usable_until(&self, sent: Boottime) -> Boottime {
        sent + self.usable()
    }

    /// Time for which a root sends messages after it has asked the store for its epoch, by its own clock.
    pub fn confirmed(&self) -> Duration {
        self.lease / 3
    }

    /// Time from the start of a root until no node can use a grant of an earlier one, which may have confirmed its epoch just before:
    /// (L/3 + L)(1+2ρ) + 50 ms.
    pub fn inherited_until(&self, started: Boottime) -> Boottime {
        let confirmed = self.confirmed();
        self.usable_until(started) + confirmed + confirmed * (2 * DRIFT_PPM) / 1_000_000
    }

    /// Interval of a node's beats: three per lease.
    pub fn beat(&self) -> Duration {
        self.lease / 3
    }

    /// The lease in `Grant.lease_ms`; a longer one is cut, which is safe: the node stops earlier than the root assumes.
    pub fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_adds_the_clock_drift_and_a_margin_to_the_lease() {
        let terms = Terms {
            lease: Duration::from_secs(30),
        };
        assert_eq!(terms.usable(), Duration::from_millis(30_000 + 60 + 50));
        assert_eq!(terms.beat(), Duration::from_secs(10));
        let inherited = terms.inherited_until(Boottime(0)).since(Boottime(0));
        assert_eq!(inherited, Duration::from_millis(40_000 + 80 + 50));
    }
}
