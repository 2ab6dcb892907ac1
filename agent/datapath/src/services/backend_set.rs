//! The backends of a service port, and the words of its slots: pure.
//!
//! A group's backends are in one extent of the arena, ordered so that each policy's are adjacent: those for the cluster IP's
//! policy only, those for both policies, those for the other policy only, and terminating ones.

use dormouse_agent_services::{Backend, Policy, ServicePort};
use dormouse_ebpf::maps::{FOR_CLUSTER, FOR_LOCAL, RANK_SHIFT};
use dormouse_ebpf::service::{Masquerade, Mode, Owner, Protocol, Route, Set};

use super::frontends::{address, number};
use super::group::Role;
use crate::arrays::octets;
use crate::error::DatapathError;
use crate::pool::{self, Key, Member, Row};

/// A rank in the flags that stands for all higher ones.
const PLACE_MAX: usize = (u16::MAX >> RANK_SHIFT) as usize;
const USES: u16 = FOR_CLUSTER | FOR_LOCAL;

/// Rows of one backend for established connections only, at most: with session affinity the backend adds one each time that it
/// goes and comes back. Connections of the oldest row beyond the limit are reset.
const LEAVING_MAX: usize = 4;

/// Which backends stay although the service port does not list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Those with possible established connections, for these only.
    Standing,
    /// All that no received slice excludes: more slices may arrive.
    Unheard,
    /// All: an old path to the API server is better than none.
    All,
}

/// The backends of a group.
#[derive(Debug, Default)]
pub(super) struct BackendSet {
    /// Sorted by address and port.
    pub(super) members: Vec<Member>,
    /// The ids of removed backends.
    pub(super) gone: Vec<u32>,
    /// Some are from the previous agent, and no source has named them yet.
    pub(super) unsettled: bool,
    /// Number of backends for the cluster IP's policy only, for both, for the other policy only.
    parts: [usize; 3],
    any: bool,
}

impl BackendSet {
    /// Fills the list with a service port's backends, given the previous ones, sorted too. Established flows to backends in
    /// `silent` end.
    pub(super) fn fill(&mut self, port: &ServicePort, had: &[Member], keep: Keep, silent: &[Key]) {
        self.members.clear();
        self.gone.clear();
        self.unsettled = false;
        let mut had = had;
        for backend in &port.backends {
            let row = row(&backend);
            while had.first().is_some_and(|other| other.row.key < row.key) {
                self.leave(port, take(&mut had), keep);
            }
            let same_key = had.first().is_some_and(|other| other.row.key == row.key);
            let rows = if same_key { take(&mut had) } else { &[] };
            self.stay(port, row, rows, silent);
        }
        while !had.is_empty() {
            self.leave(port, take(&mut had), keep);
        }
        if port.affinity_s.is_some() {
            self.rank();
        }
        self.any = port.any_endpoints || self.members.iter().any(is_used);
        self.parts = [0; 3];
        for member in &self.members {
            if let Some(part) = part(&member.row, port.internal) {
                self.parts[part] += 1;
            }
        }
    }

    /// Adds a backend, with its existing rows: one for new connections first, if any, then those for established ones.
    fn stay(&mut self, port: &ServicePort, row: Row, rows: &[Member], silent: &[Key]) {
        if silent.contains(&row.key) {
            self.gone.extend(rows.iter().filter_map(|member| member.id));
            self.members.push(Member { row, id: None });
            return;
        }
        let first = rows.first().filter(|first| {
            // Affinity to a backend ends while it is away. It comes back with a new row, so old affinity entries do not
            // apply; its established connections keep the old rows.
            is_used(first) || port.affinity_s.is_none()
        });
        let id = first.and_then(|first| first.id);
        self.members.push(Member { row, id });
        self.keep_leaving(&rows[usize::from(first.is_some())..]);
    }

    /// Handles a previous backend that is not listed any more, with all its rows.
    fn leave(&mut self, port: &ServicePort, rows: &[Member], keep: Keep) {
        let [first, rest @ ..] = rows else { return };
        let (octets, number) = first.row.key;
        let place = (address(octets), number);
        if keep != Keep::All && port.stands_at(place) {
            self.keep_leaving(rows);
        } else if keep == Keep::Standing {
            self.gone.extend(rows.iter().filter_map(|member| member.id));
        } else {
            self.unsettled |= keep == Keep::Unheard;
            let mut member = *first;
            member.row.flags &= USES;
            self.members.push(member);
            self.keep_leaving(rest);
        }
    }

    /// Keeps rows for established connections only, the newest first; the oldest beyond [`LEAVING_MAX`] are released.
    fn keep_leaving(&mut self, rows: &[Member]) {
        let (kept, released) = rows.split_at(rows.len().min(LEAVING_MAX));
        self.members.extend(kept.iter().copied().map(leaving));
        self.gone
            .extend(released.iter().filter_map(|member| member.id));
    }

