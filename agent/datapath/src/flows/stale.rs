//! Stale UDP flows of Services: deleted, so that their next packet selects a backend, as kube-proxy's conntrack cleanup
//! has it.
//!
//! Most flows become stale with their backend, whose generation changes. A walk finds the others: those to a backend that
//! is ready without serving, and those to an address and port that another Service has by now.

use std::net::IpAddr;

use dormouse_agent_services as services;
use dormouse_agent_services::Protocol;
use dormouse_ebpf::flow::{Flow, FlowKey, SERVICE};
use dormouse_ebpf::packet::UDP;

use super::{Flows, Tables};
use crate::error::DatapathError;
use crate::loads;
use crate::removal::remove_if;
use crate::walk::walk;

/// The flow tables, to be searched for stale flows without access to the data path.
#[derive(Debug, Clone)]
pub struct ServiceFlows(pub(super) Flows);

impl ServiceFlows {
    /// Deletes the UDP flows of Services that `is_stale`. Returns how many. Blocks for up to some seconds: the tables are
    /// read as a whole before the first question.
    pub fn end_stale(
        &self,
        mut is_stale: impl FnMut(&services::Flow) -> bool,
    ) -> Result<usize, DatapathError> {
        let mut tables = self.0.tables.lock();
        let mut known = Vec::new();
        for part in [&tables.opening, &tables.established] {
            walk(&part.flows, part.name, |key: &FlowKey, flow: &Flow| {
                if key.protocol() == UDP && flow.is(SERVICE) && flow.loads() {
                    known.push((*key, to_backend(key, flow)));
                }
                true
            })?;
        }
        known.retain(|(_, flow)| is_stale(flow));
        let mut ended = 0;
        let Tables {
            opening,
            established,
            arrays,
            ..
        } = &mut *tables;
        for (key, judged) in known {
            // Its next packet may have selected another backend meanwhile.
            let is_judged = |flow: &Flow| to_backend(&key, flow) == judged;
            for part in [&mut *opening, &mut *established] {
                if let Some(flow) = remove_if(&mut part.flows, &key, is_judged) {
                    ended += 1;
                    loads::flow_ended(arrays, &flow);
                }
            }
        }
        Ok(ended)
    }
}

/// A UDP flow as the client sends it, and the backend that answers.
fn to_backend(key: &FlowKey, flow: &Flow) -> services::Flow {
    let address = |octets: [u8; 16]| IpAddr::from(octets).to_canonical();
    services::Flow {
        protocol: Protocol::Udp,
        destination: address(key.target),
        port: key.target_port,
        reply_source: address(flow.target),
        reply_port: flow.target_port,
    }
}
