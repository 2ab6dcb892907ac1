//! The load balancing decision for a new connection. All hooks call it, and `explain` calls it outside the kernel.
//!
//! The semantics for Services are kube-proxy's: source ranges are checked first, then the service port's backends are used,
//! then addresses that belong to Services only are rejected or dropped.

mod affinity;

use crate::config::Config;
use crate::maps::{
    Backend, FRONTEND_CLUSTER_IP, FRONTEND_EXTERNAL_IP, FRONTEND_LOCAL_ADDRESS,
    FRONTEND_LOCAL_BACKEND, FRONTEND_SOURCE_RANGES, FRONTEND_VIP, FrontendKey, NO_SLOT,
    SlotOptions, join,
};
use crate::pick::{below, draw};
use crate::service::{Masquerade, Mode, Protocol, Route, Set};
use crate::trace::Step;
use crate::verdict::Verdict;

pub use crate::tables::Tables;
pub use affinity::record_affinity;

/// In place of a backend's id: the connection goes to an activator.
pub const NO_BACKEND: u32 = u32::MAX;

/// The new connection to decide: a packet's, or a socket's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The client's address; IPv4 is mapped. All zero: not known, as at a pod's socket.
    pub source: [u8; 16],
    /// The address that the client connects to; IPv4 is mapped.
    pub target: [u8; 16],
    /// The port that the client connects to.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// The client is a process in the node's own network namespace.
    pub from_node: bool,
    /// The backend is selected by rendezvous hashing, so that every node selects the same one.
    pub consistent: bool,
    /// The flow's hash, or random bits.
    pub hash: u64,
}

/// The backend or activator that a connection is forwarded to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The address of the backend, or the VIP's address in the activator's acting prefix.
    pub address: [u8; 16],
    /// The port of the backend or activator.
    pub port: u16,
    /// The source address is replaced by the node's (SNAT).
    pub masquerade: bool,
    /// The frontend is a Service's, not an app's.
    pub service: bool,
    /// The slot that the backend was selected from; [`NO_SLOT`]: the address is no frontend.
    pub slot: u32,
    /// The backend's id; [`NO_BACKEND`]: an activator.
    pub backend: u32,
    /// The backend's generation.
    pub generation: u32,
    /// The affinity group that the choice is recorded for; 0: the slot has no session affinity.
    pub group: u32,
    /// The first word of `slot` as it was read, a packed [`Route`].
    pub route: u64,
}

/// The decision.
// Aligned to a whole word: functions return it on the stack, which BPF writes by aligned words only.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The address is no frontend: the kernel routes the packet.
    Pass,
    /// The connection is forwarded to the choice; with a verdict if it goes to an activator.
    Forward(Option<Verdict>),
    /// The connection is rejected with an error to the client.
    Reject(Verdict),
    /// The packet is dropped silently.
    Drop(Verdict),
}

/// Decides a new connection. `choice` is filled as far as the decision came: its slot is valid with every decision.
#[inline(always)]
pub fn decide<T: Tables>(tables: &T, request: &Request, choice: &mut Choice) -> Decision {
    choice.slot = NO_SLOT;
    choice.masquerade = false;
    choice.group = 0;
    let Some(config) = tables.config() else {
        return Decision::Pass;
    };
    let query = Query {
        tables,
        config,
        request,
    };
    if let Some(vip) = config.vip(&request.target) {
        return query.app(vip, choice);
    }
    match query.frontend(choice) {
        Frontend::None => without_backend(tables, config, &request.target, request.from_node),
        Frontend::SourceRanges if !query.in_source_range(choice) => {
            Decision::Drop(Verdict::DroppedRange)
        }
        _ => query.service(choice),
    }
}

