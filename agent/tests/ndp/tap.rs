//! Frames on an interface, both ways.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, sendto,
    setsockopt, socket,
};
use nix::sys::time::TimeVal;

use crate::frame::{Advertisement, advertisement};
use crate::place::{PATIENCE, Place};

const TICK: Duration = Duration::from_millis(10);

/// Sees all frames of one interface from when it is made, also those that the interface itself sends.
pub(crate) struct Tap {
    socket: OwnedFd,
    link: LinkAddr,
}

impl Tap {
    pub(crate) fn on(place: &Place, interface: &str) -> Self {
        place.inside(|| {
            let link = getifaddrs()?
                .filter(|entry| entry.interface_name == interface)
                .find_map(|entry| entry.address?.as_link_addr().copied())
                .ok_or_else(|| io::Error::other("no such interface"))?;
            let socket = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?;
            bind(socket.as_raw_fd(), &link)?;
            let tick = TimeVal::new(0, i64::from(TICK.subsec_micros()));
            setsockopt(&socket, ReceiveTimeout, &tick)?;
            Ok(Self { socket, link })
        })
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        let sent = sendto(
            self.socket.as_raw_fd(),
            frame,
            &self.link,
            MsgFlags::empty(),
        );
        assert_eq!(sent.unwrap(), frame.len());
    }

    /// The next frame, if one comes before the deadline.
    fn frame(&self, deadline: Instant) -> Option<Vec<u8>> {
        let mut bytes = [0; 2048];
        while Instant::now() < deadline {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(length) => return Some(bytes[..length].to_vec()),
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    /// What the next frames within that time are, as far as they are of interest.
    pub(crate) fn watch<T>(
        &self,
        time: Duration,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Vec<(Instant, T)> {
        let deadline = Instant::now() + time;
        let mut seen = Vec::new();
        while let Some(frame) = self.frame(deadline) {
            seen.extend(read(&frame).map(|found| (Instant::now(), found)));
        }
        seen
    }

    /// The first frame of interest.
    pub(crate) fn until<T>(&self, what: &str, read: impl Fn(&[u8]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        while let Some(frame) = self.frame(deadline) {
            if let Some(found) = read(&frame) {
                return found;
            }
        }
        panic!("waited in vain for {what}")
    }

    /// The next solicited advertisement.
    pub(crate) fn answer(&self) -> Advertisement {
        self.until("an answer", |frame| {
            advertisement(frame).filter(|seen| seen.is_solicited)
        })
    }
}
