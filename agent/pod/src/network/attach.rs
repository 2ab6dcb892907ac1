//! ADD: lease, veth pair, addresses inside the pod, data path; on an error, everything is undone.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::{Ipv4Wish, Lease, LeaseKey, NetnsId, Suffix};
use dormouse_agent_netlink::{RequestError, Rtnl};
use dormouse_agent_sys::netns;
use dormouse_cni::message::{Link, Wanted, Wired};
use dormouse_cni::pending::since_boot;
use nix::libc;
use nix::net::if_::if_indextoname;

use super::stages::Stages;
use super::{Network, machine, pod_links};
use crate::Sysctls;
use crate::error::NetworkError;
use crate::messages::{self, CREATE, Wiring};
use crate::metrics::{Command, Stage};
use crate::names::{self, BRIDGE_MAC, mac_text};
use crate::{GATEWAY, GATEWAY4, PodEntry, bridge, limiter, shards};

/// Time limit for another request on the same attachment.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of attempts to create a link: the preferred ifindex may be in use, or the bridge may be full of other
/// software's ports.
const TRIES: u32 = 8;
/// Distance between the tried ifindexes; the kernel assigns small ones.
const IFINDEX_STRIDE: u32 = 1 << 24;

impl Network {
    /// Connects `netns` to the network as requested. On an error, nothing is left.
    pub fn add(
        &self,
        key: &LeaseKey,
        netns: BorrowedFd<'_>,
        wanted: &Wanted,
    ) -> Result<Wired, NetworkError> {
        let id = foreign(netns)?;
        if self.leases.lease(key).is_some() {
            self.consume_pending()?;
        }
        let _busy = self
            .in_work
            .enter(key, PATIENCE)
            .ok_or_else(|| NetworkError::Busy(key.clone()))?;
        self.free_vanished(key)?;
        let (address, ipv4) = self.addresses(wanted);
        let request = LeaseRequest {
            address,
            ipv4,
            cohort: wanted.cohort,
            ..LeaseRequest::new(key.clone(), id)
        };
        let mut stages = Stages::begin(&self.wiring, Command::Add);
        let adding = self.remover.adds.begin();
        let lease = self.leases.reserve(&request, since_boot())?;
        stages.ended(Stage::Journal);
        let wired = self.wire(&lease, netns, wanted, &mut stages);
        // A failed ADD deletes its link, which must not wait for itself.
        drop(adding);
        wired.inspect_err(|_| self.undo(&lease))
    }

    /// Removes an earlier pod of the same key whose namespace was deleted without DEL.
    fn free_vanished(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        let earlier = self.leases.lease(key).filter(|lease| lease.wired);
        let Some(lease) = earlier else { return Ok(()) };
        if pod_links()?.iter().any(|link| link.suffix == lease.suffix) {
            return Ok(());
        }
        self.reclaim(&lease)
    }

    fn wire(
        &self,
        lease: &Lease,
        netns: BorrowedFd<'_>,
        wanted: &Wanted,
        stages: &mut Stages<'_>,
    ) -> Result<Wired, NetworkError> {
        let mut wiring = Wiring {
            key: &lease.key,
            suffix: lease.suffix,
            address: self.address(lease.suffix),
            address4: lease.ipv4,
            mac: wanted.mac.unwrap_or(names::pod_mac(lease.suffix)),
            ifindex: names::ifindex(lease.suffix),
            bridge: self.place(lease.suffix)?,
            mtu: self.mtu(),
            limits: wanted.bandwidth,
        };
        self.wire_host(&mut wiring, netns)?;
        let host_us = stages.ended(Stage::Host);
        wire_pod(&wiring, netns, &self.config.sysctls)?;
        let pod_us = stages.ended(Stage::Inside);
        self.settle(&wiring)?;
        let settle_us = stages.ended(Stage::Host);
        self.leases.confirm(lease.suffix)?;
        let confirm_us = stages.ended(Stage::Journal);
        let entry = PodEntry {
            address: wiring.address,
            address4: wiring.address4,
            ifindex: wiring.ifindex,
            mac: wiring.mac,
            direct: wiring.limits.is_none_or(|limits| limits.ingress.is_none()),
        };
        self.publish(lease.suffix, entry)?;
        let table_us = stages.ended(Stage::Datapath);
        tracing::debug!(key = %lease.key, host_us, pod_us, settle_us, confirm_us, table_us, "pod connected");
        Ok(self.wired(&wiring))
    }

    /// Reserves a port on a bridge; creates one more bridge if all are full.
    pub(super) fn place(&self, suffix: Suffix) -> Result<u32, NetworkError> {
        let (mtu, options) = (self.mtu(), self.config.bridge_options());
        let mut shards = self.shards.lock();
        loop {
            if let Some(bridge) = shards.place(suffix) {
                return Ok(bridge);
            }
            let next = bridge::ensure_next(&self.config.bridge, shards.len(), mtu, &options)?;
            tracing::info!(
                bridges = shards.len() + 1,
                "created one more bridge for pods"
            );
            shards.push(next);
        }
    }

