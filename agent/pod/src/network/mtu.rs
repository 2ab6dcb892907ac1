//! The MTU of bridges and pods follows the uplink's, which clouds and tunnels set to different values.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dormouse_agent_ipam::Lease;
use dormouse_agent_netlink::Rtnl;
use dormouse_agent_sys::netns;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use nix::net::if_::if_nametoindex;

use super::{Network, machine};
use crate::bridge::mtu_behind;
use crate::error::NetworkError;
use crate::messages;
use crate::recovery::PodLink;

impl Network {
    /// Applies the uplink's MTU, which is in `links`, to bridges and pods.
    pub(super) fn apply_uplink_mtu(
        &self,
        links: &[LinkMessage],
        pods: &[PodLink],
    ) -> Result<(), NetworkError> {
        let name = LinkAttribute::IfName(self.config.uplink.clone());
        let uplink = links.iter().find(|link| link.attributes.contains(&name));
        let Some(mtu) = uplink.and_then(mtu_behind) else {
            return Ok(());
        };
        let before = self.mtu();
        if before != mtu {
            tracing::info!(
                before,
                mtu,
                "the uplink's MTU changed; applying it to bridges and pods"
            );
            let bridges: Vec<u32> = self.shards.lock().bridges().collect();
            let bridges = bridges.into_iter();
            let requests = bridges.map(|bridge| messages::set_mtu(bridge, mtu));
            self.batch.send(requests.collect())?;
            // Stored only now: what failed is tried again at the next reconciliation.
            self.mtu.store(mtu, Ordering::Relaxed);
        }
        self.apply_mtu(pods)
    }

    /// Sets the uplink's MTU on both sides of the pods' links whose host side has another one. If a pod's namespace cannot be
    /// found, both sides stay as they are, because different MTUs lose packets; the node then sends "packet too big" to the
    /// pod.
    pub(super) fn apply_mtu(&self, pods: &[PodLink]) -> Result<(), NetworkError> {
        let mtu = self.mtu();
        let unfit: Vec<&PodLink> = pods.iter().filter(|pod| pod.mtu != mtu).collect();
        if unfit.is_empty() {
            return Ok(());
        }
        let mounted = netns::mounted().map_err(machine("list the pods' namespaces"))?;
        let mut hosts = Vec::new();
        for pod in unfit {
            let Some(lease) = self.lease_of(pod) else {
                continue;
            };
            let path = mounted.get(&lease.netns.ino);
            let set = path
                .map(|path| File::open(path).and_then(|file| apply_mtu_inside(&file, &lease, mtu)));
            match set {
                Some(Ok(())) => hosts.push(messages::set_mtu(pod.ifindex, mtu)),
                Some(Err(error)) => {
                    tracing::debug!(key = %lease.key, %error, "the MTU of a pod could not be changed");
                }
                None => {
                    tracing::debug!(key = %lease.key, "the MTU of a pod without a mounted namespace is not changed");
                }
            }
        }
        Ok(self.batch.send(hosts)?)
    }

    fn lease_of(&self, pod: &PodLink) -> Option<Arc<Lease>> {
        let alias = pod.alias.as_ref()?;
        self.leases.lease(&alias.key)
    }
}

fn apply_mtu_inside(file: &File, lease: &Lease, mtu: u32) -> io::Result<()> {
    if netns::identity(file)? != lease.netns {
        return Err(io::Error::other("its path is another namespace now"));
    }
    netns::enter(file.as_fd(), || {
        let ifindex = if_nametoindex(lease.key.ifname.as_str())?;
        let request = messages::set_mtu(ifindex, mtu);
        Rtnl::open()?.batch(&[request]).map_err(io::Error::other)
    })
}
