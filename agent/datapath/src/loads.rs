//! Connection counts of backends: read from the map, and corrected for connections whose end the programs did not see.

use std::collections::HashMap;
use std::net::IpAddr;

use dormouse_ebpf::flow::{Flow, LOADED};
use dormouse_ebpf::load::{Load, Tally};
use dormouse_ebpf::maps::{BACKENDS_MAX, join};

use super::arrays::Arrays;

/// A backend of a slot, with its connection counts on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendCount {
    /// Id; it can be reused for another backend later.
    pub id: u32,
    /// Backend address.
    pub address: IpAddr,
    /// Backend port.
    pub port: u16,
    /// Weight for new connections; 0: no new ones (terminating).
    pub weight: u16,
    /// Connections since the backend got its id.
    pub load: Load,
}

/// The backends of a slot, terminating ones last.
pub(super) fn of_slot(arrays: &Arrays, slot: u32) -> Vec<BackendCount> {
    let (route, set) = arrays.slot(slot);
    if !route.present {
        return Vec::new();
    }
    let count = |id| {
        let backend = arrays.backend(id)?;
        let address = join(&arrays.upper(backend.prefix)?, backend.host);
        Some(BackendCount {
            id,
            address: IpAddr::from(address).to_canonical(),
            port: backend.port,
            weight: backend.weight,
            load: arrays.load(id),
        })
    };
    arrays.ids(set).filter_map(count).collect()
}

/// Counts the end of a flow that was removed from the table.
pub(super) fn flow_ended(arrays: &Arrays, flow: &Flow) {
    if flow.open & LOADED != 0 && is_current(arrays, flow.backend, flow.generation) {
        arrays.end_flows(flow.backend, 1);
    }
}

fn is_current(arrays: &Arrays, id: u32, generation: u32) -> bool {
    arrays
        .backend(id)
        .is_some_and(|backend| u32::from(backend.generation) == generation)
}

/// Detects flows that a full (LRU) table evicted: their backends would seem loaded for ever.
#[derive(Debug)]
pub(super) struct Audit {
    /// Backends with open flows before the walk: generation, counts, and number of flows found by the walk.
    backends: HashMap<u32, (u32, Tally, u32)>,
}

impl Audit {
    /// Takes the counts before the walk over the table.
    pub(super) fn begin(arrays: &Arrays) -> Self {
        let loaded = |id| {
            let flows = arrays.load(id).flows;
            let generation = u32::from(arrays.backend(id)?.generation);
            (flows.open() > 0).then_some((id, (generation, flows, 0)))
        };
        Self {
            backends: (0..BACKENDS_MAX).filter_map(loaded).collect(),
        }
    }

    /// Adds a flow that the walk found.
    pub(super) fn holds(&mut self, flow: &Flow) {
        if flow.open & LOADED != 0
            && let Some((generation, _, held)) = self.backends.get_mut(&flow.backend)
            && *generation == flow.generation
        {
            *held += 1;
        }
    }

    /// Counts the end of flows that were open before the walk and are not in the table. Returns their number. Flows that ended
    /// during the walk may be among the missing ones; that many are left for the next audit.
    pub(super) fn finish(self, arrays: &Arrays) -> u64 {
        let mut forgotten = 0;
        for (id, (generation, before, held)) in self.backends {
            let meanwhile = arrays.load(id).flows.ended.wrapping_sub(before.ended);
            let lost = before.open().saturating_sub(held.saturating_add(meanwhile));
            if lost > 0 && is_current(arrays, id, generation) {
                arrays.end_flows(id, lost);
                forgotten += u64::from(lost);
            }
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_ebpf::maps::Backend;

    const ID: u32 = 7;

    fn arrays(begun: u32) -> Arrays {
        let arrays = Arrays::anonymous().unwrap();
        let backend = Backend {
            generation: 3,
            ..Backend::default()
        };
        arrays.write_backend(ID, &backend);
        arrays.loads.add(ID as usize * 2, begun.into());
        arrays
    }

    fn flow(generation: u32) -> Flow {
        Flow {
            backend: ID,
            generation,
            open: LOADED,
            ..Flow::default()
        }
    }

    fn open(arrays: &Arrays) -> u32 {
        arrays.load(ID).flows.open()
    }

    #[test]
    fn only_flows_of_the_generation_that_has_the_id_are_ended() {
        let arrays = arrays(2);
        flow_ended(&arrays, &flow(2));
        let closed = Flow { open: 0, ..flow(3) };
        flow_ended(&arrays, &closed);
        assert_eq!(open(&arrays), 2);
        flow_ended(&arrays, &flow(3));
        assert_eq!(open(&arrays), 1);
    }

    #[test]
    fn flows_missing_in_the_table_have_ended() {
        let arrays = arrays(5);
        let mut audit = Audit::begin(&arrays);
        for generation in [3, 3, 2] {
            audit.holds(&flow(generation));
        }
        assert_eq!(audit.finish(&arrays), 3);
        assert_eq!(open(&arrays), 2);
    }

    #[test]
    fn flows_that_begin_or_end_during_the_walk_are_not_counted_as_evicted() {
        let arrays = arrays(5);
        let mut audit = Audit::begin(&arrays);
        arrays.loads.add(ID as usize * 2, 10);
        arrays.end_flows(ID, 3);
        audit.holds(&flow(3));
        audit.holds(&flow(3));
        assert_eq!(audit.finish(&arrays), 0);
    }

    #[test]
    fn the_counts_of_a_reused_id_are_not_changed() {
        let arrays = arrays(5);
        let audit = Audit::begin(&arrays);
        let next = Backend {
            generation: 4,
            ..Backend::default()
        };
        arrays.clear_load(ID);
        arrays.write_backend(ID, &next);
        arrays.loads.add(ID as usize * 2, 1);
        assert_eq!(audit.finish(&arrays), 0);
        assert_eq!(open(&arrays), 1);
    }
}
