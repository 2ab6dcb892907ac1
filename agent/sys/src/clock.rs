//! Whether the clock of the machine is synchronized.
#![expect(unsafe_code, reason = "adjtimex(2) has no safe form")]

use std::io;
use std::mem;

/// Whether the kernel counts its clock as synchronized, which an NTP client reports to it.
pub fn is_synchronized() -> io::Result<bool> {
    // SAFETY: all zeros is a valid timex; with modes 0, adjtimex changes nothing.
    let mut state: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a timex of this function.
    let status = unsafe { libc::adjtimex(&raw mut state) };
    match status {
        -1 => Err(io::Error::last_os_error()),
        status => Ok(status != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0),
    }
}
