//! The fill of the flow table between two walks, estimated: the kernel does not count the entries of such a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aya::maps::{MapData, PerCpuArray};
use dormouse_ebpf::verdict::Verdict;

use crate::counts;

/// A table, by its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Those that are not established yet.
    Opening,
    /// The established ones.
    Established,
}

/// Verdicts of connections that are established, or whose socket is revoked, each with two entries at most.
const ESTABLISHED: &[Verdict] = &[Verdict::Established, Verdict::SocketStale];

/// Verdicts of new connections, each with two entries at most.
const BEGUN: &[Verdict] = &[
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

/// The fill of a flow table, in entries of which a connection has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFill {
    /// Entries in use: exact after a sweep, at most that many later.
    pub entries: u64,
    /// Capacity.
    pub room: u64,
    /// Entries that the kernel is known to have evicted because this table, or that of opening connections, was full.
    pub evicted: u64,
}

impl FlowFill {
    /// Whether the table is nearly full: three quarters.
    pub const fn is_scarce(&self) -> bool {
        self.entries > self.room / 4 * 3
    }
}

/// Connections of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// Those that have begun in it.
    begun: u64,
    /// Those that have moved to the other table.
    moved: u64,
}

impl Passed {
    fn since(self, before: Self) -> Self {
        Self {
            begun: self.begun.saturating_sub(before.begun),
            moved: self.moved.saturating_sub(before.moved),
        }
    }
}

/// Counts what is known of the fill.
pub(super) struct Fill {
    stats: Arc<PerCpuArray<MapData, u64>>,
    of: Of,
    room: u64,
    /// Entries that the last walk left.
    left: AtomicU64,
    /// Connections that had come and gone before that walk.
    begun: AtomicU64,
    moved: AtomicU64,
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
    pub(super) fn new(stats: Arc<PerCpuArray<MapData, u64>>, of: Of, room: u32) -> Self {
        let without_port = AtomicU64::new(sum(&stats, &WITHOUT_PORT));
        // What a previous agent's table holds is known after the first walk.
        let begun = AtomicU64::new(sum(&stats, of.begun()));
        let moved = AtomicU64::new(sum(&stats, of.moved()));
        Self {
            begun,
            moved,
            without_port,
            stats,
            of,
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
    /// that another one may find ended ones. Opening ones only have to be counted: a flood of them is most of its own room.
    pub(super) fn is_walk_due(&self) -> bool {
        let fresh_min = match self.of {
            Of::Opening => self.room,
            Of::Established => self.room / 16,
        };
        self.now().is_scarce() && 2 * self.fresh() > fresh_min
    }

    /// Whether the table may have been half full since the last walk.
    pub(super) fn was_half_full(&self) -> bool {
        let begun = self.passed().since(self.walked_at()).begun;
        self.left.load(Relaxed).saturating_add(2 * begun) > self.room / 2
    }

    /// Connections that have come and gone so far.
    pub(super) fn passed(&self) -> Passed {
        Passed {
            begun: sum(&self.stats, self.of.begun()),
            moved: sum(&self.stats, self.of.moved()),
        }
    }

    /// The same before the last walk.
    fn walked_at(&self) -> Passed {
        Passed {
            begun: self.begun.load(Relaxed),
            moved: self.moved.load(Relaxed),
        }
    }

    /// Connections begun since the last walk that have not moved to the other table.
    fn fresh(&self) -> u64 {
        let Passed { begun, moved } = self.passed().since(self.walked_at());
        begun.saturating_sub(moved)
    }

    /// Takes the result of a walk that began after these connections.
    pub(super) fn walked(&self, before: Passed, left: usize) {
        self.left.store(left as u64, Relaxed);
        self.begun.store(before.begun, Relaxed);
        self.moved.store(before.moved, Relaxed);
        let fill = self.now();
        let scarce = fill.is_scarce();
        if scarce && !self.was_scarce.swap(scarce, Relaxed) {
            self.of.report(fill);
        }
        self.was_scarce.store(scarce, Relaxed);
        if self.of == Of::Established {
            self.report_ports();
        }
    }

    /// Counts evicted entries.
    pub(super) fn evicted(&self, evicted: u64) {
        self.evicted.fetch_add(evicted, Relaxed);
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

impl Of {
    /// Verdicts of connections that begin in the table.
    const fn begun(self) -> &'static [Verdict] {
        match self {
            Self::Opening => BEGUN,
            Self::Established => ESTABLISHED,
        }
    }

    /// Verdicts of connections that leave it for the other table.
    const fn moved(self) -> &'static [Verdict] {
        match self {
            Self::Opening => &[Verdict::Established],
            Self::Established => &[],
        }
    }

    /// Logs that the table is nearly full.
    fn report(self, fill: FlowFill) {
        let FlowFill { entries, room, .. } = fill;
        match self {
            Self::Opening => tracing::warn!(
                entries,
                room,
                "the table of opening connections is nearly full, as in a flood of SYNs: new connections may need a second SYN, \
                 established ones are not affected"
            ),
            Self::Established => tracing::warn!(
                entries,
                room,
                "the flow table is nearly full of connections in use: raise --flows-max, or idle connections are evicted"
            ),
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