/// Whether [`decide`] drops the connection because its source is in none of its frontend's source ranges
/// ([`Verdict::DroppedRange`]): by the same rule, without the rest of the decision. `choice.slot` is then the frontend's.
#[inline(always)]
pub fn is_out_of_range<T: Tables>(tables: &T, request: &Request, choice: &mut Choice) -> bool {
    let Some(config) = tables.config() else {
        return false;
    };
    let query = Query {
        tables,
        config,
        request,
    };
    config.vip(&request.target).is_none()
        && matches!(query.frontend(choice), Frontend::SourceRanges)
        && !query.in_source_range(choice)
}

/// Whether the address can be a frontend: false for most addresses, at the cost of one filter word.
#[inline(always)]
pub fn may_be_frontend<T: Tables>(tables: &T, config: &Config, address: &[u8; 16]) -> bool {
    config.vip(address).is_some()
        || config.cluster_ip(address).is_some()
        || tables.in_frontend_filter(address)
}

/// Whether the frontend's decision depends on the client's address (session affinity, source ranges). A pod's socket has no
/// address yet, its packet has.
#[inline(always)]
pub fn needs_client_address<T: Tables>(tables: &T, config: &Config, request: &Request) -> bool {
    if config.vip(&request.target).is_some() {
        return false;
    }
    if let Some(word) = config
        .cluster_ip(&request.target)
        .and_then(|slot| tables.route(slot))
    {
        let route = Route::unpack(word);
        if route.present && route.port == request.port {
            return route.affinity;
        }
    }
    let key = FrontendKey {
        address: request.target,
        port: request.port,
        protocol: request.protocol,
        kind: FRONTEND_VIP,
    };
    tables.frontend(&key).is_some_and(|value| {
        let word = tables.route(value & !FRONTEND_SOURCE_RANGES).unwrap_or(0);
        value & FRONTEND_SOURCE_RANGES != 0 || Route::unpack(word).affinity
    })
}

/// A Service's frontend, as it was looked up.
enum Frontend {
    /// No Service has this address and port.
    None,
    /// All sources may use it.
    Open,
    /// It has source ranges.
    SourceRanges,
}

/// A request and the tables that it is decided by.
struct Query<'a, T> {
    tables: &'a T,
    config: &'a Config,
    request: &'a Request,
}

