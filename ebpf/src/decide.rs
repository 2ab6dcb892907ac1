//! Where a new connection goes: the one decision that all hooks share, and that `explain` repeats outside the kernel.
//!
//! Kubernetes' semantics are those of kube-proxy: source ranges come first, then the service's own answer, then what
//! becomes of addresses that only a service could have.

use crate::config::Config;
use crate::maps::{
    Backend, Extra, FOR_CLUSTER, FOR_LOCAL, FOREIGN_CLUSTER_IP, FOREIGN_LOCAL,
    FOREIGN_LOCAL_BACKEND, FOREIGN_RANGED, FOREIGN_VIP, ForeignKey, NO_SLOT, PLACE_SHIFT, Sticky,
    StickyKey, join,
};
use crate::pick::{below, draw};
use crate::service::{Hide, Mode, Protocol, Route, Set};
use crate::trace::Step;
use crate::verdict::Verdict;

pub use crate::tables::Tables;

/// No backend: an activator stands in.
pub const NO_BACKEND: u32 = u32::MAX;

/// Who asks for what.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// From; IPv4 is mapped.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
    /// To which port.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// The node itself asks.
    pub by_node: bool,
    /// Every node shall choose alike.
    pub alike: bool,
    /// The flow's hash, or random bits.
    pub hash: u64,
}

/// Where a connection goes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The backend's address, or the activator's that stands for the VIP.
    pub address: [u8; 16],
    /// The port there.
    pub port: u16,
    /// The node's address takes the source's place, if the packet leaves the node.
    pub hide: bool,
    /// The slot asked is a Service's.
    pub service: bool,
    /// The slot that decided; [`NO_SLOT`]: none has.
    pub slot: u32,
    /// The backend's id; [`NO_BACKEND`]: an activator.
    pub backend: u32,
    /// Its generation.
    pub generation: u32,
    /// The clients that share what is remembered; 0 with no backend to keep.
    pub group: u32,
    /// The slot's first word, as it was read.
    pub route: u64,
}

/// What becomes of a connection.
// Aligned to a whole word: functions return it on the stack, which BPF writes by aligned words only.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None of ours.
    Pass,
    /// It goes where the choice says; why, if that is to be noted.
    Go(Option<Verdict>),
    /// It is refused.
    Reject(Verdict),
    /// It is dropped.
    Drop(Verdict),
}

/// Decides a new connection.
#[inline(always)]
pub fn decide<T: Tables>(tables: &T, asked: &Asked, choice: &mut Choice) -> Answer {
    choice.slot = NO_SLOT;
    choice.hide = false;
    choice.group = 0;
    let Some(config) = tables.config() else {
        return Answer::Pass;
    };
    if let Some(vip) = config.vip(&asked.target) {
        return app(tables, config, asked, vip, choice);
    }
    let (found, ranged) = find(tables, config, asked, choice);
    if !found {
        return unserved(tables, config, &asked.target, asked.by_node);
    }
    if ranged && !tables.admits(choice.slot, &asked.source) {
        return Answer::Drop(Verdict::DroppedRange);
    }
    service(tables, config, asked, choice)
}

/// Whether the address can be one that a decision leads elsewhere.
#[inline(always)]
pub fn may_be_ours<T: Tables>(tables: &T, config: &Config, address: &[u8; 16]) -> bool {
    config.vip(address).is_some()
        || config.cluster_ip(address).is_some()
        || tables.may_be_foreign(address)
}

/// A Service whose answer depends on the pod's address: the pod's socket does not know it, its packet does.
#[inline(always)]
pub fn is_the_packets<T: Tables>(tables: &T, config: &Config, asked: &Asked) -> bool {
    if config.vip(&asked.target).is_some() {
        return false;
    }
    if let Some(word) = config
        .cluster_ip(&asked.target)
        .and_then(|slot| tables.route(slot))
    {
        let route = Route::unpack(word);
        if route.present && route.port == asked.port {
            return route.sticky;
        }
    }
    let key = ForeignKey {
        address: asked.target,
        port: asked.port,
        protocol: asked.protocol,
        kind: FOREIGN_VIP,
    };
    tables.foreign(&key).is_some_and(|value| {
        let word = tables.route(value & !FOREIGN_RANGED).unwrap_or(0);
        value & FOREIGN_RANGED != 0 || Route::unpack(word).sticky
    })
}

/// An app's VIP: to its backends, or to its activator.
#[inline(always)]
fn app<T: Tables>(
    tables: &T,
    config: &Config,
    asked: &Asked,
    vip: u32,
    choice: &mut Choice,
) -> Answer {
    choice.slot = vip;
    choice.service = false;
    choice.route = match tables.route(vip) {
        Some(route) => route,
        None => return Answer::Pass,
    };
    tables.tell(Step::Route, u64::from(vip), choice.route);
    let route = Route::unpack(choice.route);
    let verdict = if route.present && route.port != 0 && route.port != asked.port {
        Verdict::OtherPort
    } else if !matches!(route.mode, Mode::Serve) || !route.present {
        Verdict::Proxied
    } else if route.leased && tables.now_ns() >= tables.lease_until_ns() {
        Verdict::LeaseOver
    } else if draw(asked.hash) < route.share {
        Verdict::Shared
    } else if pick(tables, asked, route, choice) {
        return Answer::Go(None);
    } else {
        Verdict::NoBackend
    };
    if to_activator(config, vip, asked.port, choice) {
        Answer::Go(Some(verdict))
    } else {
        Answer::Drop(Verdict::DroppedNoActivator)
    }
}

