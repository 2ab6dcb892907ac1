//! The rate at which a node begins to follow VIPs: a scan of the VIP range costs control no more than this. Packets to other VIPs
//! go to the activator meanwhile, and later ones are misses again.
//!
//! VIPs that were refused and missed again go first: an app's clients try its VIP again and again, a scan goes on to other VIPs.
//! So an app that is created while a scan lasts is followed within seconds.

use std::time::Duration;

use crate::clock::Boottime;

/// VIPs per second.
const RATE: u64 = 200;
/// VIPs at once after a pause.
const BURST: u32 = 2_000;
/// Time for one VIP.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / RATE);
/// Part of the burst that is kept for VIPs with one more refusal. A scan that meets its VIPs again uses up the parts of some
/// refusals, never that of the most.
const RESERVE: u32 = 50;
/// Limit of the refusals that count.
const REFUSALS_MAX: u8 = 8;
/// Refusals count for at least this and at most twice as long: a refused VIP raises no miss for up to 2 s, and the next packet of
/// an app with a connection each second follows within another.
const MEMORY_NS: u64 = 3_000_000_000;
/// VIPs with refusals of their own: all of a range.
const VIPS: usize = 1 << 20;

/// A token bucket, as the time at which it is full again, and the VIPs that it refused.
#[derive(Debug)]
pub(super) struct Misses {
    full_at: Boottime,
    refused: Refused,
}

impl Misses {
    pub(super) fn new() -> Self {
        Self {
            full_at: Boottime(0),
            refused: Refused::default(),
        }
    }

    /// Takes a token for a VIP; false if there is none for it.
    pub(super) fn admit(&mut self, vip: u32, now: Boottime) -> bool {
        let refusals = self.refused.of(vip, now);
        let reserved = RESERVE * u32::from(REFUSALS_MAX - refusals);
        let full_at = self.full_at.max(now) + INTERVAL;
        let admitted = full_at.since(now) <= INTERVAL * (BURST - reserved);
        if admitted {
            self.full_at = full_at;
        } else {
            self.refused.set(vip, refusals + 1);
        }
        admitted
    }
}

/// The refusals of each VIP a moment ago: a megabyte from the first one on, so that a scan needs no more.
#[derive(Debug, Default)]
struct Refused {
    /// The number of the period, since boot.
    period: u64,
    /// By VIP: the number of refusals in the lower 4 bits, and whether the period of the last one is odd.
    words: Vec<u8>,
}

const COUNT: u8 = 0xf;
const ODD: u8 = 0x10;

impl Refused {
    /// How often the VIP was refused.
    fn of(&mut self, vip: u32, now: Boottime) -> u8 {
        self.forget(now.0 / MEMORY_NS);
        let word = self.words.get(place(vip)).copied().unwrap_or(0);
        word & COUNT
    }

    /// Sets the number of refusals, the last one of which is in this period.
    fn set(&mut self, vip: u32, refusals: u8) {
        if self.words.is_empty() {
            self.words = vec![0; VIPS];
        }
        let period = odd(self.period);
        if let Some(word) = self.words.get_mut(place(vip)) {
            *word = period | refusals.min(REFUSALS_MAX);
        }
    }

    /// Leaves the refusals of this period and of the one before.
    fn forget(&mut self, period: u64) {
        if period == self.period + 1 {
            let before_last = odd(period);
            for word in &mut self.words {
                if *word & ODD == before_last {
                    *word = 0;
                }
            }
        } else if period != self.period {
            self.words = Vec::new();
        }
        self.period = period;
    }
}

fn odd(period: u64) -> u8 {
    if period.is_multiple_of(2) { 0 } else { ODD }
}

fn place(vip: u32) -> usize {
    vip as usize % VIPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCANNED: u32 = (1 << 20) - 1;
    const APP: u32 = SCANNED;
    const SECOND: u32 = 1_000;

    fn admitted(misses: &mut Misses, vips: std::ops::Range<u32>, now: Boottime) -> usize {
        vips.take_while(|vip| misses.admit(*vip, now)).count()
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let mut misses = Misses::new();
        let start = Boottime(1_000_000_000);
        let burst = 2_000 - 8 * 50;
        assert_eq!(admitted(&mut misses, 0..9_000, start), burst);
        let second = start + Duration::from_secs(1);
        assert_eq!(admitted(&mut misses, 10_000..19_000, second), 200);
        let minute = start + Duration::from_mins(1);
        assert_eq!(admitted(&mut misses, 0..9_000, minute), burst);
    }

    /// The time in which an app's VIP is admitted, whose packets are misses every 1.5 s, beside a scan of `per_ms` VIPs in each
    /// millisecond, which `scanned` gives. In milliseconds; at most a minute.
    fn admitted_after(per_ms: u32, mut scanned: impl FnMut() -> u32) -> Option<u32> {
        let mut misses = Misses::new();
        let start = Boottime(1_000_000_000);
        let mut total = 0;
        let admitted = (0..60 * SECOND).find(|ms| {
            let now = start + Duration::from_millis((*ms).into());
            total += (0..per_ms).filter(|_| misses.admit(scanned(), now)).count();
            // The app is created when the scan has used up the burst.
            *ms >= 10 * SECOND && ms % 1_500 == 0 && misses.admit(APP, now)
        });
        let seconds = admitted.unwrap_or(60 * SECOND).div_ceil(SECOND);
        assert!(
            total <= (BURST + 200 * seconds) as usize,
            "{total} in {seconds} s"
        );
        admitted.map(|ms| ms - 10 * SECOND)
    }

    #[test]
    fn an_app_goes_before_a_scan_that_lasts() {
        let mut next = 0;
        let in_order = || {
            next = (next + 1) % SCANNED;
            next
        };
        let after = admitted_after(50, in_order).expect("admitted");
        assert!(after <= 3 * SECOND, "{after} ms");
    }

    #[test]
    fn an_app_goes_before_a_scan_in_random_order_that_lasts() {
        let mut state = 1_u64;
        let at_random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u32::try_from(state >> 44).unwrap() % SCANNED
        };
        let after = admitted_after(50, at_random).expect("admitted");
        assert!(after <= 15 * SECOND, "{after} ms");
    }

    #[test]
    fn refusals_of_a_while_ago_do_not_count() {
        let mut refused = Refused::default();
        let start = Boottime(1_000_000_000);
        let later = |periods: u64| Boottime(start.0 + periods * MEMORY_NS);
        assert_eq!(refused.of(1, start), 0);
        refused.set(1, 3);
        assert_eq!((refused.of(1, later(1)), refused.of(2, later(1))), (3, 0));
        assert_eq!(refused.of(1, later(2)), 0);
    }
}
