//! Garbage collection of the flow table: removes idle flows, and counts the end of connections that a full table evicted.
//!
//! To walk over a full table takes a second, so the walk needs no access to the data path. It also rebuilds the flow Bloom
//! filter.

mod stale;

use std::collections::BTreeMap;
use std::sync::Arc;

use aya::maps::{HashMap, IterableMap as _, MapData};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{COUNTED, Flow, FlowKey, SERVICE};
use dormouse_ebpf::packet::UDP;
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::counts::Counters;
use super::error::DatapathError;
use super::flow_filter::FlowFilter;
use super::load::Loaded;
use super::loads::{self, Audit};
use super::pinned::walk;
use super::removal::remove_if;
pub use stale::ServiceFlows;

/// The flow table.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    tables: Arc<Mutex<Tables>>,
}

struct Tables {
    flows: HashMap<MapData, FlowKey, Flow>,
    flow_filter: FlowFilter,
    arrays: Arc<Arrays>,
    /// Capacity, in flows.
    room: u32,
    /// The last walk found the table so full that it may evict flows.
    crowded: bool,
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
    pub(super) fn open(loaded: &mut Loaded, arrays: &Arc<Arrays>) -> Result<Self, DatapathError> {
        let flows: HashMap<MapData, FlowKey, Flow> =
            HashMap::try_from(loaded.take("flow")?).map_err(DatapathError::map("open", "flow"))?;
        let info = flows.map().info();
        let info = info.map_err(DatapathError::map("look at", "flow"))?;
        let tables = Tables {
            flows,
            room: info.max_entries(),
            // Evictions under the previous agent are unknown.
            crowded: true,
            arrays: Arc::clone(arrays),
            flow_filter: FlowFilter::open(loaded)?,
        };
        Ok(Self {
            tables: Arc::new(Mutex::new(tables)),
        })
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
    /// Removes flows without a packet for `idle_ns`, and counts the open ones. Blocks for up to some seconds.
    pub fn walk(self, now_ns: u64, idle_ns: u64) -> Swept {
        let Self { flows, counted } = self;
        let mut tables = flows.tables.lock();
        let (mut remembered, mut ended) = (BTreeMap::new(), BTreeMap::new());
        // Removed after the walk: during it, another flow could take the place of a removed one.
        let mut idle = Vec::new();
        let is_idle = |key: &FlowKey, flow: &Flow| {
            now_ns.saturating_sub(flow.seen_ns) > idle_ns.max(patience_ns(key, flow))
        };
        let mut audit = tables.crowded.then(|| Audit::begin(&tables.arrays));
        let mut found_flows = 0;
        let rebuild = tables.flow_filter.rebuild();
        // By whole buckets (batch lookup): a walk from key to key loses its place when the table reuses a key's element.
        let walked = walk(&tables.flows, "flow", |key: &FlowKey, flow: &Flow| {
            rebuild.mark(&key.source);
            found_flows += 1;
            if let Some(audit) = &mut audit {
                audit.holds(flow);
            }
            *remembered.entry(flow.slot).or_default() += flow.open & COUNTED;
            if is_idle(key, flow) {
                idle.push(*key);
            }
            true
        });
        let whole = walked
            .inspect_err(|error| tracing::warn!(%error, "failed to walk over the flow table"))
            .is_ok();
        if whole {
            rebuild.finish();
        }
        if let Some(forgotten @ 1..) = audit.filter(|_| whole).map(|it| it.finish(&tables.arrays)) {
            tracing::debug!(
                forgotten,
                "flows to backends were evicted from the full table"
            );
        }
        // A full table evicts flows; one that is half empty had room for all.
        tables.crowded = found_flows > tables.room / 2;
        let mut removed = 0;
        for key in idle {
            // A flow that the kernel evicted meanwhile was counted by the audit, not here; one that is in use again stays.
            if let Some(flow) = remove_if(&mut tables.flows, &key, |flow| is_idle(&key, flow)) {
                removed += 1;
                *ended.entry(flow.slot).or_default() += flow.open & COUNTED;
                loads::flow_ended(&tables.arrays, &flow);
            }
        }
        Swept {
            counted,
            remembered,
            ended,
            removed,
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
            if connections > 0 {
                counters.expire(vip, connections, now_ns)?;
            }
        }
        Ok(self.removed)
    }
}

/// Idle timeout of a flow. Established connections to Services have kube-proxy's (`--conntrack-tcp-timeout-established`); only
/// apps must not be kept awake by a connection that lost its client.
fn patience_ns(key: &FlowKey, flow: &Flow) -> u64 {
    const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;
    if flow.is(SERVICE) && key.protocol != UDP {
        DAY_NS
    } else {
        0
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
