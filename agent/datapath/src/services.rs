//! Kubernetes Services in the maps: the answers of each service port, its backends, and its frontends.
//!
//! A service port has a group of slots, one per answer. A slot contains the group's number where an app's has its wake
//! generation, and its role where an app's has a share. So the maps alone show which slots belong together, and a new agent
//! adopts the group to which a service port's VIPs point. A slot gets another role or group only after a grace period.
//!
//! Reading order: the roles of slots ([`group`]), their content ([`backend_set`]), the slots of cluster IPs ([`layout`]), lookups
//! by address ([`frontends`], [`source_ranges`]), one service port ([`port`]), VIPs and their winners ([`vips`]), and the adoption
//! of the previous agent's slots ([`adopt`]).

mod adopt;
mod backend_set;
mod frontends;
mod group;
pub(super) mod layout;
mod port;
mod source_ranges;
#[cfg(test)]
mod tests;
mod vips;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use aya::maps::HashMap;
use aya::maps::lpm_trie::LpmTrie;
use dormouse_agent_services::change::PortChange;
use dormouse_agent_services::{Changes, Family, Node, PortId, Protocol, ServicePort, Services};
use dormouse_ebpf::config::Range;
use dormouse_ebpf::maps::{
    FRONTEND_LOCAL_ADDRESS, FRONTENDS_MAX, FrontendKey, SLOT_OPTIONS_MAX, SOURCE_RANGES_MAX,
    SlotOptions, SourceRange,
};
use dormouse_ebpf::service::{SLOTS_MAX, VIPS_MAX};

use super::arrays::{Arrays, octets};
use super::error::DatapathError;
use super::ids::Ids;
use super::load::Loaded;
use super::pool::{Key, Member, Pool};
use super::write_through::{self, KernelMap, WriteThrough};
use adopt::Leftover;
use backend_set::BackendSet;
use frontends::{Frontends, address_key};
use group::{Group, Groups};
use source_ranges::SourceRanges;

/// Maximum number of service ports without room that are retried at a time.
const RETRIES_MAX: usize = 64;

/// The result of applying changes.
#[derive(Debug, Default)]
pub struct Served {
    /// Service ports that could not be programmed, and the reasons: each is unchanged, or not served at all. They are retried
    /// with the next changes.
    pub shed: Vec<(PortId, DatapathError)>,
}

impl Served {
    fn shed(&mut self, port: &PortId, error: DatapathError) {
        self.shed.push((port.clone(), error));
    }

    /// Adds the result of a retry; `still`: whether a service port has no room yet.
    pub(super) fn retried(&mut self, again: Self, still: impl Fn(&PortId) -> bool) {
        self.shed.extend(again.shed);
        self.shed.retain(|(port, _)| still(port));
        self.shed.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.shed.dedup_by(|(a, _), (b, _)| a == b);
    }
}

/// The Services to program, the arrays, and the pool that apps use as well.
#[derive(Clone, Copy)]
pub(super) struct Ledger<'a> {
    pub(super) services: &'a Services,
    pub(super) arrays: &'a Arrays,
    pub(super) pool: &'a Pool,
}

/// The maps of Services that are written by system calls.
pub(super) struct Calls {
    pub(super) frontends: Box<dyn KernelMap<FrontendKey, u32>>,
    pub(super) slot_options: Box<dyn KernelMap<u32, SlotOptions>>,
    pub(super) source_ranges: Box<dyn KernelMap<write_through::Range, u32>>,
}

impl Calls {
    /// The kernel's maps.
    pub(super) fn take(loaded: &mut Loaded) -> Result<Self, DatapathError> {
        let frontends: HashMap<_, FrontendKey, u32> =
            HashMap::try_from(loaded.take("frontend")?)
                .map_err(DatapathError::map("open", "frontend"))?;
        let slot_options: HashMap<_, u32, SlotOptions> =
            HashMap::try_from(loaded.take("slot_option")?)
                .map_err(DatapathError::map("open", "slot_option"))?;
        let source_ranges: LpmTrie<_, SourceRange, u32> =
            LpmTrie::try_from(loaded.take("source_range")?)
                .map_err(DatapathError::map("open", "source_range"))?;
        Ok(Self {
            frontends: Box::new(frontends),
            slot_options: Box::new(slot_options),
            source_ranges: Box::new(source_ranges),
        })
    }
}

