//! Garbage collection of the flow tables, of opening and of established connections: removes idle flows, and counts the end of
//! connections that a full table evicted.
//!
//! To walk over a full table takes a second, so the walk needs no access to the data path. It also rebuilds the flow Bloom
//! filter. A table that is nearly full is walked before its time, and by shorter timeouts.

mod fill;
mod pairs;
mod stale;
mod timeouts;

use std::collections::BTreeMap;
use std::sync::Arc;

use aya::maps::{IterableMap as _, MapData, PerCpuArray};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{COUNTED, Flow, FlowKey};
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::counts::Counters;
use super::error::DatapathError;
use super::flow_filter::FlowFilter;
use super::load::Loaded;
use super::loads::{self, Audit};
use super::walk::{Batches, walk};
pub use fill::FlowFill;
use fill::{Fill, Of, Passed};
use pairs::{Table, remove_over};
pub use stale::ServiceFlows;
use timeouts::Timeouts;

/// The flow tables.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    tables: Arc<Mutex<Tables>>,
    opening: Arc<Fill>,
    established: Arc<Fill>,
}

struct Tables {
    /// A connection moves from `opening` to `established`, so that is walked first: a walk over both misses none.
    opening: Part,
    established: Part,
    flow_filter: FlowFilter,
    arrays: Arc<Arrays>,
    /// Evictions under the previous agent are unknown.
    is_new: bool,
}

/// One of the tables.
struct Part {
    name: &'static str,
    flows: Table,
    fill: Arc<Fill>,
}

/// A collection that has not started yet.
#[derive(Debug)]
#[must_use = "flows end in `walk`, and are counted by `count`"]
pub struct Sweep {
    flows: Flows,
    /// The sums of VIPs with open connections, before the walk.
    counted: Vec<(u32, Counts)>,
}

/// The result of a walk.
#[derive(Debug)]
#[must_use = "the ended flows must be counted"]
pub struct Swept {
    counted: Vec<(u32, Counts)>,
    /// Open connections in the table, also those removed by the walk, by VIP.
    remembered: BTreeMap<u32, u64>,
    /// Open connections that the walk removed, by VIP.
    ended: BTreeMap<u32, u64>,
    /// Number of removed flows, of both directions.
    removed: usize,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Flows {
    pub(super) fn open(
        loaded: &mut Loaded,
        arrays: &Arc<Arrays>,
        stats: &Arc<PerCpuArray<MapData, u64>>,
    ) -> Result<Self, DatapathError> {
        let mut part = |name, of| -> Result<Part, DatapathError> {
            let flows =
                Table::try_from(loaded.take(name)?).map_err(DatapathError::map("open", name))?;
            let info = flows.map().info();
            let room = info.map_err(DatapathError::map("look at", name))?;
            let fill = Arc::new(Fill::new(Arc::clone(stats), of, room.max_entries()));
            Ok(Part { name, flows, fill })
        };
        let tables = Tables {
            opening: part("opening", Of::Opening)?,
            established: part("flow", Of::Established)?,
            is_new: true,
            arrays: Arc::clone(arrays),
            flow_filter: FlowFilter::open(loaded)?,
        };
        Ok(Self {
            opening: Arc::clone(&tables.opening.fill),
            established: Arc::clone(&tables.established.fill),
            tables: Arc::new(Mutex::new(tables)),
        })
    }

    /// The fill of the table of established connections.
    pub(super) fn fill(&self) -> FlowFill {
        self.established.now()
    }

    /// The fill of the table of opening connections.
    pub(super) fn opening_fill(&self) -> FlowFill {
        self.opening.now()
    }

    /// Whether a table is so full that a sweep is due before its time; false while one runs.
    pub(super) fn is_sweep_due(&self) -> bool {
        let fills = [&self.established, &self.opening];
        !self.tables.is_locked() && fills.iter().any(|fill| fill.is_walk_due())
    }

    pub(super) fn of_services(&self) -> ServiceFlows {
        ServiceFlows(self.clone())
    }

    /// `counted` are the sums of VIPs with connections.
    pub(super) fn sweep(&self, counted: Vec<(u32, Counts)>) -> Sweep {
        Sweep {
            flows: self.clone(),
            counted,
        }
    }
}

impl Sweep {
    /// Removes connections that are over, and counts the open ones; established ones of apps are over after `idle_ns` without a
    /// packet. Blocks for up to some seconds.
    pub fn walk(self, now_ns: u64, idle_ns: u64) -> Swept {
        let Self { flows, counted } = self;
        let mut tables = flows.tables.lock();
        let sweep = |part: &Part| PartSweep {
            timeouts: Timeouts {
                idle_ns,
                scarce: part.fill.now().is_scarce(),
            },
            now_ns,
            before: part.fill.passed(),
            entries: 0,
            has_idle: false,
        };
        let mut sweeps = [sweep(&tables.opening), sweep(&tables.established)];
        let found = tables.find(&mut sweeps);
        let (mut removed, mut ended) = (0, BTreeMap::new());
        // In a walk of its own: the first one counts both entries of a connection, and the second one removes them together. A flow
        // that the kernel evicted meanwhile was counted by the audit, not here.
        let Tables {
            opening,
            established,
            arrays,
            ..
        } = &mut *tables;
        for (part, sweep) in [opening, established].into_iter().zip(sweeps) {
            let mut removed_here = 0;
            if sweep.has_idle {
                part.remove_idle(&sweep, |flow| {
                    removed_here += 1;
                    loads::flow_ended(arrays, flow);
                    count_open(&mut ended, flow);
                });
            }
            let left = sweep.entries.saturating_sub(removed_here);
            part.fill.walked(sweep.before, left);
            removed += removed_here;
        }
        flows.established.evicted(found.evicted);
        Swept {
            counted,
            remembered: found.remembered,
            ended,
            removed,
        }
    }
}

/// The sweep of one of the tables.
struct PartSweep {
    timeouts: Timeouts,
    now_ns: u64,
    /// Connections of the table before the sweep.
    before: Passed,
    /// Entries that the walk has found.
    entries: usize,
    /// There are connections that may be over.
    has_idle: bool,
}

/// What a walk over the tables has found.
#[derive(Default)]
struct Found {
    /// Open connections by VIP.
    remembered: BTreeMap<u32, u64>,
    /// Flows to backends that a full table has evicted.
    evicted: u64,
}

impl Tables {
    fn find(&mut self, sweeps: &mut [PartSweep; 2]) -> Found {
        let mut found = Found::default();
        let parts = [&self.opening, &self.established];
        // A full table evicts flows; one that was half empty since the last walk had room for all.
        let is_due = parts.iter().any(|part| part.fill.was_half_full());
        let mut audit = (is_due || self.is_new).then(|| Audit::begin(&self.arrays));
        let rebuild = self.flow_filter.rebuild();
        let mut whole = true;
        for (part, sweep) in parts.into_iter().zip(&mut *sweeps) {
            let walked = walk(&part.flows, part.name, |key: &FlowKey, flow: &Flow| {
                rebuild.mark(&key.source);
                sweep.entries += 1;
                if let Some(audit) = &mut audit {
                    audit.holds(flow);
                }
                count_open(&mut found.remembered, flow);
                let silent_ns = flow.silent_ns(sweep.now_ns);
                sweep.has_idle |= sweep.timeouts.may_be_over(key, flow, silent_ns);
                true
            });
            whole &= walked
                .inspect_err(|error| tracing::warn!(%error, "failed to walk over a flow table"))
                .is_ok();
        }
        if whole {
            rebuild.finish();
            found.evicted = audit.map_or(0, |audit| audit.finish(&self.arrays));
        }
        if found.evicted > 0 {
            tracing::debug!(
                forgotten = found.evicted,
                "flows to backends were evicted from the full table"
            );
        }
        self.is_new &= !whole;
        found
    }
}

impl Part {
    /// Removes connections that are over, and calls `ended` for each of their entries. A scan can fill the table with them: they
    /// are removed batch by batch, so that the agent needs no more memory then.
    fn remove_idle(&mut self, sweep: &PartSweep, mut ended: impl FnMut(&Flow)) {
        let (timeouts, now_ns) = (sweep.timeouts, sweep.now_ns);
        let mut batches = Batches::of(self.name);
        loop {
            let entries = match batches.next(&self.flows) {
                Ok(Some(entries)) => entries,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "failed to walk over a flow table");
                    return;
                }
            };
            let idle = entries
                .filter(|(key, flow)| timeouts.may_be_over(key, flow, flow.silent_ns(now_ns)));
            for (key, _) in idle {
                for flow in remove_over(&mut self.flows, key, timeouts, now_ns) {
                    ended(&flow);
                }
            }
        }
    }
}

