//! Which known UDP flows lead to a backend that does not answer any more.

use std::net::IpAddr;

use crate::address::Family;
use crate::key::Protocol;
use crate::port::ServicePort;
use crate::services::{Services, Strictness};
use crate::table::{NodePort, Vip};

/// A flow as the kernel remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its protocol.
    pub protocol: Protocol,
    /// Where the client sent it to.
    pub destination: IpAddr,
    /// The port there.
    pub port: u16,
    /// Who answers: a backend, or the destination itself.
    pub reply_source: IpAddr,
    /// The port from which it answers.
    pub reply_port: u16,
}

impl Services {
    /// Whether the flow must be forgotten, so that its next packet finds a backend that answers.
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
        self.judging(self.table().claimants(&vip).map(AsRef::as_ref))
    }

    /// kube-proxy looks at the number alone, whatever the destination; we want an address of the node.
    fn by_node_port(&self, flow: &Flow) -> Option<&ServicePort> {
        let ours = self.strictness() == Strictness::Ours;
        if ours && !self.node().is_local(flow.destination) {
            return None;
        }
        let node_port = NodePort {
            family: Family::of(flow.destination),
            port: flow.port,
            protocol: flow.protocol,
        };
        self.judging(
            self.table()
                .node_port_claimants(&node_port)
                .map(AsRef::as_ref),
        )
    }

    /// The service port that a flow belongs to. kube-proxy passes over those without endpoints: its flows stay.
    fn judging<'a>(
        &self,
        mut ports: impl Iterator<Item = &'a ServicePort>,
    ) -> Option<&'a ServicePort> {
        match self.strictness() {
            Strictness::Ours => ports.next(),
            Strictness::KubeProxy => ports.find(|port| port.is_answered()),
        }
    }
}
