//! Wires a pod: address, veth, addresses inside, data path, announcement; or nothing at all.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::{Lease, LeaseKey};
use dormouse_cni::message::{Link, Wired};
use dormouse_cni::pending::since_boot;
use nix::libc;
use nix::net::if_::if_nametoindex;

use super::{Network, machine};
use crate::pod::error::NetworkError;
use crate::pod::messages::{self, CREATE, Wiring};
use crate::pod::names::{self, BRIDGE_MAC, mac_text};
use crate::pod::netlink::{RequestError, Rtnl};
use crate::pod::{GATEWAY, netns, sysctl};

/// How long a request waits for another one on the same attachment.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Interface indexes that are tried for a pod's link before giving up: each may be taken by someone else's.
const IFINDEX_TRIES: u32 = 8;
/// Distance between them; tunnels and bridges have small ones.
const IFINDEX_STRIDE: u32 = 1 << 24;

impl Network {
    /// Wires an interface into `netns`, with a certain address or the next one. On an error nothing is left of it.
    pub fn add(
        &self,
        key: &LeaseKey,
        netns: BorrowedFd<'_>,
        address: Option<Ipv6Addr>,
    ) -> Result<Wired, NetworkError> {
        let id = netns::identity(netns).map_err(NetworkError::NoNetns)?;
        if id == netns::own_identity().map_err(machine("look at the agent's namespace"))? {
            return Err(NetworkError::OwnNetns);
        }
        if self.leases().lease(key).is_some() {
            self.consume_pending()?;
        }
        let _busy = self
            .busy
            .enter(key, PATIENCE)
            .ok_or_else(|| NetworkError::Busy(key.clone()))?;
        self.forget_vanished(key)?;
        let request = LeaseRequest {
            key: key.clone(),
            netns: id,
            address,
        };
        let lease = self.leases().reserve(&request, since_boot())?;
        self.wire(&lease, netns).inspect_err(|_| self.undo(&lease))
    }

    /// An earlier pod of the same name whose namespace died without DEL is in nobody's way.
    fn forget_vanished(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        let held = self.leases().lease(key).cloned();
        let Some(lease) = held else { return Ok(()) };
        if self
            .pod_links()?
            .iter()
            .any(|link| link.suffix == lease.suffix)
        {
            return Ok(());
        }
        self.unwire(&lease)
    }

    fn wire(&self, lease: &Lease, netns: BorrowedFd<'_>) -> Result<Wired, NetworkError> {
        let mut wiring = Wiring {
            key: &lease.key,
            suffix: lease.suffix,
            address: self.address(lease.suffix),
            ifindex: names::ifindex(lease.suffix),
            bridge: self.fabric.bridge,
            proxy_on: self.proxy_on(),
            mtu: self.fabric.mtu,
        };
        self.wire_host(&mut wiring, netns)?;
        wire_pod(&wiring, netns)?;
        self.rtnl().batch(&messages::settle(&wiring))?;
        self.leases().confirm(lease.suffix)?;
        self.tell(lease, wiring.ifindex)?;
        if let Some(advertiser) = &self.advertiser
            && let Err(error) = advertiser.announce(wiring.address)
        {
            tracing::warn!(address = %wiring.address, %error, "failed to announce a pod");
        }
        Ok(self.wired(&wiring))
    }

    fn wire_host(
        &self,
        wiring: &mut Wiring<'_>,
        netns: BorrowedFd<'_>,
    ) -> Result<(), NetworkError> {
        for _ in 1..IFINDEX_TRIES {
            let made = self
                .rtnl()
                .batch(&messages::host_side(wiring, netns.as_raw_fd()));
            match made {
                Err(error) if refused(&error, libc::EBUSY) => {
                    wiring.ifindex = wiring.ifindex.wrapping_add(IFINDEX_STRIDE) & 0x7fff_ffff;
                }
                other => return other.map_err(|error| explain(error, wiring)),
            }
        }
        let made = self
            .rtnl()
            .batch(&messages::host_side(wiring, netns.as_raw_fd()));
        made.map_err(|error| explain(error, wiring))
    }

    /// If this fails too, the journal says that the lease was never live: the next reconciliation finishes it.
    fn undo(&self, lease: &Lease) {
        if let Err(error) = self.unwire(lease) {
            tracing::error!(key = %lease.key, error = error.chain(), "failed to undo an ADD");
        }
    }

    fn wired(&self, wiring: &Wiring<'_>) -> Wired {
        let link = |name: &str, mac| Link {
            name: name.to_owned(),
            mac: mac_text(mac),
        };
        Wired {
            bridge: link(&self.config.bridge, BRIDGE_MAC),
            host: link(
                &names::link_name(wiring.suffix),
                names::host_mac(wiring.suffix),
            ),
            pod: link(&wiring.key.ifname, names::pod_mac(wiring.suffix)),
            mtu: wiring.mtu,
            address: wiring.address,
            gateway: GATEWAY,
        }
    }
}

fn refused(error: &RequestError, code: i32) -> bool {
    error.what == CREATE && error.source.raw_os_error() == Some(code)
}

fn explain(error: RequestError, wiring: &Wiring<'_>) -> NetworkError {
    if refused(&error, libc::EEXIST) {
        return NetworkError::InterfaceExists(wiring.key.ifname.clone());
    }
    error.into()
}

fn wire_pod(wiring: &Wiring<'_>, netns: BorrowedFd<'_>) -> Result<(), NetworkError> {
    let inside = || {
        let ifname = wiring.key.ifname.as_str();
        let ifindex = if_nametoindex(ifname).map_err(io::Error::from)?;
        sysctl::quiet_pod(ifname).map_err(io::Error::other)?;
        let requests = messages::pod_side(wiring.suffix, wiring.address, ifindex);
        Ok(Rtnl::open()?.batch(&requests))
    };
    netns::enter(netns, inside).map_err(machine("wire the pod's side"))??;
    Ok(())
}
