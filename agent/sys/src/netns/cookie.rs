//! The cookie of a network namespace, by which BPF programs identify it.
#![expect(unsafe_code, reason = "getsockopt(2) of this option has no safe form")]

use std::io;
use std::os::fd::AsRawFd;

/// The cookie of this process's network namespace.
pub fn cookie() -> io::Result<u64> {
    /// `SO_NETNS_COOKIE` (asm-generic/socket.h), Linux 5.14.
    const NETNS_COOKIE: i32 = 71;
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet6,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let mut cookie = 0_u64;
    let mut len = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the kernel fills the eight bytes of `cookie` and no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}
