//! Removal of flows while programs use the table.

use std::os::fd::AsFd as _;

use aya::maps::{HashMap, IterableMap as _, MapData};
use dormouse_agent_sys::bpf;
use dormouse_ebpf::flow::{Flow, FlowKey};

/// In the flags of an insertion: only if the key has no entry.
pub(super) const NOEXIST: u64 = 1;

/// Removes a flow if it is wanted, and returns it as it was then. A program may put another connection's flow in its place at
/// any moment: what was removed is looked at once more, and such a flow is put back.
pub(super) fn remove_if(
    flows: &mut HashMap<MapData, FlowKey, Flow>,
    key: &FlowKey,
    is_wanted: impl Fn(&Flow) -> bool,
) -> Option<Flow> {
    flows.get(key, 0).ok().filter(|flow| is_wanted(flow))?;
    let removed = bpf::take(flows.map().fd().as_fd(), key).ok()?;
    if is_wanted(&removed) {
        return Some(removed);
    }
    // If yet another one has come, that is the one in use.
    let _ = flows.insert(key, removed, NOEXIST);
    None
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    type Table = HashMap<MapData, FlowKey, Flow>;

    const IDLE: u64 = 7;
    const BEGUN: u64 = 9;

    fn flow(seen_ns: u64) -> Flow {
        Flow {
            seen_ns,
            ..Flow::default()
        }
    }

    /// A table with the idle flow, as the agent and as programs have it.
    fn table(key: FlowKey) -> (Table, RefCell<Table>) {
        let mut flows = Table::create(8, 0).unwrap();
        flows.insert(key, flow(IDLE), 0).unwrap();
        let fd = flows.map().fd().as_fd().try_clone_to_owned().unwrap();
        let same = aya::maps::Map::from_map_data(MapData::from_fd(fd).unwrap()).unwrap();
        (flows, RefCell::new(same.try_into().unwrap()))
    }

    #[test]
    fn only_a_wanted_flow_is_removed() {
        let key = FlowKey::default();
        let (mut flows, _) = table(key);
        assert_eq!(
            remove_if(&mut flows, &key, |found| *found != flow(IDLE)),
            None
        );
        assert_eq!(flows.get(&key, 0).unwrap(), flow(IDLE));
        let removed = remove_if(&mut flows, &key, |found| *found == flow(IDLE));
        assert_eq!(removed, Some(flow(IDLE)));
        assert!(flows.get(&key, 0).is_err());
        assert_eq!(remove_if(&mut flows, &key, |_| true), None);
    }

    #[test]
    fn a_flow_that_takes_the_place_of_a_wanted_one_stays() {
        let key = FlowKey::default();
        let (mut flows, programs) = table(key);
        let removed = remove_if(&mut flows, &key, |found| {
            let is_wanted = *found == flow(IDLE);
            if is_wanted {
                // Another connection begins when the flow has been looked at.
                programs.borrow_mut().insert(key, flow(BEGUN), 0).unwrap();
            }
            is_wanted
        });
        assert_eq!(removed, None);
        assert_eq!(flows.get(&key, 0).unwrap(), flow(BEGUN));
    }

    #[test]
    fn the_last_state_of_a_removed_flow_is_returned() {
        let key = FlowKey::default();
        let (mut flows, programs) = table(key);
        let removed = remove_if(&mut flows, &key, |found| {
            if *found == flow(IDLE) {
                programs.borrow_mut().insert(key, flow(BEGUN), 0).unwrap();
            }
            true
        });
        assert_eq!(removed, Some(flow(BEGUN)));
    }
}
