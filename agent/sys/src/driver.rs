//! The driver of a link, as ethtool(8) names it.
#![expect(
    unsafe_code,
    reason = "ioctl(2) has no safe form; each block says why it is sound"
)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `SIOCETHTOOL` of linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// `ETHTOOL_GDRVINFO` of linux/ethtool.h.
const GET_INFO: u32 = 3;

/// `struct ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct Info {
    command: u32,
    driver: [u8; 32],
    /// The versions, the bus, and counts.
    rest: [u32; 40],
}

/// The driver of a link of this network namespace: `veth`, `virtio_net`, `ice`, …
///
/// # Errors
///
/// The link does not exist, or its driver answers no such call.
pub fn driver(link: &str) -> io::Result<String> {
    let mut info = Info {
        command: GET_INFO,
        driver: [0; 32],
        rest: [0; 40],
    };
    // SAFETY: all zero is a valid value of this plain struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let name = request.ifr_name.iter_mut().rev().skip(1).rev();
    for (to, from) in name.zip(link.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the kernel reads `request`, which ends with a zero, and writes `info`; both live until the call returns.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = info.driver.split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(name.unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_the_kernels() {
        assert_eq!(size_of::<Info>(), 196);
    }

    #[test]
    fn a_link_that_does_not_exist_has_no_driver() {
        let error = driver("absent0").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(driver("a-name-longer-than-any-link-has").is_err());
    }
}
