//! Opening a file whose path others control: a FIFO or a device there must not delay the agent.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading; anything else is an error. Never waits.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
    let flags = libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}
