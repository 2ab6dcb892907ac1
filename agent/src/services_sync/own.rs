//! Changes of this node: of its addresses, and of its Node object.

use std::net::IpAddr;

use dormouse_agent_inspect::services::SharedServices;
use dormouse_agent_services::{Changes, Family, NodeAddresses};
use tracing::{debug, error, info, warn};

use super::ServicesSync;
use super::source::Batch;
use crate::addresses;
use crate::health;
use crate::own_node::Described;
use crate::source::object::{Change, Object};

/// What a changed Node object says about this node.
pub(super) struct Own {
    pub(super) is_eligible: bool,
    pub(super) described: Described,
}

/// Applies a batch. Returns the changes of the look, if the batch completes it, and what the Node object says, if it changed.
pub(super) fn apply(services: &SharedServices, batch: &Batch) -> (Option<Changes>, Option<Own>) {
    let mut services = services.lock();
    let mut own = None;
    for change in &batch.changes {
        if let Change::Applied(Object::Node(node)) = change
            && node.metadata.name.as_deref() == Some(services.node().name.as_str())
        {
            own = Some(Own {
                is_eligible: health::is_eligible(node),
                described: Described::of(node),
            });
        }
        for problem in services.apply(&change.event()) {
            warn!(%problem, "service");
        }
    }
    if batch.more {
        return (None, own);
    }
    let changes = services.sync();
    debug!(
        ports = changes.ports.len(),
        vips = changes.vips.len(),
        "services changed"
    );
    (Some(changes), own)
}

impl ServicesSync {
    /// The primary addresses by flags and the Node object, in place of those `before`. One that the object has no more stays, and
    /// one that this machine does not have is waited for.
    fn primary(&self, before: &[IpAddr], local: &[IpAddr]) -> Vec<IpAddr> {
        let described = self.described.as_ref();
        let given = self.given.as_ref();
        let now = given.map_or_else(Vec::new, |given| given.primary(described, local));
        let of = |all: &[IpAddr], family| {
            let mut all = all.iter().copied();
            all.find(|address| Family::of(*address) == family)
        };
        let families = [Family::V6, Family::V4].into_iter();
        families
            .filter_map(|family| of(&now, family).or_else(|| of(before, family)))
            .collect()
    }

    /// Applies a change of the node's addresses, on which node ports are served, or of what the Node object says about them.
    pub(super) async fn moved(&mut self) {
        let local = match addresses::all() {
            Ok(local) => local,
            Err(error) => {
                return warn!(%error, "failed to read the node's addresses; node ports keep the previous ones");
            }
        };
        let changes = {
            let mut services = self.services.lock();
            let primary = self.primary(&services.node().addresses.primary, &local);
            let addresses = NodeAddresses { primary, local };
            if services.node().addresses == addresses {
                return;
            }
            self.host_ports.set_addresses(&addresses.local);
            let vips = services.set_node_addresses(addresses);
            self.facts = self.facts.clone().with_node(services.node());
            Changes {
                vips,
                ..Changes::default()
            }
        };
        info!("the node's addresses changed");
        if let Err(error) = self.datapath.services.set_cluster(&self.facts) {
            return error!(%error, "failed to program the node's new addresses");
        }
        // Pods wait for the ports that a look at all objects programs, which this is not: each failure is in the log.
        let _shed = self.serve(changes).await;
    }
}
