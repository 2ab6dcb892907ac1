//! Client, VIP and backend of a flow, for either direction.

use std::net::{IpAddr, SocketAddr};

use dormouse_ebpf::flow::{Flow, FlowKey, REPLY};

use dormouse_agent_datapath::FrontendAddress;

/// The addresses and ports of a connection.
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) vip: SocketAddr,
    pub(super) backend: SocketAddr,
    /// The client as the backend sees it: the node's address and NAT port where it is masqueraded.
    pub(super) via: SocketAddr,
}

impl Ends {
    pub(super) fn of(key: &FlowKey, flow: &Flow) -> Self {
        let end =
            |address: [u8; 16], port| SocketAddr::new(IpAddr::from(address).to_canonical(), port);
        let here = end(key.source, key.source_port);
        let there = end(key.target, key.target_port);
        let source = end(flow.source, flow.source_port);
        let target = end(flow.target, flow.target_port);
        let (client, vip, backend, via) = if flow.is(REPLY) {
            (target, source, here, there)
        } else {
            (here, there, target, source)
        };
        Self {
            client,
            vip,
            backend,
            via,
        }
    }

    pub(super) fn frontend(&self, protocol: u8) -> FrontendAddress {
        FrontendAddress {
            address: self.vip.ip(),
            port: self.vip.port(),
            protocol,
        }
    }
}
