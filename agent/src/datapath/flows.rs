//! Ends flows whose peers vanished without a word.

use aya::maps::HashMap;
use dormouse_ebpf::flow::{Flow, FlowKey};

use super::counts::Counters;
use super::error::DatapathError;
use super::load::Loaded;

/// Removes flows without a packet for `idle_ns`; a connection counted as open is counted as closed now.
pub(super) fn expire(
    loaded: &mut Loaded,
    counters: &mut Counters,
    now_ns: u64,
    idle_ns: u64,
) -> Result<usize, DatapathError> {
    let mut flows: HashMap<_, FlowKey, Flow> =
        HashMap::try_from(loaded.map_mut("flow")?).map_err(DatapathError::map("open", "flow"))?;
    // Another flow may take a removed one's place in the walk, so what is found is removed after it.
    let idle: Vec<(FlowKey, Flow)> = flows
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, flow)| now_ns.saturating_sub(flow.seen_ns) > idle_ns)
        .collect();
    let mut ended = 0;
    for (key, flow) in idle {
        // One that the kernel removed meanwhile was not idle, or is no longer ours to count.
        if flows.remove(&key).is_ok() {
            ended += 1;
            if flow.open == 1 {
                counters.expire(flow.vip, now_ns)?;
            }
        }
    }
    Ok(ended)
}
