//! Carries flows from one table to another while packets go on.
//!
//! Programs look into the old table first, so what it says of a flow is true as long as it knows the flow. Flows are
//! taken out of it only when the new table has all of them.

use std::path::Path;

use aya::maps::{HashMap, IterableMap as _, MapData};
use dormouse_ebpf::flow::{
    ENDED, Flow, FlowKey, HIDDEN, NAT_REST_NS, ONWARD, REPLY, SERVICE, Stage,
};

use super::typed;
use crate::clock;
use crate::error::DatapathError;
use crate::pinned::walk;

/// A program writes a flow down within this time after the moment that the flow names.
const WRITTEN_WITHIN_NS: u64 = 100_000_000;

/// No VIP has been forgotten yet: the old table begins all flows.
pub(super) const NOT_YET: u64 = u64::MAX;

type Table = HashMap<MapData, FlowKey, Flow>;

/// A table whose flows are carried over.
pub(crate) struct Carried {
    from: Table,
    to: Table,
    /// For flows without a packet since then the new table has no room.
    oldest_ns: u64,
    /// The new table has all flows of before.
    done_ns: u64,
    /// Flows that the new table did not take.
    lost: usize,
}

impl Carried {
    /// Copies what one folder's table holds into another's: the latest, if there is not room for all.
    pub(super) fn begin(from: &Path, to: &Path) -> Result<Self, DatapathError> {
        let mut carried = Self {
            from: typed(from, "flow")?,
            to: typed(to, "flow")?,
            oldest_ns: 0,
            done_ns: 0,
            lost: 0,
        };
        let now_ns = clock::boottime_ns();
        let mut seen_ns = Vec::new();
        walk(&carried.from, "flow", |key: &FlowKey, flow: &Flow| {
            if leads(key, flow, now_ns) {
                seen_ns.push(flow.seen_ns);
            }
            true
        })?;
        let info = carried.to.map().info();
        let info = info.map_err(DatapathError::map("look at", "flow"))?;
        carried.oldest_ns = latest(&mut seen_ns, room(info.max_entries()));
        carried.catch_up(NOT_YET)?;
        Ok(carried)
    }

    /// Copies what has begun since the copy before. From `forgotten_ns` on, CLOCK_BOOTTIME, the new table begins flows.
    pub(super) fn catch_up(&mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        let Self { from, to, lost, .. } = self;
        let now_ns = clock::boottime_ns();
        let since_ns = self.done_ns.saturating_sub(WRITTEN_WITHIN_NS);
        let since_ns = since_ns.max(self.oldest_ns);
        walk(from, "flow", |key: &FlowKey, flow: &Flow| {
            if flow.seen_ns < since_ns || !leads(key, flow, now_ns) {
                return true;
            }
            let mut carry = |key, flow| *lost += usize::from(!put(to, key, flow, forgotten_ns));
            carry(key, flow);
            if flow.is(REPLY) {
                let there = key.answered(flow);
                if let Ok(flow) = from.get(&there, 0) {
                    carry(&there, &flow);
                }
            }
            true
        })?;
        self.done_ns = now_ns;
        Ok(())
    }

    /// Takes out of the old table what need not be in it. The new programs may give the ends of a connection that is over
    /// to another one, whose replies the old programs would else lead to where they led before.
    pub(super) fn clear(&mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        let now_ns = clock::boottime_ns();
        self.take_out(forgotten_ns, |key, flow| {
            flow.is(REPLY) && flow.is(SERVICE) && !flow.is(HIDDEN) || is_over(key, flow, now_ns)
        })
    }

    /// Takes everything out of the old table, when all of it is in the new one: what is sent before what is answered, so
    /// that the end of a connection is noted in one table only.
    pub(super) fn hand_over(mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        self.take_out(forgotten_ns, |_, flow| !flow.is(REPLY))?;
        self.take_out(forgotten_ns, |_, flow| flow.is(REPLY))?;
        if self.lost > 0 {
            tracing::warn!(flows = self.lost, "the new table of flows did not take all");
        }
        Ok(())
    }