impl<T: Tables> Query<'_, T> {
    /// Decides a connection to an app's VIP: to a backend, or to the app's activator.
    #[inline(always)]
    fn app(&self, vip: u32, choice: &mut Choice) -> Decision {
        let Self {
            tables,
            config,
            request,
        } = *self;
        choice.slot = vip;
        choice.service = false;
        choice.route = match tables.route(vip) {
            Some(route) => route,
            None => return Decision::Pass,
        };
        tables.trace(Step::Route, u64::from(vip), choice.route);
        let route = Route::unpack(choice.route);
        let verdict = if route.present && route.port != 0 && route.port != request.port {
            Verdict::OtherPort
        } else if !matches!(route.mode, Mode::Serve) || !route.present {
            Verdict::Proxied
        } else if route.leased && tables.now_ns() >= tables.lease_until_ns() {
            Verdict::LeaseOver
        } else if draw(request.hash) < route.share() {
            Verdict::Shared
        } else if pick(tables, request, route, choice) {
            return Decision::Forward(None);
        } else {
            Verdict::NoBackend
        };
        if to_activator(config, vip, request.port, choice) {
            Decision::Forward(Some(verdict))
        } else {
            Decision::Drop(Verdict::DroppedNoActivator)
        }
    }

    /// Looks up a Service's frontend, and its slot.
    #[inline(always)]
    fn frontend(&self, choice: &mut Choice) -> Frontend {
        let (tables, request) = (self.tables, self.request);
        choice.service = true;
        if let Some(slot) = self.config.cluster_ip(&request.target) {
            choice.slot = slot;
            choice.route = tables.route(slot).unwrap_or(0);
            let route = Route::unpack(choice.route);
            if route.present
                && route.port == request.port
                && route.protocol as u8 == Protocol::of(request.protocol) as u8
            {
                tables.trace(Step::ClusterIp, u64::from(slot), 0);
                return Frontend::Open;
            }
            choice.slot = NO_SLOT;
        }
        if !tables.in_frontend_filter(&request.target) {
            return Frontend::None;
        }
        let key = FrontendKey {
            address: request.target,
            port: request.port,
            protocol: request.protocol,
            kind: FRONTEND_VIP,
        };
        let Some(value) = tables.frontend(&key) else {
            return Frontend::None;
        };
        choice.slot = value & !FRONTEND_SOURCE_RANGES;
        choice.route = tables.route(choice.slot).unwrap_or(0);
        let ranged = value & FRONTEND_SOURCE_RANGES != 0;
        tables.trace(Step::Frontend, u64::from(choice.slot), u64::from(ranged));
        if ranged {
            Frontend::SourceRanges
        } else {
            Frontend::Open
        }
    }

    /// Whether the source is in one of the source ranges of the frontend that was found.
    #[inline(always)]
    fn in_source_range(&self, choice: &Choice) -> bool {
        self.tables
            .in_source_range(choice.slot, &self.request.source)
    }

    /// Decides a connection to a Service by its slot.
    #[inline(always)]
    fn service(&self, choice: &mut Choice) -> Decision {
        let Self {
            tables,
            config,
            request,
        } = *self;
        let mut route = Route::unpack(choice.route);
        let options = if route.split || route.affinity {
            tables.slot_options(choice.slot).unwrap_or_default()
        } else {
            SlotOptions::default()
        };
        if route.split && (request.from_node || config.is_pod(&request.source)) {
            choice.slot = options.internal_slot;
            choice.route = tables.route(options.internal_slot).unwrap_or(0);
            route = Route::unpack(choice.route);
        }
        tables.trace(Step::Route, u64::from(choice.slot), choice.route);
        match route.mode {
            Mode::Serve => {}
            Mode::Reject => return Decision::Reject(Verdict::Rejected),
            Mode::Drop | Mode::Proxy => return Decision::Drop(Verdict::DroppedNotLocal),
        }
        let bound = route.affinity
            && affinity::backend(tables, &request.source, &options, route.local)
                .is_some_and(|(id, backend)| resolve(tables, id, backend, choice));
        if !bound && !pick(tables, request, route, choice) {
            return Decision::Reject(Verdict::Rejected);
        }
        choice.group = if route.affinity { options.group } else { 0 };
        let answer = without_backend(tables, config, &choice.address, request.from_node);
        if !matches!(answer, Decision::Pass) {
            return answer;
        }
        choice.masquerade = self.masquerades(route.masquerade, choice);
        Decision::Forward(None)
    }

    /// Whether the connection to the chosen backend is masqueraded.
    #[inline(always)]
    fn masquerades(&self, masquerade: Masquerade, choice: &Choice) -> bool {
        let Self {
            tables,
            config,
            request,
        } = *self;
        let wanted = match masquerade {
            Masquerade::None => false,
            Masquerade::All => true,
            // An address in the pod range counts as a pod's, even if it is the node's own.
            Masquerade::Node => request.from_node && !config.is_pod(&request.source),
            Masquerade::External => {
                config.masquerade_all != 0
                    || config
                        .pods_of(&request.source)
                        .is_some_and(|pods| !pods.contains(&request.source))
            }
        };
        let leaves = || request.from_node || !is_node_address(tables, config, &choice.address);
        // Hairpin: a backend that connects to itself must not see its own address as the client's.
        let itself = || {
            choice.address == request.source && is_local_backend(tables, request.protocol, choice)
        };
        (wanted || itself()) && leaves() && !is_by_host(tables, config, request.protocol, choice)
    }
}

/// Selects the activator of a VIP. False if none is configured.
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

