//! Wires a pod: address, veth, addresses inside, data path; or nothing at all.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::{Ipv4Wish, Lease, LeaseKey, NetnsId, Suffix};
use dormouse_cni::message::{Link, Wanted, Wired};
use dormouse_cni::pending::since_boot;
use nix::libc;
use nix::net::if_::if_indextoname;

use super::stages::Stages;
use super::{Network, machine, pod_links};
use crate::error::NetworkError;
use crate::messages::{self, CREATE, Wiring};
use crate::metrics::{Command, Stage};
use crate::names::{self, BRIDGE_MAC, mac_text};
use crate::{GATEWAY, GATEWAY4, PodEntry, bridge, limiter, shards, sysctl};
use dormouse_agent_netlink::{RequestError, Rtnl};
use dormouse_agent_sys::netns;

/// How long a request waits for another one on the same attachment.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a link is tried to be made before giving up: an interface index may be taken by someone else's, a bridge may
/// be full of others' ports.
const TRIES: u32 = 8;
/// Distance between the indexes that are tried; tunnels and bridges have small ones.
const IFINDEX_STRIDE: u32 = 1 << 24;

impl Network {
    /// Wires an interface into `netns` as the runtime wants it. On an error nothing is left of it.
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
        self.forget_vanished(key)?;
        let (address, ipv4) = self.addresses(wanted);
        let request = LeaseRequest {
            address,
            ipv4,
            cohort: wanted.cohort,
            ..LeaseRequest::new(key.clone(), id)
        };
        let mut stages = Stages::begin(&self.wiring, Command::Add);
        let lease = self.leases.reserve(&request, since_boot())?;
        stages.ended(Stage::Journal);
        self.wire(&lease, netns, wanted, &mut stages)
            .inspect_err(|_| self.undo(&lease))
    }

    /// An earlier pod of the same name whose namespace died without DEL is in nobody's way.
    fn forget_vanished(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        let held = self.leases.lease(key).filter(|lease| lease.wired);
        let Some(lease) = held else { return Ok(()) };
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
            proxy_on: self.proxy_on(),
            mtu: self.mtu(),
            limits: wanted.bandwidth,
        };
        self.wire_host(&mut wiring, netns)?;
        let host_us = stages.ended(Stage::Host);
        wire_pod(&wiring, netns)?;
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
        self.tell(lease.suffix, entry)?;
        let table_us = stages.ended(Stage::Datapath);
        tracing::debug!(key = %lease.key, host_us, pod_us, settle_us, confirm_us, table_us, "wired a pod");
        Ok(self.wired(&wiring))
    }

    /// Takes a port on a bridge that has one; makes one more bridge where none has.
    fn place(&self, suffix: Suffix) -> Result<u32, NetworkError> {
        let kind = (self.mtu(), self.config.range4.is_some());
        let mut shards = self.shards.lock();
        loop {
            if let Some(bridge) = shards.place(suffix) {
                return Ok(bridge);
            }
            let next = bridge::ensure_next(&self.config.bridge, shards.len(), kind)?;
            tracing::info!(bridges = shards.len() + 1, "made one more bridge for pods");
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
                other => return other.map_err(|error| explain(error, wiring)),
            }
        }
        let requests = messages::host_side(wiring, netns.as_raw_fd());
        let made = self.batch.send(requests);
        made.map_err(|error| explain(error, wiring))
    }

    /// The kernel took no further port on the bridge: the requests after the refused one are undone there.
    fn move_on(&self, wiring: &mut Wiring<'_>) -> Result<(), NetworkError> {
        let left = wiring.addresses();
        let left = left.flat_map(|address| messages::unreach(address, wiring.bridge, None));
        self.batch.send(left.collect())?;
        self.shards.lock().refuse(wiring.suffix);
        wiring.bridge = self.place(wiring.suffix)?;
        Ok(())
    }

    /// What may be asked for: an address of each family. On a node with an IPv4 range every pod gets one of it.
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
            .map_err(machine("load the limit of what the pod sends"))?;
        let requests = messages::settle(wiring, limiter.as_ref().map(AsFd::as_fd));
        Ok(self.batch.send(requests)?)
    }

    /// If this fails too, the journal says that the lease was never live: the next reconciliation finishes it.
    pub(super) fn undo(&self, lease: &Lease) {
        if let Err(error) = self.unwire(lease) {
            tracing::error!(key = %lease.key, error = error.chain(), "failed to undo an ADD");
        }
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

/// A pod's namespace: not the node's own.
pub(super) fn foreign(netns: BorrowedFd<'_>) -> Result<NetnsId, NetworkError> {
    let id = netns::identity(netns).map_err(NetworkError::NoNetns)?;
    let own = netns::own_identity().map_err(machine("look at the agent's namespace"))?;
    if id == own {
        return Err(NetworkError::OwnNetns);
    }
    Ok(id)
}

fn refused(error: &RequestError, code: i32) -> bool {
    error.what == CREATE && error.source.raw_os_error() == Some(code)
}

/// Newer kernels say of a number what they say of a name: it exists.
fn is_taken(error: &RequestError, ifindex: u32) -> bool {
    refused(error, libc::EEXIST) && if_indextoname(ifindex).is_ok()
}

fn explain(error: RequestError, wiring: &Wiring<'_>) -> NetworkError {
    if refused(&error, libc::EEXIST) {
        return NetworkError::InterfaceExists(wiring.key.ifname.clone());
    }
    // The only thing in the request that can be of a wrong kind.
    if refused(&error, libc::EINVAL) {
        return NetworkError::NoNetns(error.source);
    }
    error.into()
}

fn wire_pod(wiring: &Wiring<'_>, netns: BorrowedFd<'_>) -> Result<(), NetworkError> {
    let inside = || {
        let ifname = wiring.key.ifname.as_str();
        sysctl::quiet_pod(ifname).map_err(io::Error::other)?;
        if wiring.address4.is_some() {
            sysctl::quiet_pod4(ifname).map_err(io::Error::other)?;
        }
        let requests = messages::pod_side(wiring);
        Ok(Rtnl::open()?.batch(&requests))
    };
    netns::enter(netns, inside).map_err(machine("wire the pod's side"))??;
    Ok(())
}
