//! Connections per VIP, as differences of the kernel's sums, and the verdict counters.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use aya::maps::{HashMap, MapData, PerCpuArray, PerCpuHashMap, PerCpuValues};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::verdict::Verdict;

use super::clock;
use super::error::DatapathError;
use super::load::Loaded;

/// Maximum number of attempts to read a row that a program is changing.
const TRIES: usize = 8;

/// Connections to one VIP on this node in an interval, without those to an activator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VipCount {
    /// Index of the VIP.
    pub vip: u32,
    /// Connections started.
    pub connections: u64,
    /// Integral of the number of open connections over time, in connection-nanoseconds.
    pub connection_ns: u64,
    /// Connections open at the end of the interval.
    pub open: u64,
    /// Length of the interval, in nanoseconds.
    pub interval_ns: u64,
}

/// A VIP's sums, and when they were read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    sum: Counts,
    /// CLOCK_BOOTTIME.
    at_ns: u64,
}

/// The counters of the VIPs that this node has served; other VIPs have no connections to count.
pub(super) struct Counters {
    sums: PerCpuHashMap<MapData, u32, Counts>,
    expired_counts: HashMap<MapData, u32, Counts>,
    cpus: usize,
    /// The sums at the end of the last interval, and its time.
    before: BTreeMap<u32, Reading>,
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters")
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

impl Counters {
    pub(super) fn open(loaded: &mut Loaded, followed: Vec<u32>) -> Result<Self, DatapathError> {
        let sums = loaded.take("counts")?;
        let expired = loaded.take("expired_counts")?;
        let cpus = aya::util::nr_cpus()
            .map_err(|(_, error)| DatapathError::map("size", "counts")(error))?;
        let mut counters = Self {
            sums: PerCpuHashMap::try_from(sums).map_err(DatapathError::map("open", "counts"))?,
            expired_counts: HashMap::try_from(expired)
                .map_err(DatapathError::map("open", "expired_counts"))?,
            cpus,
            before: BTreeMap::new(),
        };
        for vip in followed {
            // The other VIPs were never served on this node.
            if counters.sums.get(&vip, 0).is_ok() {
                counters.follow(vip)?;
            }
        }
        Ok(counters)
    }

    /// Creates a VIP's counters, or continues with existing ones.
    pub(super) fn follow(&mut self, vip: u32) -> Result<(), DatapathError> {
        if self.before.contains_key(&vip) {
            return Ok(());
        }
        if self.sums.get(&vip, 0).is_err() {
            let zeros = PerCpuValues::try_from(vec![Counts::default(); self.cpus])
                .map_err(DatapathError::map("fill", "counts"))?;
            self.sums
                .insert(vip, zeros, 0)
                .map_err(DatapathError::map("insert into", "counts"))?;
        }
        let now = self.sum(vip).unwrap_or_default();
        self.before.insert(
            vip,
            Reading {
                sum: now,
                at_ns: clock::boottime_ns(),
            },
        );
        Ok(())
    }

    /// Removes a VIP's counters.
    pub(super) fn forget(&mut self, vip: u32) -> Result<(), DatapathError> {
        if self.before.remove(&vip).is_some() {
            let _ = self.expired_counts.remove(&vip);
            self.sums
                .remove(&vip)
                .map_err(DatapathError::map("remove from", "counts"))?;
        }
        Ok(())
    }

    /// Counts the end of connections that no program saw.
    pub(super) fn expire(
        &mut self,
        vip: u32,
        connections: u64,
        now_ns: u64,
    ) -> Result<(), DatapathError> {
        let more = Counts {
            closed: connections,
            closed_ns: connections.wrapping_mul(now_ns),
            ..Counts::default()
        };
        let sum = self
            .expired_counts
            .get(&vip, 0)
            .unwrap_or_default()
            .plus(&more);
        self.expired_counts
            .insert(vip, sum, 0)
            .map_err(DatapathError::map("insert into", "expired_counts"))
    }

