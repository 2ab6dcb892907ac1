//! Random identifiers, of objects and of the cluster.

use std::{fs, io};

/// A random UUID (RFC 9562, version 4) as text, from the kernel. An error if `/proc` is not mounted.
pub fn random_uid() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(text.trim().to_owned())
}