    fn wire_host(
        &self,
        wiring: &mut Wiring<'_>,
        netns: BorrowedFd<'_>,
    ) -> Result<(), NetworkError> {
        for _ in 1..TRIES {
            let requests = messages::host_side(wiring, netns.as_raw_fd());
            match self.batch.send(requests) {
                Err(error) if refused(&error, libc::EBUSY) || is_taken(&error, wiring.ifindex) => {
                    wiring.ifindex = wiring.ifindex.wrapping_add(IFINDEX_STRIDE) & 0x7fff_ffff;
                }
                Err(error) if refused(&error, libc::EXFULL) => self.move_on(wiring)?,
                other => return other.map_err(|error| self.explain(error, wiring)),
            }
        }
        let requests = messages::host_side(wiring, netns.as_raw_fd());
        let made = self.batch.send(requests);
        made.map_err(|error| self.explain(error, wiring))
    }

    /// Handles a full bridge: undoes the requests after the refused one, and takes another bridge.
    fn move_on(&self, wiring: &mut Wiring<'_>) -> Result<(), NetworkError> {
        let left = wiring.addresses();
        let left = left.flat_map(|address| messages::remove_host_route(address, wiring.bridge));
        self.batch.send(left.collect())?;
        self.shards.lock().refuse(wiring.suffix);
        wiring.bridge = self.place(wiring.suffix)?;
        Ok(())
    }

    /// The requested address of each family. On a node with an IPv4 range every pod gets an IPv4 address.
    pub(super) fn addresses(&self, wanted: &Wanted) -> (Option<Ipv6Addr>, Ipv4Wish) {
        let (mut v6, mut v4) = (
            None,
            self.config.range4.map_or(Ipv4Wish::None, |_| Ipv4Wish::Any),
        );
        for address in &wanted.addresses {
            match address {
                IpAddr::V6(address) => v6 = Some(*address),
                IpAddr::V4(address) => v4 = Ipv4Wish::Exactly(*address),
            }
        }
        (v6, v4)
    }

    fn settle(&self, wiring: &Wiring<'_>) -> Result<(), NetworkError> {
        let sent = wiring.limits.and_then(|limits| limits.egress);
        let limiter = sent.map(|rate| {
            let (bytes_per_second, bucket) = messages::allowed(rate, wiring.mtu);
            limiter::load(bytes_per_second, bucket)
        });
        let limiter = limiter
            .transpose()
            .map_err(machine("load the limiter of the pod's egress"))?;
        let requests = messages::settle(wiring, limiter.as_ref().map(AsFd::as_fd));
        Ok(self.batch.send(requests)?)
    }

    /// If the undo fails too, the journal shows that the lease was never live, and the next reconciliation removes it.
    pub(super) fn undo(&self, lease: &Lease) {
        if let Err(error) = self.unwire(lease) {
            tracing::error!(key = %lease.key, error = error.chain(), "failed to undo an ADD");
        }
    }

    fn explain(&self, error: RequestError, wiring: &Wiring<'_>) -> NetworkError {
        if refused(&error, libc::EEXIST) {
            return NetworkError::InterfaceExists(wiring.key.ifname.clone());
        }
        if refused(&error, libc::EINVAL) {
            // Beside the bridge, the namespace is the only argument of the request that can be wrong.
            return match self.existing_bridges() {
                Ok(_) => NetworkError::NoNetns(error.source),
                Err(deleted) => deleted,
            };
        }
        error.into()
    }

    fn bridge_name(&self, bridge: u32) -> String {
        let place = self.shards.lock().bridges().position(|one| one == bridge);
        shards::name(&self.config.bridge, place.unwrap_or_default())
    }

    fn wired(&self, wiring: &Wiring<'_>) -> Wired {
        let link = |name: &str, mac| Link {
            name: name.to_owned(),
            mac: mac_text(mac),
        };
        Wired {
            bridge: link(&self.bridge_name(wiring.bridge), BRIDGE_MAC),
            host: link(
                &names::link_name(wiring.suffix),
                names::host_mac(wiring.suffix),
            ),
            pod: link(&wiring.key.ifname, wiring.mac),
            mtu: wiring.mtu,
            address: wiring.address,
            gateway: GATEWAY,
            address4: wiring.address4,
            gateway4: wiring.address4.map(|_| GATEWAY4),
        }
    }
}

/// The identity of a pod's namespace; an error if it is the node's own.
pub(super) fn foreign(netns: BorrowedFd<'_>) -> Result<NetnsId, NetworkError> {
    let id = netns::identity(netns).map_err(NetworkError::NoNetns)?;
    let own = netns::own_identity().map_err(machine("identify the agent's namespace"))?;
    if id == own {
        return Err(NetworkError::OwnNetns);
    }
    Ok(id)
}

fn refused(error: &RequestError, code: i32) -> bool {
    error.what == CREATE && error.source.raw_os_error() == Some(code)
}

/// Whether the ifindex is in use: newer kernels return EEXIST for it, as for a name in use.
fn is_taken(error: &RequestError, ifindex: u32) -> bool {
    refused(error, libc::EEXIST) && if_indextoname(ifindex).is_ok()
}

fn wire_pod(
    wiring: &Wiring<'_>,
    netns: BorrowedFd<'_>,
    sysctls: &Sysctls,
) -> Result<(), NetworkError> {
    let inside = || {
        let ifname = wiring.key.ifname.as_str();
        sysctls.ignore_redirects(ifname).map_err(io::Error::other)?;
        if wiring.address4.is_some() {
            sysctls
                .ignore_redirects4(ifname)
                .map_err(io::Error::other)?;
        }
        let requests = messages::pod_side(wiring);
        Ok(Rtnl::open()?.batch(&requests))
    };
    netns::enter(netns, inside).map_err(machine("enter the pod's namespace"))??;
    Ok(())
}
