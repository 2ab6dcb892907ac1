//! CHECK: compares a pod's wiring with what ADD created. Additions and changes by other plugins are tolerated.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use dormouse_agent_ipam::{LeaseKey, NetnsId};
use dormouse_agent_sys::netns;
use dormouse_cni::pending::since_boot;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{LinkAddr, SockaddrStorage};

use super::bridges::Up;
use super::{Network, machine, pod_links};
use crate::error::NetworkError;
use crate::messages;
use crate::names::mac_text;

/// The IPv4 routes of a thread's namespace, one per line: destination and mask are the second and the eighth field.
const ROUTES4: &str = "/proc/thread-self/net/route";

impl Network {
    /// STATUS: fails if ADD could not succeed now.
    pub fn status(&self) -> Result<(), NetworkError> {
        let bridges = self.existing_bridges()?;
        let up = Up::read()?;
        if let Some((name, _)) = bridges
            .into_iter()
            .find(|(name, _)| !up.gateways.contains(name))
        {
            return Err(NetworkError::BridgeDown(name));
        }
        // Unlike a bridge, whose ports are gone with it, an uplink that was created again is followed.
        let uplink = &self.config.uplink;
        if if_nametoindex(uplink.as_str()).is_err() {
            return Err(NetworkError::NoUplink(uplink.clone()));
        }
        if !up.names.contains(uplink) {
            return Err(NetworkError::UplinkDown(uplink.clone()));
        }
        self.leases
            .check_room(since_boot())
            .map_err(NetworkError::Full)
    }

    /// Fails with the first difference. `addresses` and `mac` are from ADD's result.
    pub fn check(
        &self,
        key: &LeaseKey,
        netns: BorrowedFd<'_>,
        addresses: &[IpAddr],
        mac: Option<[u8; 6]>,
    ) -> Result<(), NetworkError> {
        let id = netns::identity(netns).map_err(NetworkError::NoNetns)?;
        let lease = self.leases.lease(key);
        let lease = lease.ok_or_else(|| NetworkError::NotHeld(key.clone()))?;
        let address = self.address(lease.suffix);
        let is_ours = lease.wired;
        let link = pod_links()?
            .into_iter()
            .find(|link| link.suffix == lease.suffix);
        let unnamed = messages::both(address, lease.ipv4).find(|one| !addresses.contains(one));
        let how = if let Some(address) = unnamed {
            Some(format!("prevResult does not contain {address}"))
        } else if lease.netns != NetnsId::default() && lease.netns != id {
            Some("the network namespace is a different one".to_owned())
        } else if !is_ours {
            None
        } else if link.is_none() {
            Some("its link was deleted".to_owned())
        } else if link.is_some_and(|link| !self.is_port(&link)) {
            Some(format!("its link is not a port of {}", self.config.bridge))
        } else {
            let found = || inside(&key.ifname, address, lease.ipv4, mac);
            netns::enter(netns, found).map_err(machine("inspect the pod's namespace"))?
        };
        match how {
            None => Ok(()),
            Some(how) => Err(NetworkError::Differs {
                key: Box::new(key.clone()),
                address,
                how,
            }),
        }
    }
}

/// The first difference inside the pod.
fn inside(
    ifname: &str,
    address: Ipv6Addr,
    address4: Option<Ipv4Addr>,
    mac: Option<[u8; 6]>,
) -> io::Result<Option<String>> {
    let (mut there, mut up, mut held, mut found) = (false, false, HashSet::new(), None);
    for entry in getifaddrs()?.filter(|entry| entry.interface_name == ifname) {
        there = true;
        up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        held.extend(entry.address.as_ref().and_then(ip));
        let link = entry.address.as_ref().and_then(|a| a.as_link_addr());
        found = found.or(link.and_then(LinkAddr::addr));
    }
    let lacking = messages::both(address, address4).find(|one| !held.contains(one));
    let differs = mac.filter(|mac| found.is_some_and(|found| found != *mac));
    Ok(if !there {
        Some(format!("interface {ifname} was deleted"))
    } else if !up {
        Some(format!("interface {ifname} is down"))
    } else if let Some(lacking) = lacking {
        Some(format!("interface {ifname} lacks the address {lacking}"))
    } else if address4.is_some() && !has_default_route4()? {
        Some("there is no IPv4 default route".to_owned())
    } else {
        differs.map(|mac| {
            let mac = mac_text(mac);
            format!("the link-layer address of interface {ifname} is not {mac}")
        })
    })
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
    v6.or_else(|| address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip())))
}

/// Whether the thread's namespace has an IPv4 default route; a later plugin may have changed its next hop.
fn has_default_route4() -> io::Result<bool> {
    let routes = fs::read_to_string(ROUTES4)?;
    let is_default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
    };
    Ok(routes.lines().any(is_default))
}
