//! The rate at which a node begins to follow VIPs: a scan of the VIP range costs control no more than this. Packets to other VIPs
//! go to the activator meanwhile, and later ones are misses again.

use std::time::Duration;

use crate::clock::Boottime;

/// VIPs per second.
const RATE: u64 = 200;
/// VIPs at once after a pause.
const BURST: u64 = 2_000;
/// Time for one VIP.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / RATE);

/// A token bucket, as the time at which it is full again.
#[derive(Debug)]
pub(super) struct Misses {
    full_at: Boottime,
}

impl Misses {
    pub(super) fn new() -> Self {
        Self {
            full_at: Boottime(0),
        }
    }

    /// Takes a token; false if there is none.
    pub(super) fn admit(&mut self, now: Boottime) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let admitted = full_at.since(now) <= INTERVAL * u32::try_from(BURST).unwrap_or(u32::MAX);
        if admitted {
            self.full_at = full_at;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(misses: &mut Misses, now: Boottime) -> usize {
        (0..10_000).take_while(|_| misses.admit(now)).count()
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let mut misses = Misses::new();
        let start = Boottime(1_000_000_000);
        assert_eq!(admitted(&mut misses, start), 2_000);
        assert_eq!(admitted(&mut misses, start + Duration::from_secs(1)), 200);
        assert_eq!(admitted(&mut misses, start + Duration::from_mins(1)), 2_000);
    }
}
