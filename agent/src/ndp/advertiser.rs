//! Sends advertisements on the uplink.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, socket,
};

use super::advertisement::advertisement;

/// A packet socket on one interface.
pub(super) struct Advertiser {
    socket: OwnedFd,
    /// The interface's link-layer address, and the socket address to send to.
    uplink: LinkAddr,
    mac: [u8; 6],
}

impl Advertiser {
    /// Opens a packet socket that receives nothing.
    pub(super) fn open(uplink: &str) -> io::Result<Self> {
        let none = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the uplink has no Ethernet address",
            )
        };
        let link = getifaddrs()?
            .filter(|entry| entry.interface_name == uplink)
            .find_map(|entry| {
                entry
                    .address
                    .as_ref()
                    .and_then(|a| a.as_link_addr())
                    .copied()
            })
            .ok_or_else(none)?;
        let mac = link.addr().ok_or_else(none)?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        Ok(Self {
            socket,
            uplink: link,
            mac,
        })
    }

    /// Sends one unsolicited advertisement for `target`.
    pub(super) fn announce(&self, target: Ipv6Addr) -> io::Result<()> {
        let frame = advertisement(target, self.mac);
        let to: &dyn SockaddrLike = &self.uplink;
        sendto(self.socket.as_raw_fd(), &frame, to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}
