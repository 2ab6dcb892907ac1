//! The slots that one service port has: one for each answer that it gives.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{Frontend, Policy, PortId, ServicePort};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::service::Route;

/// What a slot answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The cluster IP. Its set lists all backends of the group, and its number names the group.
    Internal,
    /// The other addresses.
    External,
    /// Pods and the node at the other addresses, where policy Local tells them apart.
    Inside,
    /// The cluster IP as the address of a load balancer too, whose source ranges bind it.
    Guarded,
    /// A load balancer's addresses that nobody may use.
    Refused,
}

impl Role {
    pub(super) const ALL: [Self; 5] = [
        Self::Internal,
        Self::External,
        Self::Inside,
        Self::Guarded,
        Self::Refused,
    ];

    /// The role of a slot that the maps hold.
    pub(super) fn of(route: Route) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|role| *role as u8 == route.share)
            .unwrap_or(Self::Internal)
    }

    /// What answers at a frontend, and whether source ranges come before it.
    pub(super) fn at(frontend: &Frontend<'_>) -> (Self, bool) {
        let ranges = frontend.port.addresses.source_ranges.as_ref();
        let ranges = ranges.filter(|_| frontend.limited);
        match (ranges, frontend.kind) {
            (Some(ranges), _) if ranges.is_empty() => (Self::Refused, false),
            (Some(_), Kind::ClusterIp) => (Self::Guarded, true),
            (None, Kind::ClusterIp) => (Self::Internal, false),
            (ranges, _) => (Self::External, ranges.is_some()),
        }
    }

    /// Whether a service port can have use for it, whoever wins its addresses.
    pub(super) fn is_of(self, port: &ServicePort) -> bool {
        let addresses = &*port.addresses;
        let ranges = addresses.source_ranges.as_ref();
        let balanced = |address: IpAddr| addresses.load_balancer_ips.contains(&address);
        match self {
            Self::Internal => true,
            Self::External => port.is_external(),
            Self::Inside => port.is_external() && port.external == Policy::Local,
            Self::Guarded => {
                ranges.is_some_and(|ranges| !ranges.is_empty()) && balanced(addresses.cluster_ip)
            }
            Self::Refused => {
                ranges.is_some_and(|ranges| ranges.is_empty())
                    && !addresses.load_balancer_ips.is_empty()
            }
        }
    }
}

/// The slots of a service port, by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    slots: [u32; Role::ALL.len()],
    /// It has backends from before, of which nobody has spoken yet.
    pub(super) unsettled: bool,
}

impl Group {
    /// No slots yet.
    pub(super) const NONE: Self = Self {
        slots: [NO_SLOT; Role::ALL.len()],
        unsettled: false,
    };

    pub(super) fn slot(&self, role: Role) -> Option<u32> {
        let slot = self.slots[role as usize];
        (slot != NO_SLOT).then_some(slot)
    }

    pub(super) fn set(&mut self, role: Role, slot: Option<u32>) {
        self.slots[role as usize] = slot.unwrap_or(NO_SLOT);
    }

    /// All its slots; the one that all depends on comes last.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let slots = self.slots.into_iter().rev();
        slots.filter(|slot| *slot != NO_SLOT)
    }
}

/// The groups of service ports, by their ids.
#[derive(Debug, Default)]
pub(super) struct Groups(HashMap<Owner, Group>);

/// A service port by its id. It is kept anyway: its id by itself would be most of what a group takes.
#[derive(Debug)]
struct Owner(Arc<ServicePort>);

impl Borrow<PortId> for Owner {
    fn borrow(&self) -> &PortId {
        &self.0.id
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Owner {}

impl Groups {
    pub(super) fn get(&self, id: &PortId) -> Option<Group> {
        self.0.get(id).copied()
    }

    /// Gives a service port a group; returns the one that it had.
    pub(super) fn put(&mut self, port: &Arc<ServicePort>, group: Group) -> Option<Group> {
        // With the key, which else would keep the service port as it was.
        let old = self.0.remove(&port.id);
        self.0.insert(Owner(Arc::clone(port)), group);
        old
    }

    pub(super) fn take(&mut self, id: &PortId) -> Option<Group> {
        self.0.remove(id)
    }

    /// Makes room for so many in all.
    pub(super) fn reserve(&mut self, len: usize) {
        self.0.reserve(len.saturating_sub(self.0.len()));
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.values()
    }

    /// The slots of all.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.iter().flat_map(Group::slots)
    }
}