/// The part of the maps that belongs to Services.
#[derive(Debug)]
pub(super) struct Registry {
    /// The ranges of which each address has its own slot (direct slots).
    direct: Vec<Range>,
    /// The slots beyond the apps'; those of direct ranges count as used.
    slots: Ids,
    groups: Groups,
    /// The slots that the previous agent left.
    leftover: Option<Leftover>,
    settled: bool,
    /// The cluster's facts are in force.
    pub(super) in_cluster: bool,
    frontends: Frontends,
    slot_options: WriteThrough<u32, SlotOptions>,
    source_ranges: SourceRanges,
    shed: BTreeSet<PortId>,
    /// The node's addresses that were matched with source ranges.
    primary: [Option<IpAddr>; 2],
    /// Reused buffers.
    had: Vec<Member>,
    /// The backends of the current service port whose flows get a new decision.
    silent: Vec<Key>,
    ids: Vec<u32>,
    backends: BackendSet,
}

impl Registry {
    /// Reads what the previous agent left.
    pub(super) fn open(
        arrays: &Arrays,
        calls: Calls,
        direct: &[Range],
    ) -> Result<Self, DatapathError> {
        let mut registry = Self {
            direct: Vec::new(),
            slots: Ids::new(SLOTS_MAX - VIPS_MAX),
            groups: Groups::default(),
            leftover: None,
            settled: false,
            in_cluster: false,
            frontends: Frontends::open(calls.frontends)?,
            slot_options: WriteThrough::open("slot_option", calls.slot_options, SLOT_OPTIONS_MAX)?,
            source_ranges: SourceRanges::open(calls.source_ranges)?,
            shed: BTreeSet::new(),
            primary: [None; 2],
            had: Vec::new(),
            silent: Vec::new(),
            ids: Vec::new(),
            backends: BackendSet::default(),
        };
        registry.record_leftover(arrays);
        registry.set_direct(direct);
        Ok(registry)
    }

    /// The slots of the service ranges; `low` is the first index that may be used below the apps' end.
    pub(super) fn layout(&self, node: &Node, low: u32) -> Vec<Range> {
        let free = |from: u32, until: u32| {
            (from..until).all(|slot| self.is_direct(slot) || !self.slots.has(slot - VIPS_MAX))
        };
        layout::place(&node.service_ranges, &self.direct, low, free)
    }

    /// Sets the active ranges.
    pub(super) fn set_direct(&mut self, direct: &[Range]) {
        self.direct = direct.to_vec();
        for range in direct.iter().filter(|range| range.base >= VIPS_MAX) {
            for slot in range.base..layout::end(range) {
                self.slots.mark(slot - VIPS_MAX);
            }
        }
    }

    /// Writes the node's local addresses.
    pub(super) fn set_local(
        &mut self,
        arrays: &Arrays,
        addresses: &[IpAddr],
    ) -> Result<(), DatapathError> {
        for address in addresses {
            let key = address_key(*address, FRONTEND_LOCAL_ADDRESS);
            self.frontends.set(arrays, key, Some(1))?;
        }
        for key in self.frontends.keys(FRONTEND_LOCAL_ADDRESS) {
            if !addresses
                .iter()
                .any(|address| octets(*address) == key.address)
            {
                self.frontends.set(arrays, key, None)?;
            }
        }
        Ok(())
    }

    /// Applies changes: new rows before the words that refer to them, and removals after the words that referred to them.
    pub(super) fn serve(&mut self, ledger: Ledger<'_>, changes: &Changes) -> Served {
        let mut served = Served::default();
        let mut retired = Vec::new();
        self.groups.reserve(changes.ports.len());
        for change in &changes.ports {
            if let Some(port) = change.after() {
                self.silent = silent(change);
                self.try_port(ledger, port, &mut retired, &mut served);
                self.silent.clear();
            } else if let Some(group) = change.before().and_then(|old| self.leave(&old.id)) {
                retired.push(group);
            }
        }
        self.follow_primary(ledger, &mut served);
        for vip in &changes.vips {
            self.resolve(ledger, vip, &mut retired, &mut served);
        }
        for group in retired {
            self.retire(ledger, group);
        }
        for change in &changes.ports {
            let ports = change.before().into_iter().chain(change.after());
            for port in ports {
                self.mark_addresses(ledger.arrays, ledger.services, port, &mut served);
            }
        }
        self.frontends.tidy(ledger.arrays);
        served
    }

