//! A packet socket on one interface: frames as they are, with their link-layer headers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, sendto, socket,
};

/// Sends frames by an interface, and receives all of its frames from when it is opened, also those that the interface itself sends.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    link: LinkAddr,
}

impl PacketSocket {
    /// Opens one on an interface of the calling thread's network namespace.
    pub fn open(interface: &str) -> io::Result<Self> {
        let link = getifaddrs()?
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| entry.address?.as_link_addr().copied())
            .ok_or_else(|| io::Error::other(format!("no interface `{interface}`")))?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        bind(socket.as_raw_fd(), &link)?;
        Ok(Self { socket, link })
    }

    /// Sends a frame; returns its length.
    pub fn send(&self, frame: &[u8]) -> io::Result<usize> {
        let socket = self.socket.as_raw_fd();
        Ok(sendto(socket, frame, &self.link, MsgFlags::empty())?)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
