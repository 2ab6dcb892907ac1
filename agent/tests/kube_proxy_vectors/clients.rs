//! What is on record of clients that keep their backends: by the scenario, and by the programs themselves.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use aya::maps::{HashMap as BpfHashMap, MapData};
use dormouse_agent_datapath::Pinned;
use dormouse_ebpf::decide::{Choice, Tables, record_affinity};
use dormouse_ebpf::maps::{Affinity, AffinityKey, join};

use crate::world::{address, octets};

pub(crate) struct Clients {
    /// The kernel's map.
    affinity: BpfHashMap<MapData, AffinityKey, Affinity>,
    /// What the scenario says; the programs note what they like beside it.
    bound: HashMap<AffinityKey, Affinity>,
}

impl Clients {
    pub(crate) fn new(affinity: BpfHashMap<MapData, AffinityKey, Affinity>) -> Self {
        Self {
            affinity,
            bound: HashMap::new(),
        }
    }

    /// Begins another scenario. Entries of the one before stay in the kernel, as on a real node.
    pub(crate) fn begin(&mut self) {
        self.bound.clear();
    }

    /// The client's affinity entry after the choice, as the kernel would have it.
    pub(crate) fn after(&self, maps: &Pinned, client: IpAddr, choice: &Choice) -> Affinity {
        let before = self.bound.get(&key(client, choice)).copied();
        record_affinity(maps, before, choice, maps.now_ns())
    }

    /// Records a client's affinity.
    pub(crate) fn bind(&mut self, client: IpAddr, choice: &Choice, affinity: Affinity) {
        self.bound.insert(key(client, choice), affinity);
        self.restore(client, choice);
    }

    /// Removes a client's affinity entry until it is restored.
    pub(crate) fn hide(&mut self, client: IpAddr, choice: &Choice) {
        let _ = self.affinity.remove(&key(client, choice));
    }

    /// Makes the record what the scenario says.
    pub(crate) fn restore(&mut self, client: IpAddr, choice: &Choice) {
        let key = key(client, choice);
        match self.bound.get(&key) {
            Some(affinity) => self.affinity.insert(key, affinity, 0).unwrap(),
            None => self.hide(client, choice),
        }
    }

    /// Time stands still within a scenario: what is on record was noted just now.
    pub(crate) fn refresh(&mut self, now_ns: u64) {
        for (key, affinity) in &mut self.bound {
            let passed = now_ns - affinity.seen_ns[0].max(affinity.seen_ns[1]);
            let fresh = |seen: u64| if seen == 0 { 0 } else { seen + passed };
            affinity.seen_ns = affinity.seen_ns.map(fresh);
            self.affinity.insert(key, affinity, 0).unwrap();
        }
    }

    /// Whether the kernel has an affinity entry of the client for the backend.
    pub(crate) fn is_noted(
        &self,
        maps: &Pinned,
        (client, choice): (IpAddr, &Choice),
        target: SocketAddr,
    ) -> Result<(), String> {
        let noted = self.affinity.get(&key(client, choice), 0);
        let noted = noted.map_err(|error| format!("no record of the client: {error}"))?;
        let is_it = |place: usize| {
            let backend = maps.backend(noted.ids[place])?;
            let address = address(join(&maps.prefix(backend.prefix)?, backend.host));
            let is_it = SocketAddr::new(address, backend.port) == target
                && u32::from(backend.generation) == noted.generations[place];
            is_it.then_some(())
        };
        let found = (0..2).find_map(is_it);
        found.ok_or_else(|| format!("on record for {noted:?}, not for {target}"))
    }
}

fn key(client: IpAddr, choice: &Choice) -> AffinityKey {
    AffinityKey {
        client: octets(client),
        group: choice.group,
    }
}