    /// Moves flows, each as it is at that moment.
    fn take_out(
        &mut self,
        forgotten_ns: u64,
        is_wanted: impl Fn(&FlowKey, &Flow) -> bool,
    ) -> Result<(), DatapathError> {
        let now_ns = clock::boottime_ns();
        let mut wanted = Vec::new();
        walk(&self.from, "flow", |key: &FlowKey, flow: &Flow| {
            if is_wanted(key, flow) {
                wanted.push(*key);
            }
            true
        })?;
        for key in wanted {
            // A flow that has gone meanwhile, or is another one by now, stays where it is.
            let flow = self.from.get(&key, 0).ok();
            let Some(flow) = flow.filter(|flow| is_wanted(&key, flow)) else {
                continue;
            };
            let has = |key: FlowKey| self.to.get(&key, 0).is_ok();
            if has(key) || has(key.answered(&flow)) {
                self.lost += usize::from(!put(&mut self.to, &key, &flow, forgotten_ns));
            } else if leads(&key, &flow, now_ns) {
                // It began behind the copy, which the next one makes good.
                continue;
            }
            let _ = self.from.remove(&key);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carried").finish_non_exhaustive()
    }
}

/// Whether a flow is to be carried over, and the one that it answers with it. Of both together: a table that remembers
/// where a connection goes, but not what its answers become, leads the next one from the same port nowhere. As long as the
/// old table may know whose a port was, the new one has to.
fn leads(key: &FlowKey, flow: &Flow, now_ns: u64) -> bool {
    let is_free = flow.is(HIDDEN) && flow.gives_port(key.protocol, now_ns);
    flow.is(ONWARD | ENDED) || flow.is(REPLY) && !is_free
}

/// Whether the connection has ended, or was never begun: only of one through a port of the node's own is that known.
fn is_over(key: &FlowKey, flow: &Flow, now_ns: u64) -> bool {
    let silent_ns = now_ns.saturating_sub(flow.seen_ns);
    let has_ended = flow.stage == Stage::Ended as u32 && silent_ns > NAT_REST_NS / 2;
    flow.is(REPLY) && flow.is(HIDDEN) && (has_ended || flow.gives_port(key.protocol, now_ns))
}

/// Makes the new table say of a flow what the old one does; whether it could.
fn put(to: &mut Table, key: &FlowKey, old: &Flow, forgotten_ns: u64) -> bool {
    let new = to.get(key, 0).ok();
    match merged(old, new.as_ref(), forgotten_ns) {
        Some(flow) => to.insert(key, flow, 0).is_ok(),
        None => true,
    }
}

/// What the new table is to say of a flow; none: what it says is right.
fn merged(old: &Flow, new: Option<&Flow>, forgotten_ns: u64) -> Option<Flow> {
    let Some(new) = new else {
        return Some(*old);
    };
    let progress = |flow: &Flow| Flow {
        stage: old.stage,
        open: old.open,
        seen_ns: old.seen_ns,
        ..*flow
    };
    if progress(new) != *old {
        // Another connection has the same ends: the later one.
        return (new.seen_ns < forgotten_ns).then_some(*old);
    }
    let merged = Flow {
        stage: if new.seen_ns > old.seen_ns {
            old.stage.max(new.stage)
        } else {
            old.stage
        },
        seen_ns: old.seen_ns.max(new.seen_ns),
        ..*old
    };
    (merged != *new).then_some(merged)
}

/// How many connections are copied into a table, of two flows each: what begins meanwhile needs room, too.
fn room(entries_max: u32) -> usize {
    (entries_max - entries_max / 8) as usize / 2
}

/// The time from which on not more than `room` connections had a packet.
fn latest(seen_ns: &mut [u64], room: usize) -> u64 {
    let Some(first) = seen_ns.len().checked_sub(room) else {
        return 0;
    };
    if first == 0 {
        return 0;
    }
    *seen_ns.select_nth_unstable(first).1
}

#[cfg(test)]
mod tests;
