//! The group of a service port: one slot for each of its answers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{Frontend, Policy, PortId, ServicePort};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::service::{self, Route};

/// The role of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The cluster IP. Its set contains all backends of the group, and its index is the group's number.
    Internal,
    /// External frontends.
    External,
    /// External frontends for sources inside the cluster, if they get another answer because of policy Local.
    Inside,
    /// The cluster IP that is also a load balancer's address, with source ranges.
    Guarded,
    /// A load balancer's addresses that admit no source.
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

    /// The role of a slot in the maps.
    pub(super) fn of(route: Route) -> Self {
        let service::Owner::Service { role: wanted, .. } = route.owner else {
            return Self::Internal;
        };
        let mut all = Self::ALL.into_iter();
        all.find(|role| *role as u8 == wanted)
            .unwrap_or(Self::Internal)
    }

    /// The role that answers at a frontend, and whether source ranges apply.
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

    /// Whether a service port may need this role, independent of which Service wins its addresses.
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
    /// It contains backends of the previous agent that no source has named yet.
    pub(super) unsettled: bool,
}

impl Group {
    /// No slots.
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

    /// All slots; the one that the others depend on is last.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let slots = self.slots.into_iter().rev();
        slots.filter(|slot| *slot != NO_SLOT)
    }
}

/// The groups of service ports, by id.
#[derive(Debug, Default)]
pub(super) struct Groups(HashMap<Owner, Group>);

/// A service port as key by its id. It is stored anyway, and an id of its own would be most of a group's memory.
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

    /// Stores a service port's group. Returns the previous one.
    pub(super) fn put(&mut self, port: &Arc<ServicePort>, group: Group) -> Option<Group> {
        // The key is replaced too: it would keep the old service port alive.
        let old = self.0.remove(&port.id);
        self.0.insert(Owner(Arc::clone(port)), group);
        old
    }

    pub(super) fn take(&mut self, id: &PortId) -> Option<Group> {
        self.0.remove(id)
    }

    /// Reserves capacity for so many groups in total.
    pub(super) fn reserve(&mut self, len: usize) {
        self.0.reserve(len.saturating_sub(self.0.len()));
    }

    /// All groups, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.values()
    }

    /// The slots of all groups.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.iter().flat_map(Group::slots)
    }
}
