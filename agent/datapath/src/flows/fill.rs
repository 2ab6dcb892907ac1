//! The fill of the flow table between two walks, estimated: the kernel does not count the entries of such a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aya::maps::{MapData, PerCpuArray};
use dormouse_ebpf::verdict::Verdict;

use crate::counts;

/// Verdicts of new connections, each with two entries at most.
const BEGUN: [Verdict; 9] = [
    Verdict::ServedLocal,
    Verdict::ServedRemote,
    Verdict::ServiceServed,
    Verdict::Proxied,
    Verdict::LeaseOver,
    Verdict::Shared,
    Verdict::NoBackend,
    Verdict::OtherPort,
    Verdict::SocketStale,
];

/// Verdicts of connections for which no NAT port was free.
const WITHOUT_PORT: [Verdict; 2] = [Verdict::NatPortReused, Verdict::DroppedNoPort];

/// The flow table's fill, in entries of which a connection has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFill {
    /// Entries in use: exact after a sweep, at most that many later.
    pub entries: u64,
    /// Capacity.
    pub room: u64,
    /// Entries that the kernel is known to have evicted because the table was full.
    pub evicted: u64,
}

impl FlowFill {
    /// Whether the table is nearly full: three quarters.
    pub const fn is_scarce(&self) -> bool {
        self.entries > self.room / 4 * 3
    }
}

/// Counts what is known of the fill.
pub(super) struct Fill {
    stats: Arc<PerCpuArray<MapData, u64>>,
    room: u64,
    /// Entries that the last walk left.
    left: AtomicU64,
    /// Connections begun before that walk.
    begun: AtomicU64,
    evicted: AtomicU64,
    /// The table was nearly full at the last walk.
    was_scarce: AtomicBool,
    /// Connections that found no free NAT port, before the last walk.
    without_port: AtomicU64,
}

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl Fill {
    pub(super) fn new(stats: Arc<PerCpuArray<MapData, u64>>, room: u32) -> Self {
        let without_port = AtomicU64::new(sum(&stats, &WITHOUT_PORT));
        // What a previous agent's table holds is known after the first walk.
        let begun = AtomicU64::new(sum(&stats, &BEGUN));
        Self {
            begun,
            without_port,
            stats,
            room: room.into(),
            left: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            was_scarce: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> FlowFill {
        let entries = self.left.load(Relaxed).saturating_add(2 * self.fresh());
        FlowFill {
            entries: entries.min(self.room),
            room: self.room,
            evicted: self.evicted.load(Relaxed),
        }
    }

    /// Whether a walk is due before its time: the table is nearly full, and enough connections have begun since the last walk
    /// that another one may find ended ones.
    pub(super) fn is_walk_due(&self) -> bool {
        self.now().is_scarce() && 2 * self.fresh() > self.room / 16
    }

    /// Connections begun so far.
    pub(super) fn begun(&self) -> u64 {
        sum(&self.stats, &BEGUN)
    }

    /// Connections begun since the last walk.
    fn fresh(&self) -> u64 {
        self.begun().saturating_sub(self.begun.load(Relaxed))
    }

    /// Takes the result of a walk that began after so many connections.
    pub(super) fn walked(&self, begun: u64, left: usize, evicted: u64) {
        self.left.store(left as u64, Relaxed);
        self.begun.store(begun, Relaxed);
        self.evicted.fetch_add(evicted, Relaxed);
        let fill = self.now();
        let scarce = fill.is_scarce();
        if scarce && !self.was_scarce.swap(scarce, Relaxed) {
            tracing::warn!(
                entries = fill.entries,
                room = fill.room,
                "the flow table is nearly full of connections in use: raise --flows-max, or idle connections are evicted"
            );
        }
        self.was_scarce.store(scarce, Relaxed);
        self.report_ports();
    }

    fn report_ports(&self) {
        let now = sum(&self.stats, &WITHOUT_PORT);
        let connections = now.saturating_sub(self.without_port.swap(now, Relaxed));
        if connections > 0 {
            tracing::warn!(
                connections,
                "masqueraded connections found no free NAT port: there are too many to one backend, which delays or drops them"
            );
        }
    }
}

fn sum(stats: &PerCpuArray<MapData, u64>, verdicts: &[Verdict]) -> u64 {
    let sums = counts::sums(stats).into_iter();
    let wanted = sums.filter(|(verdict, _)| verdicts.contains(verdict));
    wanted.map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_scarce_above_three_quarters() {
        let fill = |entries| FlowFill {
            entries,
            room: 1_024,
            evicted: 0,
        };
        assert!(!fill(768).is_scarce() && fill(769).is_scarce());
    }
}
