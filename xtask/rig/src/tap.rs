//! Frames on an interface: captured, and sent as they are.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::time::{Duration, Instant};

use dormouse_world::{PacketSocket, enter};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{MsgFlags, recv, setsockopt};
use nix::sys::time::TimeVal;

use crate::wait::PATIENCE;

const TICK: Duration = Duration::from_millis(10);

/// Captures all frames of one interface from when it is opened, also those that the interface itself sends.
#[derive(Debug)]
pub struct Tap(PacketSocket);

impl Tap {
    /// Opens an interface of the namespace that the file `netns` names.
    pub fn on(netns: &Path, interface: &str) -> Self {
        enter(netns, || Self::here(interface)).unwrap().unwrap()
    }

    fn here(interface: &str) -> io::Result<Self> {
        let socket = PacketSocket::open(interface)?;
        let tick = TimeVal::new(0, i64::from(TICK.subsec_micros()));
        setsockopt(&socket, ReceiveTimeout, &tick)?;
        Ok(Self(socket))
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        assert_eq!(self.0.send(frame).unwrap(), frame.len());
    }

    /// The next frame, if one comes before the deadline.
    fn frame(&self, deadline: Instant) -> Option<Vec<u8>> {
        let (socket, mut bytes) = (self.0.as_fd().as_raw_fd(), [0; 2048]);
        while Instant::now() < deadline {
            match recv(socket, &mut bytes, MsgFlags::empty()) {
                Ok(length) => return Some(bytes[..length].to_vec()),
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    /// The frames of the next `time` that `read` can read.
    pub fn watch<T>(&self, time: Duration, read: impl Fn(&[u8]) -> Option<T>) -> Vec<T> {
        let deadline = Instant::now() + time;
        let mut seen = Vec::new();
        while let Some(frame) = self.frame(deadline) {
            seen.extend(read(&frame));
        }
        seen
    }

    /// The first `count` frames that `read` can read, and those that come in the `time` after them: one too many, or none.
    pub fn several<T>(
        &self,
        count: usize,
        time: Duration,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Vec<T> {
        let what = format!("{count} frames");
        let mut seen: Vec<_> = (0..count).map(|_| self.until(&what, &read)).collect();
        seen.extend(self.watch(time, &read));
        seen
    }

    /// The first frame that `read` can read; panics with `what` when none comes.
    pub fn until<T>(&self, what: &str, read: impl Fn(&[u8]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        while let Some(frame) = self.frame(deadline) {
            if let Some(found) = read(&frame) {
                return found;
            }
        }
        panic!("waited in vain for {what}")
    }
}