/// Chooses the activator that stands for a VIP. False if there is none.
#[inline(always)]
pub fn to_activator(config: &Config, vip: u32, port: u16, choice: &mut Choice) -> bool {
    let Some(activator) = config.activator(vip) else {
        return false;
    };
    choice.address = activator.address_for(vip);
    choice.port = port;
    choice.backend = NO_BACKEND;
    choice.generation = 0;
    true
}

/// Finds the slot of a Service's address and port: whether there is one, and whether only some sources may use it.
#[inline(always)]
fn find<T: Tables>(
    tables: &T,
    config: &Config,
    asked: &Asked,
    choice: &mut Choice,
) -> (bool, bool) {
    choice.service = true;
    if let Some(slot) = config.cluster_ip(&asked.target) {
        choice.slot = slot;
        choice.route = tables.route(slot).unwrap_or(0);
        let route = Route::unpack(choice.route);
        if route.present
            && route.port == asked.port
            && route.protocol as u8 == Protocol::of(asked.protocol) as u8
        {
            tables.tell(Step::ClusterIp, u64::from(slot), 0);
            return (true, false);
        }
        choice.slot = NO_SLOT;
    }
    if !tables.may_be_foreign(&asked.target) {
        return (false, false);
    }
    let key = ForeignKey {
        address: asked.target,
        port: asked.port,
        protocol: asked.protocol,
        kind: FOREIGN_VIP,
    };
    let Some(value) = tables.foreign(&key) else {
        return (false, false);
    };
    choice.slot = value & !FOREIGN_RANGED;
    choice.route = tables.route(choice.slot).unwrap_or(0);
    let ranged = value & FOREIGN_RANGED != 0;
    tables.tell(Step::Address, u64::from(choice.slot), u64::from(ranged));
    (true, ranged)
}

/// What a Service's slot has for the source.
#[inline(always)]
fn service<T: Tables>(tables: &T, config: &Config, asked: &Asked, choice: &mut Choice) -> Answer {
    let mut route = Route::unpack(choice.route);
    let extra = if route.split || route.sticky {
        tables.extra(choice.slot).unwrap_or_default()
    } else {
        Extra::default()
    };
    if route.split && (asked.by_node || config.is_pod(&asked.source)) {
        choice.slot = extra.inside;
        choice.route = tables.route(extra.inside).unwrap_or(0);
        route = Route::unpack(choice.route);
    }
    tables.tell(Step::Route, u64::from(choice.slot), choice.route);
    match route.mode {
        Mode::Serve => {}
        Mode::Reject => return Answer::Reject(Verdict::Rejected),
        Mode::Drop | Mode::Proxy => return Answer::Drop(Verdict::DroppedNotLocal),
    }
    let kept = route.sticky && keep(tables, asked, route.local, &extra, choice);
    if !kept && !pick(tables, asked, route, choice) {
        return Answer::Reject(Verdict::Rejected);
    }
    choice.group = if route.sticky { extra.group } else { 0 };
    let answer = unserved(tables, config, &choice.address, asked.by_node);
    if !matches!(answer, Answer::Pass) {
        return answer;
    }
    choice.hide = hides(tables, config, asked, route, choice);
    Answer::Go(None)
}

/// Whether the node's address takes the source's place.
#[inline(always)]
fn hides<T: Tables>(
    tables: &T,
    config: &Config,
    asked: &Asked,
    route: Route,
    choice: &Choice,
) -> bool {
    let wanted = match route.hide {
        Hide::Nobody => false,
        Hide::Everybody => true,
        // Whoever is taken for a pod is none of the node's, even if the range of the pods holds its address.
        Hide::Node => asked.by_node && !config.is_pod(&asked.source),
        Hide::Foreign => {
            config.hides_all != 0
                || config
                    .pods_of(&asked.source)
                    .is_some_and(|pods| !pods.contains(&asked.source))
        }
    };
    let leaves = || asked.by_node || !is_local(tables, config, &choice.address);
    // A backend that calls itself must not see its own address as the caller's.
    let itself = || choice.address == asked.source && is_local_backend(tables, asked, choice);
    (wanted || itself()) && leaves()
}

#[inline(always)]
fn is_local_backend<T: Tables>(tables: &T, asked: &Asked, choice: &Choice) -> bool {
    let key = ForeignKey {
        address: choice.address,
        port: choice.port,
        protocol: asked.protocol,
        kind: FOREIGN_LOCAL_BACKEND,
    };
    tables.foreign(&key).is_some()
}