    /// Retries service ports that had no room.
    pub(super) fn retry(&mut self, ledger: Ledger<'_>) -> Served {
        let mut served = Served::default();
        let services = ledger.services;
        let again: Vec<PortId> = self.shed.iter().take(RETRIES_MAX).cloned().collect();
        for id in again {
            self.shed.remove(&id);
            let mut ports = services.ports_of(&id.service).iter();
            if let Some(port) = ports.find(|port| port.id == id) {
                self.serve_again(ledger, port, &mut served);
            }
        }
        served
    }

    /// Whether any service port has no room.
    pub(super) fn has_shed(&self) -> bool {
        !self.shed.is_empty()
    }

    /// Whether this service port has no room.
    pub(super) fn is_shed(&self, port: &PortId) -> bool {
        self.shed.contains(port)
    }

    /// Programs a service port and resolves all its VIPs again.
    fn serve_again(&mut self, ledger: Ledger<'_>, port: &Arc<ServicePort>, served: &mut Served) {
        let mut retired = Vec::new();
        self.try_port(ledger, port, &mut retired, served);
        for vip in ledger.services.vips_of(port) {
            self.resolve(ledger, &vip, &mut retired, served);
        }
        for group in retired {
            self.retire(ledger, group);
        }
        self.mark_addresses(ledger.arrays, ledger.services, port, served);
    }

    fn try_port(
        &mut self,
        ledger: Ledger<'_>,
        port: &Arc<ServicePort>,
        retired: &mut Vec<Group>,
        served: &mut Served,
    ) {
        let outcome = if vips::wins_any(ledger.services, port) {
            self.mark_backends(ledger.arrays, ledger.services, port)
                .and_then(|()| self.serve_port(ledger, port, retired))
        } else {
            // No word refers to it, so none of it is in the maps.
            retired.extend(self.leave(&port.id));
            Ok(())
        };
        if let Err(error) = outcome {
            self.shed.insert(port.id.clone());
            served.shed(&port.id, error);
        }
    }

    /// Removes a service port that is no longer served. Returns its slots, if it has any.
    fn leave(&mut self, id: &PortId) -> Option<Group> {
        self.shed.remove(id);
        self.groups.take(id)
    }

    /// Matches all source ranges again if the node's primary address changed, because they may contain it.
    fn follow_primary(&mut self, ledger: Ledger<'_>, served: &mut Served) {
        let services = ledger.services;
        let primary = Family::ALL.map(|family| services.node().primary(family));
        if std::mem::replace(&mut self.primary, primary) == primary {
            return;
        }
        let ranged = services
            .ports()
            .filter(|port| port.addresses.source_ranges.is_some());
        for port in ranged {
            if self.groups.get(&port.id).is_some() {
                self.serve_again(ledger, port, served);
            }
        }
    }

    /// The direct slot of an address.
    fn direct_slot(&self, address: IpAddr) -> Option<u32> {
        let address = octets(address);
        let mut ranges = self.direct.iter();
        ranges.find_map(|range| range.index_of(&address, SLOTS_MAX))
    }

    fn is_direct(&self, slot: u32) -> bool {
        self.range_of(slot).is_some()
    }

    fn range_of(&self, slot: u32) -> Option<&Range> {
        let mut ranges = self.direct.iter();
        ranges.find(|range| (range.base..layout::end(range)).contains(&slot))
    }

    /// Used entries and capacity of each map.
    pub(super) fn fill(&self) -> [(&'static str, usize, usize); 4] {
        let reserved: u32 = self
            .direct
            .iter()
            .filter(|range| range.base >= VIPS_MAX)
            .map(|range| layout::end(range) - range.base)
            .sum();
        let used = self.slots.used().saturating_sub(reserved);
        let all = SLOTS_MAX - VIPS_MAX - reserved;
        [
            ("svc", used as usize, all as usize),
            ("frontend", self.frontends.len(), FRONTENDS_MAX as usize),
            (
                "slot_option",
                self.slot_options.len(),
                SLOT_OPTIONS_MAX as usize,
            ),
            (
                "source_range",
                self.source_ranges.len(),
                SOURCE_RANGES_MAX as usize,
            ),
        ]
    }
}

/// The backends of a UDP port that are ready but not serving: with each change, their flows get a new decision, as in
/// kube-proxy. With session affinity, clients would get the same backend again.
fn silent(change: &PortChange) -> Vec<Key> {
    let PortChange::Replaced { new, .. } = change else {
        return Vec::new();
    };
    if new.id.protocol != Protocol::Udp || new.affinity_s.is_some() {
        return Vec::new();
    }
    let silent = new.backends.iter().filter(|backend| !backend.serving);
    silent
        .map(|backend| (octets(backend.address), backend.port))
        .collect()
}