    /// Stores each backend's rank by textual order, which decides if a client has two affinity entries.
    fn rank(&mut self) {
        let text = |(address_octets, port): Key| {
            std::net::SocketAddr::new(address(address_octets), port).to_string()
        };
        let mut order: Vec<(String, usize)> = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| is_used(member))
            .map(|(at, member)| (text(member.row.key), at))
            .collect();
        order.sort_unstable();
        for (place, (_, at)) in order.into_iter().enumerate() {
            let place = u16::try_from(place.min(PLACE_MAX)).unwrap_or(u16::MAX);
            self.members[at].row.flags |= place << RANK_SHIFT;
        }
    }

    /// The ids in the order of the arena.
    pub(super) fn ids(&self, internal: Policy, ids: &mut Vec<u32>) {
        ids.clear();
        for wanted in [Some(0), Some(1), Some(2), None] {
            let some = self.members.iter();
            let some = some.filter(|member| part(&member.row, internal) == wanted);
            ids.extend(some.filter_map(Member::clean_id));
        }
    }

    /// The set of a role's slot, for an extent at `offset`. Its generation is zero.
    pub(super) fn set(
        &self,
        port: &ServicePort,
        role: Role,
        offset: u32,
    ) -> Result<Set, DatapathError> {
        let [own, both, other] = self.parts;
        let (count, leaving) = if role == Role::Internal {
            pool::counts(own + both, self.members.len())?
        } else if policy(port, role) == port.internal {
            pool::counts(own + both, own + both)?
        } else {
            pool::counts(both + other, both + other)?
        };
        let skipped = if policy(port, role) == port.internal {
            0
        } else {
            own
        };
        let set = Set {
            offset: offset + u32::try_from(skipped).unwrap_or(u32::MAX),
            count,
            leaving,
            version: 0,
        };
        let nobody = role == Role::Refused || count == 0 && leaving == 0;
        Ok(if nobody { Set::default() } else { set })
    }

    /// The route of a role's slot; `base` is the group's number.
    pub(super) fn route(&self, port: &ServicePort, role: Role, base: u32) -> Route {
        let policy = policy(port, role);
        let wanted = match policy {
            Policy::Cluster => FOR_CLUSTER,
            Policy::Local => FOR_LOCAL,
        };
        let usable = self.members.iter().map(|member| &member.row);
        let usable = || usable.clone().filter(|row| row.flags & wanted != 0);
        let mode = if !self.any || role == Role::Refused {
            Mode::Reject
        } else if usable().next().is_some() {
            Mode::Serve
        } else {
            Mode::Drop
        };
        Route {
            mode,
            present: true,
            affinity: port.affinity_s.is_some() && role != Role::Refused,
            port: port.number,
            protocol: Protocol::of(number(port.id.protocol)),
            masquerade: masquerade(port, role),
            split: role == Role::External && port.external == Policy::Local,
            local: policy == Policy::Local,
            weighted: pool::differ(usable()),
            owner: Owner::Service {
                role: role as u8,
                group: Some(base),
            },
            ..Route::ABSENT
        }
    }
}

/// Removes and returns all rows of the first backend.
fn take<'a>(had: &mut &'a [Member]) -> &'a [Member] {
    let key = had.first().map(|first| first.row.key);
    let len = had
        .iter()
        .take_while(|member| Some(member.row.key) == key)
        .count();
    let (rows, rest) = had.split_at(len);
    *had = rest;
    rows
}

/// A row for established connections only.
fn leaving(mut member: Member) -> Member {
    member.row.flags = 0;
    member
}

/// Whether the backend gets new connections.
fn is_used(member: &Member) -> bool {
    member.row.flags & USES != 0
}

/// The route of a direct slot that only marks its address as a cluster IP.
pub(super) fn shut(group: Option<u32>) -> Route {
    Route {
        mode: Mode::Reject,
        present: true,
        owner: Owner::Service { role: 0, group },
        ..Route::ABSENT
    }
}

/// The policy whose backends a role's slot uses.
fn policy(port: &ServicePort, role: Role) -> Policy {
    match role {
        Role::Internal | Role::Guarded => port.internal,
        Role::External => port.external,
        Role::Inside | Role::Refused => Policy::Cluster,
    }
}

fn masquerade(port: &ServicePort, role: Role) -> Masquerade {
    match role {
        Role::Internal | Role::Guarded => Masquerade::External,
        Role::External if port.external == Policy::Cluster => Masquerade::All,
        Role::Inside => Masquerade::Node,
        Role::External | Role::Refused => Masquerade::None,
    }
}

/// The part of the extent to which a backend belongs; none: it is terminating.
fn part(row: &Row, internal: Policy) -> Option<usize> {
    let (own, other) = match internal {
        Policy::Cluster => (FOR_CLUSTER, FOR_LOCAL),
        Policy::Local => (FOR_LOCAL, FOR_CLUSTER),
    };
    match (row.flags & own != 0, row.flags & other != 0) {
        (true, false) => Some(0),
        (true, true) => Some(1),
        (false, true) => Some(2),
        (false, false) => None,
    }
}

fn row(backend: &Backend) -> Row {
    let cluster = if backend.for_cluster { FOR_CLUSTER } else { 0 };
    let local = if backend.for_local { FOR_LOCAL } else { 0 };
    Row {
        key: (octets(backend.address), backend.port),
        flags: cluster | local,
        weight: backend.weight,
    }
}