    /// The counts since the last call; VIPs without connections are omitted.
    pub(super) fn take(&mut self, now_ns: u64) -> Vec<VipCount> {
        let followed = self.followed();
        let mut counts = Vec::new();
        for vip in followed {
            // It was changed at each attempt: its next interval covers this one too.
            let Some(sum) = self.sum(vip) else { continue };
            let new = Reading { sum, at_ns: now_ns };
            if let Some(old) = self.before.insert(vip, new) {
                counts.push(difference(vip, &old, &new));
            }
        }
        counts.retain(|count| count.connections > 0 || count.connection_ns > 0 || count.open > 0);
        counts
    }

    /// The VIPs with counters.
    pub(super) fn followed(&self) -> Vec<u32> {
        self.before.keys().copied().collect()
    }

    /// The sums of those VIPs with open connections.
    pub(super) fn open_of(&self, vips: &[u32]) -> Vec<(u32, Counts)> {
        vips.iter()
            .filter_map(|&vip| Some((vip, self.sum(vip)?)))
            .filter(|(_, sum)| sum.open_flows().cast_signed() > 0)
            .collect()
    }

    /// Whether a VIP has open connections; true if its row was being changed at each attempt.
    pub(super) fn is_used(&self, vip: u32) -> bool {
        let open = |sum: Counts| sum.open().cast_signed() > 0;
        self.before.contains_key(&vip) && self.sum(vip).is_none_or(open)
    }

    /// A VIP's sums over all CPUs, if no CPU was changing its row.
    pub(super) fn sum(&self, vip: u32) -> Option<Counts> {
        let settled = (0..TRIES).find_map(|_| {
            let cpus = self.sums.get(&vip, 0).ok()?;
            cpus.iter().all(Counts::is_settled).then_some(cpus)
        })?;
        let expired = self.expired_counts.get(&vip, 0).unwrap_or_default();
        Some(settled.iter().fold(expired, |sum, cpu| sum.plus(cpu)))
    }
}

/// The counts of an interval, from the sums at its two ends.
fn difference(vip: u32, from: &Reading, until: &Reading) -> VipCount {
    let (old, new) = (from.sum, until.sum);
    let integral = new
        .connection_ns(until.at_ns)
        .wrapping_sub(old.connection_ns(from.at_ns));
    VipCount {
        vip,
        connections: new.opened.wrapping_sub(old.opened),
        // A change between reading the clock and reading the sums can make the integral slightly negative.
        connection_ns: if integral.cast_signed() < 0 {
            0
        } else {
            integral
        },
        open: if new.open().cast_signed() < 0 {
            0
        } else {
            new.open()
        },
        interval_ns: until.at_ns.saturating_sub(from.at_ns),
    }
}

/// The sum of each verdict's counter over all CPUs.
pub(super) fn sums<M: Borrow<MapData>>(stats: &PerCpuArray<M, u64>) -> Vec<(Verdict, u64)> {
    let sum = |verdict: Verdict| {
        let cpus = stats.get(&(verdict as u32), 0).ok()?;
        Some((verdict, cpus.iter().sum()))
    };
    Verdict::ALL
        .iter()
        .filter_map(|verdict| sum(*verdict))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(sum: Counts, at_ns: u64) -> Reading {
        Reading { sum, at_ns }
    }

    #[test]
    fn a_connection_open_for_half_the_interval_counts_as_half_a_connection() {
        let old = Counts::default();
        let new = Counts {
            opened: 1,
            opened_ns: 1_500,
            ..Counts::default()
        };
        let count = difference(7, &reading(old, 1_000), &reading(new, 2_000));
        assert_eq!(
            count,
            VipCount {
                vip: 7,
                connections: 1,
                connection_ns: 500,
                open: 1,
                interval_ns: 1_000
            }
        );
    }

    #[test]
    fn a_connection_opened_after_the_clock_was_read_does_not_count_yet() {
        let new = Counts {
            opened: 1,
            opened_ns: 2_001,
            ..Counts::default()
        };
        assert_eq!(
            difference(7, &reading(Counts::default(), 1_000), &reading(new, 2_000)).connection_ns,
            0
        );
    }
}