/// The address is on an interface of this node.
#[inline(always)]
pub fn is_local<T: Tables>(tables: &T, config: &Config, address: &[u8; 16]) -> bool {
    if *address == config.node_address || *address == config.node_address4 {
        return true;
    }
    tables.may_be_foreign(address) && knows(tables, address, FOREIGN_LOCAL)
}

#[inline(always)]
fn knows<T: Tables>(tables: &T, address: &[u8; 16], kind: u8) -> bool {
    let key = ForeignKey {
        address: *address,
        port: 0,
        protocol: 0,
        kind,
    };
    tables.foreign(&key).is_some()
}

/// What becomes of packets to an address that only a service could have, where none answers.
#[inline(always)]
pub fn unserved<T: Tables>(
    tables: &T,
    config: &Config,
    address: &[u8; 16],
    by_node: bool,
) -> Answer {
    let foreign = tables.may_be_foreign(address);
    let inside = config.is_service_address(address);
    if !foreign && !inside || !by_node && is_local(tables, config, address) {
        return Answer::Pass;
    }
    let own_slot = config
        .cluster_ip(address)
        .and_then(|slot| tables.route(slot))
        .is_some_and(|route| Route::unpack(route).present);
    if own_slot || foreign && knows(tables, address, FOREIGN_CLUSTER_IP) {
        Answer::Reject(Verdict::RejectedPort)
    } else if inside {
        Answer::Drop(Verdict::DroppedUnallocated)
    } else {
        Answer::Pass
    }
}

/// Picks a backend of the slot's set. False if there is none.
#[inline(always)]
fn pick<T: Tables>(tables: &T, asked: &Asked, route: Route, choice: &mut Choice) -> bool {
    let Some(word) = tables.set(choice.slot) else {
        return false;
    };
    tables.tell(Step::Set, u64::from(choice.slot), word);
    let set = Set::unpack(word);
    if set.count == 0 {
        return false;
    }
    let alike = asked.alike || route.weighted;
    let id = if alike {
        tables.favourite(set, asked.hash)
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are as good")]
        tables.id(set.offset + below(asked.hash as u32, u32::from(set.count)))
    };
    let Some(id) = id else {
        return false;
    };
    let Some(backend) = tables.backend(id) else {
        return false;
    };
    tables.tell(Step::Picked, u64::from(id), u64::from(alike));
    choose(tables, id, backend, choice)
}

#[inline(always)]
fn choose<T: Tables>(tables: &T, id: u32, backend: Backend, choice: &mut Choice) -> bool {
    let Some(prefix) = tables.prefix(backend.prefix) else {
        return false;
    };
    choice.address = join(&prefix, backend.host);
    choice.port = backend.port;
    choice.backend = id;
    choice.generation = u32::from(backend.generation);
    true
}

/// The backend that the client keeps, if the slot may still use it; of two, the first in the order of their texts.
#[inline(always)]
fn keep<T: Tables>(
    tables: &T,
    asked: &Asked,
    local: bool,
    extra: &Extra,
    choice: &mut Choice,
) -> bool {
    let key = StickyKey {
        client: asked.source,
        group: extra.group,
    };
    let Some(sticky) = tables.sticky(&key) else {
        return false;
    };
    let now = tables.now_ns();
    let wanted = if local { FOR_LOCAL } else { FOR_CLUSTER };
    // The order of what fits; above any order what does not.
    let order = |place: usize| {
        let seen_ns = sticky.seen_ns[place];
        let fresh = now.saturating_sub(seen_ns) <= u64::from(extra.sticky_s) * 1_000_000_000;
        match tables.backend(sticky.ids[place]) {
            Some(backend)
                if seen_ns != 0
                    && fresh
                    && backend.flags & wanted != 0
                    && u32::from(backend.generation) == sticky.generations[place] =>
            {
                u32::from(backend.flags >> PLACE_SHIFT)
            }
            _ => u32::MAX,
        }
    };
    let (first, second) = (order(0), order(1));
    if first == u32::MAX && second == u32::MAX {
        return false;
    }
    let id = sticky.ids[usize::from(second < first)];
    let Some(backend) = tables.backend(id) else {
        return false;
    };
    tables.tell(Step::Kept, u64::from(id), 0);
    choose(tables, id, backend, choice)
}

/// What is remembered of a client that was given this backend: it takes the place of itself, else of the older one.
#[inline(always)]
#[must_use]
pub fn remember(before: Option<Sticky>, choice: &Choice, now_ns: u64) -> Sticky {
    let mut sticky = before.unwrap_or_default();
    let is = |place: usize| {
        sticky.ids[place] == choice.backend && sticky.generations[place] == choice.generation
    };
    let second = is(1) || !is(0) && sticky.seen_ns[1] < sticky.seen_ns[0];
    if second {
        sticky.ids[1] = choice.backend;
        sticky.generations[1] = choice.generation;
        sticky.seen_ns[1] = now_ns;
    } else {
        sticky.ids[0] = choice.backend;
        sticky.generations[0] = choice.generation;
        sticky.seen_ns[0] = now_ns;
    }
    sticky
}

#[cfg(test)]
mod tests;
