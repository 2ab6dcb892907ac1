//! Ends flows whose peers vanished without a word, and connections that the kernel's tables have forgotten.

use std::collections::BTreeMap;

use aya::maps::{HashMap, MapData};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{Flow, FlowKey};

use super::counts::Counters;
use super::error::DatapathError;
use super::load::Loaded;

/// Removes flows without a packet for `idle_ns`. A connection counted as open is counted as closed now; so is one that a
/// full table has let go, which would else keep its app awake for ever.
pub(super) fn expire(
    loaded: &mut Loaded,
    counters: &mut Counters,
    now_ns: u64,
    idle_ns: u64,
) -> Result<usize, DatapathError> {
    let counted = counters.open_ones();
    let mut remembered = BTreeMap::new();
    let idle = walk(loaded, &mut remembered, |flow| {
        now_ns.saturating_sub(flow.seen_ns) > idle_ns
    })?;
    sockets(loaded, &mut remembered)?;
    for (vip, before) in counted {
        let held = remembered.get(&vip).copied().unwrap_or(0);
        if let Some(after) = counters.sum(vip).filter(|_| before.open() > held)
            && let forgotten @ 1.. = forgotten(&before, &after, held)
        {
            tracing::debug!(vip, forgotten, "connections had no room in the tables");
            counters.expire(vip, forgotten, now_ns)?;
        }
    }
    let mut flows = table(loaded)?;
    let mut ended = 0;
    for (key, flow) in idle {
        // One that the kernel removed meanwhile was not idle, or is no longer ours to count.
        if flows.remove(&key).is_ok() {
            ended += 1;
            if flow.open == 1 {
                counters.expire(flow.vip, 1, now_ns)?;
            }
        }
    }
    Ok(ended)
}

/// How many connections are counted as open and remembered by no table, at least: `held` were found on a walk between
/// the two sums, and what was closed meanwhile may have escaped it.
fn forgotten(before: &Counts, after: &Counts, held: u64) -> u64 {
    let closed_meanwhile = after.closed.wrapping_sub(before.closed);
    before
        .open()
        .saturating_sub(held.saturating_add(closed_meanwhile))
}

/// Counts the open flows of each VIP, and returns those that are idle: another flow may take a removed one's place in a
/// walk, so what is found is removed after it.
fn walk(
    loaded: &mut Loaded,
    remembered: &mut BTreeMap<u32, u64>,
    is_idle: impl Fn(&Flow) -> bool,
) -> Result<Vec<(FlowKey, Flow)>, DatapathError> {
    let mut idle = Vec::new();
    for (key, flow) in table(loaded)?.iter().filter_map(Result::ok) {
        if flow.open == 1 {
            *remembered.entry(flow.vip).or_default() += 1;
        }
        if is_idle(&flow) {
            idle.push((key, flow));
        }
    }
    Ok(idle)
}

/// Counts the sockets of pods that are connected to each VIP.
fn sockets(loaded: &Loaded, remembered: &mut BTreeMap<u32, u64>) -> Result<(), DatapathError> {
    let sockets: HashMap<_, u64, u32> =
        HashMap::try_from(loaded.map("socket")?).map_err(DatapathError::map("open", "socket"))?;
    for (_, vip) in sockets.iter().filter_map(Result::ok) {
        *remembered.entry(vip).or_default() += 1;
    }
    Ok(())
}

fn table(loaded: &mut Loaded) -> Result<HashMap<&mut MapData, FlowKey, Flow>, DatapathError> {
    HashMap::try_from(loaded.map_mut("flow")?).map_err(DatapathError::map("open", "flow"))
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
    fn only_what_no_table_holds_is_forgotten() {
        assert_eq!(forgotten(&counts(9, 2), &counts(9, 2), 7), 0);
        assert_eq!(forgotten(&counts(9, 2), &counts(9, 2), 4), 3);
    }

    #[test]
    fn what_opens_or_closes_during_the_walk_is_never_taken_for_forgotten() {
        let before = counts(9, 2);
        assert_eq!(forgotten(&before, &counts(12, 2), 10), 0, "three opened");
        assert_eq!(forgotten(&before, &counts(9, 5), 4), 0, "three closed");
        assert_eq!(forgotten(&before, &counts(9, 5), 7), 0, "seen, then closed");
    }
}