impl Swept {
    /// Counts the end of removed and evicted connections: each would keep its app awake for ever.
    pub(super) fn count(
        self,
        counters: &mut Counters,
        now_ns: u64,
    ) -> Result<usize, DatapathError> {
        for (vip, before) in self.counted {
            let held = self.remembered.get(&vip).copied().unwrap_or(0);
            if let Some(after) = counters.sum(vip).filter(|_| before.open_flows() > held)
                && let forgotten @ 1.. = forgotten(&before, &after, held)
            {
                tracing::debug!(
                    vip,
                    forgotten,
                    "connections were evicted from the full table"
                );
                counters.expire(vip, forgotten, now_ns)?;
            }
        }
        for (vip, connections) in self.ended {
            counters.expire(vip, connections, now_ns)?;
        }
        Ok(self.removed)
    }
}

/// Counts the flow for its VIP, if it is open there. A scan leaves flows of many VIPs, none of them open.
fn count_open(open: &mut BTreeMap<u32, u64>, flow: &Flow) {
    if flow.open & COUNTED != 0 {
        *open.entry(flow.slot).or_default() += 1;
    }
}

/// Minimum number of connections that are counted as open but belong to no socket and are not in the table: the walk found
/// `held` between the two sums, and connections closed meanwhile may be among the missing.
fn forgotten(before: &Counts, after: &Counts, held: u64) -> u64 {
    let closed_meanwhile = after.closed.wrapping_sub(before.closed);
    before
        .open_flows()
        .saturating_sub(held.saturating_add(closed_meanwhile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(opened: u64, closed: u64) -> Counts {
        Counts {
            opened,
            closed,
            ..Counts::default()
        }
    }

    #[test]
    fn only_connections_missing_in_the_table_are_evicted() {
        assert_eq!(forgotten(&counts(9, 2), &counts(9, 2), 7), 0);
        assert_eq!(forgotten(&counts(9, 2), &counts(9, 2), 4), 3);
        let by_sockets = Counts {
            sockets: 2,
            ..counts(9, 2)
        };
        assert_eq!(forgotten(&by_sockets, &by_sockets, 4), 1);
    }

    #[test]
    fn what_opens_or_closes_during_the_walk_is_never_taken_for_forgotten() {
        let before = counts(9, 2);
        assert_eq!(forgotten(&before, &counts(12, 2), 10), 0, "three opened");
        assert_eq!(forgotten(&before, &counts(9, 5), 4), 0, "three closed");
        assert_eq!(forgotten(&before, &counts(9, 5), 7), 0, "seen, then closed");
    }
}
