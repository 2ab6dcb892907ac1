//! Readiness of a descriptor in the async runtime.
#![expect(
    unsafe_code,
    reason = "tokio asks that the descriptor stays open while it is registered"
)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor to wait until it is readable.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by what watches it: it stays open, and the same, as long as it is watched.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}
