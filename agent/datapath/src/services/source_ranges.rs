//! Source ranges of load balancers, by slot (`loadBalancerSourceRanges`).

use std::collections::HashMap;

use dormouse_agent_services::{Node, Prefix, ServicePort};
use dormouse_ebpf::maps::SOURCE_RANGES_MAX;

use crate::arrays::octets;
use crate::error::DatapathError;
use crate::write_through::{KernelMap, Range, WriteThrough};

/// The trie, and the ranges of each slot.
#[derive(Debug)]
pub(super) struct SourceRanges {
    map: WriteThrough<Range, u32>,
    slots: HashMap<u32, Vec<Range>>,
}

impl SourceRanges {
    /// Reads what the previous agent left.
    pub(super) fn open(map: Box<dyn KernelMap<Range, u32>>) -> Result<Self, DatapathError> {
        let map = WriteThrough::open("source_range", map, SOURCE_RANGES_MAX)?;
        let mut slots: HashMap<u32, Vec<Range>> = HashMap::new();
        for (range, _) in map.iter() {
            let slot = u32::from_be_bytes(range.1);
            slots.entry(slot).or_default().push(*range);
        }
        Ok(Self { map, slots })
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The slots with source ranges.
    pub(super) fn slots(&self) -> Vec<u32> {
        self.slots.keys().copied().collect()
    }

    /// Adds source ranges of a slot; [`SourceRanges::restrict`] removes the others, when no word refers to the old slot any more.
    pub(super) fn admit(&mut self, slot: u32, ranges: &[Range]) -> Result<(), DatapathError> {
        for range in ranges {
            if self.map.put(*range, 1)? {
                self.slots.entry(slot).or_default().push(*range);
            }
        }
        Ok(())
    }

    /// Removes all source ranges of a slot except these.
    pub(super) fn restrict(&mut self, slot: u32, ranges: &[Range]) {
        let Some(known) = self.slots.get_mut(&slot) else {
            return;
        };
        let map = &mut self.map;
        known.retain(|range| ranges.contains(range) || !map.take(range));
        if known.is_empty() {
            self.slots.remove(&slot);
        }
    }
}

/// The source ranges of a load balancer's addresses in this slot.
pub(super) fn ranges(node: &Node, port: &ServicePort, slot: u32) -> Vec<Range> {
    let addresses = &*port.addresses;
    let Some(prefixes) = &addresses.source_ranges else {
        return Vec::new();
    };
    if addresses.load_balancer_ips.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<Prefix> = prefixes.to_vec();
    let primary = node.primary(port.id.family);
    // A node that is admitted may connect to the VIP from a socket: then the VIP is the source address.
    if primary.is_some_and(|primary| prefixes.iter().any(|prefix| prefix.contains(primary))) {
        all.extend(
            addresses
                .load_balancer_ips
                .iter()
                .map(|vip| Prefix::single(*vip)),
        );
    }
    all.sort_unstable();
    all.dedup();
    all.iter().map(|prefix| layout(prefix, slot)).collect()
}

fn layout(prefix: &Prefix, slot: u32) -> Range {
    let mapped = if prefix.address().is_ipv4() { 96 } else { 0 };
    let length = 32 + mapped + u32::from(prefix.length());
    (length, slot.to_be_bytes(), octets(prefix.address()))
}
