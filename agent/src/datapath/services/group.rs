//! The slots that one service port has: one for each answer that it gives.

use std::net::IpAddr;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{Frontend, Policy, ServicePort};
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
                ranges.is_some_and(Vec::is_empty) && !addresses.load_balancer_ips.is_empty()
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