/// Whether the host's stack delivers the connection: the backend is a pod on this node that another CNI plugin has wired, so it has no
/// address of the node prefix. It is not masqueraded: the host's stack would answer replies to the node's address itself, before any
/// program sees them. To the client's address they leave by the uplink.
#[inline(always)]
pub fn is_by_host<T: Tables>(tables: &T, config: &Config, protocol: u8, choice: &Choice) -> bool {
    config.unseen_pods != 0
        && choice.service
        && !config.is_local(&choice.address)
        && !tables.has_pod(&choice.address)
        && is_local_backend(tables, protocol, choice)
        && !is_node_address(tables, config, &choice.address)
}

#[inline(always)]
fn is_local_backend<T: Tables>(tables: &T, protocol: u8, choice: &Choice) -> bool {
    let key = FrontendKey {
        address: choice.address,
        port: choice.port,
        protocol,
        kind: FRONTEND_LOCAL_BACKEND,
    };
    tables.frontend(&key).is_some()
}

/// Whether the address is on an interface of this node.
#[inline(always)]
pub fn is_node_address<T: Tables>(tables: &T, config: &Config, address: &[u8; 16]) -> bool {
    if *address == config.node_address || *address == config.node_address4 {
        return true;
    }
    tables.in_frontend_filter(address) && has_frontend(tables, address, FRONTEND_LOCAL_ADDRESS)
}

/// Whether the address is an external IP or a load balancer's address of a Service.
#[inline(always)]
pub fn is_external_ip<T: Tables>(tables: &T, address: &[u8; 16]) -> bool {
    tables.in_frontend_filter(address) && has_frontend(tables, address, FRONTEND_EXTERNAL_IP)
}

#[inline(always)]
fn has_frontend<T: Tables>(tables: &T, address: &[u8; 16], kind: u8) -> bool {
    let key = FrontendKey {
        address: *address,
        port: 0,
        protocol: 0,
        kind,
    };
    tables.frontend(&key).is_some()
}

/// Decides packets to an address that belongs to Services only, at a port that no service port has.
#[inline(always)]
pub fn without_backend<T: Tables>(
    tables: &T,
    config: &Config,
    address: &[u8; 16],
    from_node: bool,
) -> Decision {
    let in_filter = tables.in_frontend_filter(address);
    let inside = config.is_service_address(address);
    if !in_filter && !inside || !from_node && is_node_address(tables, config, address) {
        return Decision::Pass;
    }
    let own_slot = config
        .cluster_ip(address)
        .and_then(|slot| tables.route(slot))
        .is_some_and(|route| Route::unpack(route).present);
    if own_slot || in_filter && has_frontend(tables, address, FRONTEND_CLUSTER_IP) {
        Decision::Reject(Verdict::RejectedPort)
    } else if inside {
        Decision::Drop(Verdict::DroppedUnallocated)
    } else {
        Decision::Pass
    }
}

/// Selects a backend from the slot's set. False if the set is empty.
#[inline(always)]
fn pick<T: Tables>(tables: &T, request: &Request, route: Route, choice: &mut Choice) -> bool {
    let Some(word) = tables.set(choice.slot) else {
        return false;
    };
    tables.trace(Step::Set, u64::from(choice.slot), word);
    let set = Set::unpack(word);
    if set.count == 0 {
        return false;
    }
    let consistent = request.consistent || route.weighted;
    let id = if consistent {
        tables.rendezvous(set, request.hash)
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are as good")]
        tables.id(set.offset + below(request.hash as u32, u32::from(set.count)))
    };
    let Some(id) = id else {
        return false;
    };
    let Some(backend) = tables.backend(id) else {
        return false;
    };
    tables.trace(Step::Picked, u64::from(id), u64::from(consistent));
    resolve(tables, id, backend, choice)
}

#[inline(always)]
fn resolve<T: Tables>(tables: &T, id: u32, backend: Backend, choice: &mut Choice) -> bool {
    let Some(prefix) = tables.prefix(backend.prefix) else {
        return false;
    };
    choice.address = join(&prefix, backend.host);
    choice.port = backend.port;
    choice.backend = id;
    choice.generation = u32::from(backend.generation);
    true
}

#[cfg(test)]
mod tests;
