//! Copies flows from the old tables to the new one while packets are processed.
//!
//! Programs look into the old tables first, so their entry is the valid one while it exists. Flows are removed from one only when
//! the new table has all of them. Opening connections are copied as established ones: a take-over has few of them, and the old
//! programs may establish them at any moment.

use aya::maps::{HashMap, IterableMap as _, MapData};
use dormouse_ebpf::flow::{
    FORWARDED, Flow, FlowKey, MASQUERADED, OPENING, REPLY, REVOKED, SERVICE,
};
use dormouse_ebpf::opening::EXPECTED_SHIFT;

use super::schema::Maps;
use crate::clock;
use crate::error::DatapathError;
use crate::removal::remove_if;
use crate::walk::walk;

/// A program stores a flow within this time after the flow's timestamp, even if its virtual processor stands still meanwhile.
const WRITTEN_WITHIN_NS: u64 = 1_000_000_000;

/// The VIPs have not been removed from the old programs: all flows begin in the old table.
pub(super) const NOT_YET: u64 = u64::MAX;

type Table = HashMap<MapData, FlowKey, Flow>;

/// A flow table that is copied.
pub(crate) struct FlowCopy {
    name: &'static str,
    from: Table,
    to: Successor,
    /// Flows without a packet since this time are not copied: the new table has no room for them.
    oldest_ns: u64,
    /// The new table has all older flows.
    done_ns: u64,
    /// Number of flows that the new table refused.
    lost: usize,
}

impl FlowCopy {
    /// Copies one folder's flow tables into another's: the most recently used flows, if there is not enough room. The table that
    /// flows leave for the other one comes first, in each later step, too, so that none is missed.
    pub(super) fn begin(from: &Maps, to: &Maps) -> Result<Vec<Self>, DatapathError> {
        let mut copies = Vec::new();
        if from.has("opening") {
            copies.push(Self::begin_table("opening", from, to)?);
        }
        copies.push(Self::begin_table("flow", from, to)?);
        Ok(copies)
    }

    fn begin_table(name: &'static str, from: &Maps, to: &Maps) -> Result<Self, DatapathError> {
        let mut copies = Self {
            name,
            from: from.typed(name)?,
            to: Successor {
                flows: to.typed("flow")?,
                opening: to.typed("opening")?,
            },
            oldest_ns: 0,
            done_ns: 0,
            lost: 0,
        };
        let now_ns = clock::boottime_ns();
        let mut seen_ns = Vec::new();
        walk(&copies.from, name, |key: &FlowKey, flow: &Flow| {
            if leads(key, flow, now_ns) {
                seen_ns.push(flow.seen_ns);
            }
            true
        })?;
        let info = copies.to.flows.map().info();
        let info = info.map_err(DatapathError::map("look at", "flow"))?;
        copies.oldest_ns = latest(&mut seen_ns, room(info.max_entries()));
        copies.catch_up(NOT_YET)?;
        Ok(copies)
    }

    /// Copies the flows since the last copy. From `forgotten_ns` on (CLOCK_BOOTTIME), flows begin in the new table.
    pub(super) fn catch_up(&mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        let Self {
            name,
            from,
            to,
            lost,
            ..
        } = self;
        let now_ns = clock::boottime_ns();
        let since_ns = self.done_ns.saturating_sub(WRITTEN_WITHIN_NS);
        let since_ns = since_ns.max(self.oldest_ns);
        walk(from, name, |key: &FlowKey, flow: &Flow| {
            if flow.seen_ns < since_ns || !leads(key, flow, now_ns) {
                return true;
            }
            let mut carry = |key, flow| *lost += usize::from(!to.put(key, flow, forgotten_ns));
            carry(key, flow);
            if flow.is(REPLY) {
                let there = key.reply(flow);
                if let Ok(flow) = from.get(&there, 0) {
                    carry(&there, &flow);
                }
            }
            true
        })?;
        self.done_ns = now_ns;
        Ok(())
    }

    /// Removes flows from the old table that need not be in it: the new programs may use the same addresses and ports for
    /// another connection, whose replies the old programs would translate by the old flow. Of NAT ports the new programs take
    /// only those of which their own table has no flow, so it is enough to remove the flows that are not copied.
    pub(super) fn clear(&mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        let now_ns = clock::boottime_ns();
        self.take_out(forgotten_ns, |key, flow| {
            let is_masqueraded = flow.is(MASQUERADED);
            flow.is(REPLY) && (flow.is(SERVICE) && !is_masqueraded || is_free(key, flow, now_ns))
        })
    }

