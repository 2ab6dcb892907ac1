//! Waiting on a descriptor that is owned by its waiter.
#![expect(
    unsafe_code,
    reason = "tokio asks that the descriptor stays open while it is registered"
)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor to wait on until it can be read.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by what watches it: it stays open, and the same, as long as it is watched.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}
