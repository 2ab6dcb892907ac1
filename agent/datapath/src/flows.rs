//! Ends flows whose peers vanished without a word, and connections that the full table has forgotten.
//!
//! Full tables take a second to walk, so the walk needs no access to the data path. It renews the filter before the flow
//! table on its way.

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
use super::flowing::Flowing;
use super::load::Loaded;
use super::loads::{self, Audit};
use super::pinned::walk;
pub use stale::ServiceFlows;

/// The table of connections.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    tables: Arc<Mutex<Tables>>,
}

struct Tables {
    flows: HashMap<MapData, FlowKey, Flow>,
    flowing: Flowing,
    arrays: Arc<Arrays>,
    /// How many flows there is room for.
    room: u32,
    /// The table was found so full that it may let flows go.
    crowded: bool,
}

/// A look at all connections that is about to begin.
#[derive(Debug)]
#[must_use = "nothing ends before the walk, nothing is counted before the end"]
pub struct Sweep {
    flows: Flows,
    /// The sums of VIPs with connections, from before the walk.
    counted: Vec<(u32, Counts)>,
}

/// What a walk has found and done.
#[derive(Debug)]
#[must_use = "what ended is to be counted"]
pub struct Swept {
    counted: Vec<(u32, Counts)>,
    /// Open connections that the table holds, or held until the walk came to them, by VIP.
    remembered: BTreeMap<u32, u64>,
    /// Those of them that were ended, by VIP.
    ended: BTreeMap<u32, u64>,
    /// Flows that were removed, in either direction.
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
            // What the agent before saw is not known.
            crowded: true,
            arrays: Arc::clone(arrays),
            flowing: Flowing::open(loaded)?,
        };
        Ok(Self {
            tables: Arc::new(Mutex::new(tables)),
        })
    }

    pub(super) fn of_services(&self) -> ServiceFlows {
        ServiceFlows(self.clone())
    }

    pub(super) fn sweep(&self, counters: &Counters) -> Sweep {
        Sweep {
            flows: self.clone(),
            counted: counters.open_ones(),
        }
    }
}

impl Sweep {
    /// Removes flows without a packet for `idle_ns`, and counts what is open. Blocks for up to some seconds.
    pub fn walk(self, now_ns: u64, idle_ns: u64) -> Swept {
        let Self { flows, counted } = self;
        let mut tables = flows.tables.lock();
        let (mut remembered, mut ended) = (BTreeMap::new(), BTreeMap::new());
        // Another flow may take a removed one's place in the walk, so what is found is removed after it.
        let mut idle = Vec::new();
        let mut audit = tables.crowded.then(|| Audit::begin(&tables.arrays));
        let mut found_flows = 0;
        let renewal = tables.flowing.renew();
        // By whole buckets: a walk from key to key goes astray when the table gives a key's place to another.
        let walked = walk(&tables.flows, "flow", |key: &FlowKey, flow: &Flow| {
            renewal.mark(&key.source);
            found_flows += 1;
            if let Some(audit) = &mut audit {
                audit.holds(flow);
            }
            *remembered.entry(flow.slot).or_default() += flow.open & COUNTED;
            if now_ns.saturating_sub(flow.seen_ns) > idle_ns.max(patience_ns(key, flow)) {
                idle.push(*key);
            }
            true
        });
        let whole = walked
            .inspect_err(|error| tracing::warn!(%error, "the flows were not looked through"))
            .is_ok();
        if whole {
            renewal.finish();
        }
        if let Some(forgotten @ 1..) = audit.filter(|_| whole).map(|it| it.finish(&tables.arrays)) {
            tracing::debug!(forgotten, "flows to backends had no room in the table");
        }
        // Full tables lose flows; one that is half empty has had room for all.
        tables.crowded = found_flows > tables.room / 2;
        let mut removed = 0;
        for key in idle {
            // One that the kernel removed meanwhile was not idle, or is no longer ours to count.
            let Ok(flow) = tables.flows.get(&key, 0) else {
                continue;
            };
            if tables.flows.remove(&key).is_ok() {
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
    /// Counts what was open and has ended, or was let go by the full table: each would else keep its app awake for ever.
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
                tracing::debug!(vip, forgotten, "connections had no room in the table");
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

/// A connection to a Service may be silent for as long as kube-proxy lets it (`--conntrack-tcp-timeout-established`): only
/// apps are kept awake by one that has lost its client.
fn patience_ns(key: &FlowKey, flow: &Flow) -> u64 {
    const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;
    if flow.is(SERVICE) && key.protocol != UDP {
        DAY_NS
    } else {
        0
    }
}

/// How many connections are counted as open and remembered by no socket and not by the table, at least: `held` were found
/// there on a walk between the two sums, and what was closed meanwhile may have escaped it.
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
    fn only_what_nobody_holds_is_forgotten() {
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
