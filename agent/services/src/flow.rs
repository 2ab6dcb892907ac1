//! Stale UDP flows: connection tracking entries whose service port has no serving endpoint at their backend. The rule is
//! that of kube-proxy's conntrack cleanup.

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::Family;
use crate::key::Protocol;
use crate::port::ServicePort;
use crate::services::Services;
use crate::vip::{NodePort, Vip};

/// A conntrack entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The protocol.
    pub protocol: Protocol,
    /// The original destination address.
    pub destination: IpAddr,
    /// The original destination port.
    pub port: u16,
    /// Source address of replies: the backend, or the destination itself.
    pub reply_source: IpAddr,
    /// Source port of replies.
    pub reply_port: u16,
}

impl Services {
    /// Whether the flow must be deleted, so that its next packet selects a backend.
    pub fn is_stale(&self, flow: &Flow) -> bool {
        if flow.protocol != Protocol::Udp {
            return false;
        }
        let responder = (flow.reply_source, flow.reply_port);
        let port = self.by_address(flow).or_else(|| self.by_node_port(flow));
        port.is_some_and(|port| !port.answers_at(responder))
    }

    fn by_address(&self, flow: &Flow) -> Option<&ServicePort> {
        let vip = Vip {
            address: flow.destination,
            port: flow.port,
            protocol: flow.protocol,
        };
        answered(self.table().claimants(&vip))
    }

    /// By the number of a node port only: kube-proxy does not check the address.
    fn by_node_port(&self, flow: &Flow) -> Option<&ServicePort> {
        let node_port = NodePort {
            family: Family::of(flow.destination),
            port: flow.port,
            protocol: flow.protocol,
        };
        answered(self.table().node_port_claimants(&node_port))
    }
}

/// The first service port with a serving endpoint: flows to one without are not checked.
fn answered<'a>(mut ports: impl Iterator<Item = &'a Arc<ServicePort>>) -> Option<&'a ServicePort> {
    let found = ports.find(|port| port.is_answered());
    found.map(AsRef::as_ref)
}
