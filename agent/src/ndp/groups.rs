//! The solicited-node multicast groups of pods. A switch with MLD snooping delivers a solicitation only to ports that have
//! reported the group (RFC 4541), and a network card only what its filter contains.
//!
//! The kernel joins the group of each proxy neighbour entry (`ip -6 neighbour show proxy`): it reports the group, answers the
//! querier and sets the filter. Such an entry outlives the agent, as pods do; a socket's membership would not. The kernel
//! answers no solicitations for it while the uplink's `proxy_ndp` is off, which is the default.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use dormouse_agent_ipam::NodePrefix;
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use nix::libc;
use rtnetlink::{Error, Handle};

/// The groups of the pods on one interface.
pub(super) struct Groups {
    handle: Handle,
    prefix: NodePrefix,
    uplink: u32,
}

impl Groups {
    /// The groups of pods of the node's prefix on an interface.
    pub(super) fn on(uplink: u32, prefix: NodePrefix, handle: Handle) -> Self {
        Self {
            handle,
            prefix,
            uplink,
        }
    }

    /// Joins the group of a pod; a membership that exists already is no error.
    pub(super) async fn join(&self, pod: Ipv6Addr) -> Result<(), Error> {
        let request = self.handle.neighbours().add(self.uplink, IpAddr::V6(pod));
        let request = request.state(NeighbourState::Permanent);
        let request = request.flags(NeighbourFlags::Proxy).replace();
        request.execute().await
    }

    /// Leaves the group of a pod, unless another pod shares it; a missing membership is no error.
    pub(super) async fn leave(&self, pod: Ipv6Addr) -> Result<(), Error> {
        let mut entry = NeighbourMessage::default();
        entry.header.family = AddressFamily::Inet6;
        entry.header.ifindex = self.uplink;
        entry.header.flags = NeighbourFlags::Proxy;
        let destination = NeighbourAddress::Inet6(pod);
        entry.attributes = vec![NeighbourAttribute::Destination(destination)];
        match self.handle.neighbours().del(entry).execute().await {
            Err(Error::NetlinkError(error)) if error.raw_code() == -libc::ENOENT => Ok(()),
            other => other,
        }
    }

    /// Joins the groups of these pods, and leaves those of all other pods of the node.
    pub(super) async fn settle(&self, living: &BTreeSet<Ipv6Addr>) -> Result<(), Error> {
        let joined = self.joined().await?;
        for pod in joined.difference(living) {
            self.leave(*pod).await?;
        }
        for pod in living.difference(&joined) {
            self.join(*pod).await?;
        }
        Ok(())
    }

    async fn joined(&self) -> Result<BTreeSet<Ipv6Addr>, Error> {
        let entries = self.handle.neighbours().get().proxies();
        let entries = entries.set_address_family(AddressFamily::Inet6).execute();
        let ours = |entry| async move { Ok(self.ours(&entry)) };
        entries.try_filter_map(ours).try_collect().await
    }

    /// The pod of a proxy entry; none for entries that others created.
    fn ours(&self, entry: &NeighbourMessage) -> Option<Ipv6Addr> {
        let pod = entry
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(*address),
                _ => None,
            })?;
        let is_ours = entry.header.ifindex == self.uplink && self.prefix.suffix(pod).is_some();
        is_ours.then_some(pod)
    }
}