    /// Moves the rest, when all of it is in the new table: forward flows before replies, so that the end of a connection is
    /// recorded in one table only.
    pub(super) fn hand_over(mut self, forgotten_ns: u64) -> Result<(), DatapathError> {
        self.take_out(forgotten_ns, |_, flow| !flow.is(REPLY))?;
        self.take_out(forgotten_ns, |_, flow| flow.is(REPLY))?;
        if self.lost > 0 {
            tracing::warn!(
                flows = self.lost,
                "some flows could not be copied to the new flow table"
            );
        }
        Ok(())
    }

    /// Moves flows, each with its state at that moment.
    fn take_out(
        &mut self,
        forgotten_ns: u64,
        is_wanted: impl Fn(&FlowKey, &Flow) -> bool,
    ) -> Result<(), DatapathError> {
        let now_ns = clock::boottime_ns();
        let mut wanted = Vec::new();
        walk(&self.from, self.name, |key: &FlowKey, flow: &Flow| {
            if is_wanted(key, flow) {
                wanted.push(*key);
            }
            true
        })?;
        for key in wanted {
            let flow = self.from.get(&key, 0).ok();
            let Some(flow) = flow.filter(|flow| is_wanted(&key, flow)) else {
                continue;
            };
            let has = |key: FlowKey| self.to.flows.get(&key, 0).is_ok();
            let is_copied = has(key) || has(key.reply(&flow));
            if is_copied {
                self.lost += usize::from(!self.to.put(&key, &flow, forgotten_ns));
            } else if leads(&key, &flow, now_ns) {
                // It began after the copy; the next copy includes it.
                continue;
            }
            // A flow that was evicted or replaced meanwhile stays in the old table.
            let removed = remove_if(&mut self.from, &key, |last| {
                is_same(last, &flow) && is_wanted(&key, last)
            });
            if let Some(last) = removed.filter(|last| is_copied && *last != flow) {
                self.lost += usize::from(!self.to.put(&key, &last, forgotten_ns));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for FlowCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowCopy").finish_non_exhaustive()
    }
}

/// Whether a flow is copied, together with its reverse flow. Always both: a table with a forward flow but without its reply
/// flow would break the next connection from the same port. While the old table may have a NAT port's owner, the new one must
/// have it.
fn leads(key: &FlowKey, flow: &Flow, now_ns: u64) -> bool {
    flow.is(FORWARDED | REVOKED) || flow.is(REPLY) && !is_free(key, flow, now_ns)
}

/// Whether the NAT port of a reply flow is free for another connection.
fn is_free(key: &FlowKey, flow: &Flow, now_ns: u64) -> bool {
    flow.is(MASQUERADED) && flow.releases_port(key.protocol(), now_ns)
}

/// The tables of the data path that takes over.
struct Successor {
    flows: Table,
    opening: Table,
}

impl Successor {
    /// Writes the old table's flow, or the merged one, to the new table. Returns whether it succeeded.
    fn put(&mut self, key: &FlowKey, old: &Flow, forgotten_ns: u64) -> bool {
        let begun = self.opening.get(key, 0);
        if begun.is_ok_and(|begun| begun.seen_ns >= forgotten_ns) {
            return true;
        }
        let new = self.flows.get(key, 0).ok();
        match merged(&established(old), new.as_ref(), forgotten_ns) {
            Some(flow) => self.flows.insert(key, flow, 0).is_ok(),
            None => true,
        }
    }
}

/// The flow as an established one.
fn established(flow: &Flow) -> Flow {
    Flow {
        kind: flow.kind & !OPENING,
        open: flow.open & ((1 << EXPECTED_SHIFT) - 1),
        ..*flow
    }
}

/// The flow to write to the new table; none: its entry is right.
fn merged(old: &Flow, new: Option<&Flow>, forgotten_ns: u64) -> Option<Flow> {
    let Some(new) = new else {
        return Some(*old);
    };
    if !is_same(new, old) {
        // Another connection with the same addresses and ports: the later one wins.
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

/// Whether both are flows of one connection, or of connections that are translated alike.
fn is_same(one: &Flow, other: &Flow) -> bool {
    let with_progress = Flow {
        stage: other.stage,
        open: other.open,
        seen_ns: other.seen_ns,
        ..*one
    };
    with_progress == *other
}

/// Number of connections that are copied into a table, of two flows each: new ones need room meanwhile.
fn room(entries_max: u32) -> usize {
    (entries_max - entries_max / 8) as usize / 2
}

/// The time since which no more than `room` connections had a packet.
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
