//! Compares a pod's wiring with what ADD made. Additions and changes by other plugins are tolerated.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;

use dormouse_agent_ipam::{LeaseKey, NetnsId};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::{Network, machine};
use crate::pod::error::NetworkError;
use crate::pod::netns;

impl Network {
    /// Fails with the first difference. `addresses` are those that ADD's result named.
    pub fn check(
        &self,
        key: &LeaseKey,
        netns: BorrowedFd<'_>,
        addresses: &[Ipv6Addr],
    ) -> Result<(), NetworkError> {
        let id = netns::identity(netns).map_err(NetworkError::NoNetns)?;
        let lease = self.leases().lease(key).cloned();
        let lease = lease.ok_or_else(|| NetworkError::NotHeld(key.clone()))?;
        let address = self.address(lease.suffix);
        let link = self
            .pod_links()?
            .into_iter()
            .find(|link| link.suffix == lease.suffix);
        let how = if !addresses.contains(&address) {
            Some(format!("prevResult does not name {address}"))
        } else if lease.netns != NetnsId::default() && lease.netns != id {
            Some("the network namespace is another one".to_owned())
        } else if link.is_none() {
            Some("its link is gone".to_owned())
        } else if link.is_some_and(|link| link.controller != Some(self.fabric.bridge)) {
            Some(format!("its link is no port of {}", self.config.bridge))
        } else {
            netns::enter(netns, || inside(&key.ifname, address))
                .map_err(machine("look inside the pod's namespace"))?
        };
        match how {
            None => Ok(()),
            Some(how) => Err(NetworkError::Differs {
                key: key.clone(),
                address,
                how,
            }),
        }
    }
}

/// The first difference inside the pod.
fn inside(ifname: &str, address: Ipv6Addr) -> io::Result<Option<String>> {
    let (mut there, mut up, mut addressed) = (false, false, false);
    for entry in getifaddrs()?.filter(|entry| entry.interface_name == ifname) {
        there = true;
        up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        addressed |= entry
            .address
            .as_ref()
            .and_then(|a| a.as_sockaddr_in6())
            .is_some_and(|a| a.ip() == address);
    }
    Ok(if !there {
        Some(format!("interface {ifname} is gone"))
    } else if !up {
        Some(format!("interface {ifname} is down"))
    } else if !addressed {
        Some(format!("interface {ifname} lacks the address"))
    } else {
        None
    })
}
