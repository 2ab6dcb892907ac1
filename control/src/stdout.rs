//! Whether the program was started without standard output (`>&-`). Before `main`, Rust's runtime opens `/dev/null` in its place: all
//! writes succeed and are lost.
#![expect(
    unsafe_code,
    reason = "only a section of the program is called before the runtime, and the call has no safe form there"
)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_command::CommandError;
use nix::libc::{F_GETFD, STDOUT_FILENO, fcntl};

static CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls each function in this section once, before `main`; it passes arguments that this one does not take.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the call reads no memory.
    let flags = unsafe { fcntl(STDOUT_FILENO, F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// The error of a command whose output would be lost.
pub(crate) fn is_open() -> Result<(), CommandError> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(io::Error::other("standard output is closed").into());
    }
    Ok(())
}
