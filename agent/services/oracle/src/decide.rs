//! The decision for the first packet of a connection.

use std::net::IpAddr;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{
    Answer, Backend, Frontend, Policy, Protocol, ServicePort, Services, Set, Source, Vip,
};

use crate::affinity::Affinities;

/// The first packet of a connection, with its sender: this node, a pod, or another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Its destination port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// The decision for a packet.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// Not for a Service: it passes unchanged.
    Pass,
    /// Rejected with ICMP or ICMPv6 port unreachable.
    Reject,
    /// Dropped.
    Drop,
    /// DNAT to a backend.
    Translate(Translation<'a>),
}

/// The decision for a packet with a certain backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Forwarded to the backend.
    Deliver {
        /// Whether its source is masqueraded by the node's address.
        masquerade: bool,
    },
    /// Rejected: the backend's address is itself a cluster IP.
    Reject,
    /// Dropped: the backend's address is in a range of cluster IPs, but no Service has it.
    Drop,
}

/// The backends for a packet, of which one is selected at random by weight.
#[derive(Clone, Copy, Debug)]
pub struct Translation<'a> {
    services: &'a Services,
    packet: Packet,
    /// The service port of the VIP.
    pub port: &'a ServicePort,
    /// The set of backends for the packet's policy.
    pub set: Set,
    /// The only candidate, if the client has an affinity entry.
    pub bound: Option<Backend>,
    masquerade: bool,
}

impl<'a> Translation<'a> {
    /// The candidates; at least one.
    pub fn backends(&self) -> impl Iterator<Item = Backend> + use<'a> {
        let bound = self.bound;
        let free = self.port.set(self.set).filter(move |_| bound.is_none());
        bound.into_iter().chain(free)
    }

    /// The decision for the packet with this backend.
    pub fn fate(&self, backend: Backend) -> Fate {
        let node = self.services.node();
        let sent_by_node = node.is_local(self.packet.source);
        match unserved(self.services, backend.address, sent_by_node) {
            Some(Decision::Reject) => return Fate::Reject,
            Some(_) => return Fate::Drop,
            None => {}
        }
        let leaves = sent_by_node || !node.is_local(backend.address);
        let masquerade = leaves && (self.masquerade || self.is_hairpin(backend));
        Fate::Deliver { masquerade }
    }

    /// Whether a backend connects to itself through a Service: it is masqueraded, as its own address must not be the source.
    fn is_hairpin(&self, backend: Backend) -> bool {
        let (address, port) = (backend.address, backend.port);
        let protocol = self.packet.protocol;
        let table = self.services.table();
        address == self.packet.source
            && table.is_local_backend(&Vip {
                address,
                port,
                protocol,
            })
    }

    /// The decision for the packet, if it is the same for every backend and not delivery.
    fn dead_end(&self) -> Option<Decision<'a>> {
        let mut fates = self.backends().map(|backend| self.fate(backend));
        let first = fates.next()?;
        let decision = match first {
            Fate::Deliver { .. } => return None,
            Fate::Reject => Decision::Reject,
            Fate::Drop => Decision::Drop,
        };
        fates.all(|fate| fate == first).then_some(decision)
    }
}

/// The decision for a packet, given the affinity entries of its client.
pub fn decide<'a>(
    services: &'a Services,
    packet: &Packet,
    affinities: &Affinities,
    now_ms: u64,
) -> Decision<'a> {
    let vip = Vip {
        address: packet.destination,
        port: packet.port,
        protocol: packet.protocol,
    };
    let Some(frontend) = services.frontend(&vip) else {
        let sent_by_node = services.node().is_local(packet.source);
        let unserved = unserved(services, packet.destination, sent_by_node);
        return unserved.unwrap_or(Decision::Pass);
    };
    if let Some(refusal) = refusal(services, &frontend, packet.source) {
        return refusal;
    }
    let (answer, masquerade) = answer(services, &frontend, packet.source);
    let set = match answer {
        Answer::Reject => return Decision::Reject,
        Answer::Drop => return Decision::Drop,
        Answer::Backends(set) => set,
    };
    let translation = Translation {
        services,
        packet: *packet,
        port: frontend.port,
        set,
        bound: affinities.chosen(frontend.port, set, packet.source, now_ms),
        masquerade,
    };
    translation
        .dead_end()
        .unwrap_or(Decision::Translate(translation))
}

/// The decision for packets to an address of the service ranges without a service port.
fn unserved(services: &Services, address: IpAddr, sent_by_node: bool) -> Option<Decision<'static>> {
    if !sent_by_node && services.node().is_local(address) {
        None
    } else if services.table().is_cluster_ip(address) {
        Some(Decision::Reject)
    } else {
        services
            .node()
            .is_service_address(address)
            .then_some(Decision::Drop)
    }
}

/// The decision for a source outside the source ranges of a load balancer's address; `None` if it is admitted.
fn refusal(
    services: &Services,
    frontend: &Frontend<'_>,
    source: IpAddr,
) -> Option<Decision<'static>> {
    let addresses = &*frontend.port.addresses;
    let ranges = addresses
        .source_ranges
        .as_ref()
        .filter(|_| frontend.limited)?;
    if ranges.is_empty() {
        // Rejected, not dropped: an empty list is a mistake, which a reject makes visible.
        return Some(Decision::Reject);
    }
    let holds = |address: IpAddr| ranges.iter().any(|range| range.contains(address));
    // If the node's primary address is admitted, so is the VIP as a source: a node's own packets to it may have it.
    let primary = services.node().primary(frontend.port.id.family);
    let is_vip = addresses.load_balancer_ips.contains(&source);
    let admitted = holds(source) || is_vip && primary.is_some_and(holds);
    (!admitted).then_some(Decision::Drop)
}

/// The service port's answer for the source, and whether the source is masqueraded for every backend.
fn answer(services: &Services, frontend: &Frontend<'_>, source: IpAddr) -> (Answer, bool) {
    let (node, port) = (services.node(), frontend.port);
    if frontend.kind == Kind::ClusterIp {
        let outside = node.pod_range(port.id.family).is_some() && !node.is_pod(source);
        return (port.internal_answer(), node.masquerade_all || outside);
    }
    let origin = if node.is_pod(source) {
        Source::Pod
    } else if node.is_local(source) {
        Source::Node
    } else {
        Source::Outside
    };
    let masquerade = port.external == Policy::Cluster || origin == Source::Node;
    (port.external_answer(origin), masquerade)
}
