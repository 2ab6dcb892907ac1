//! Limits and checks of names that the node stores: network, container id, interface. Pure.

use crate::error::CniError;

/// Longest container id, in bytes; runtimes use 64. It is part of an interface's alias.
pub const CONTAINER_ID_LEN_MAX: usize = 128;
/// Longest network name, in bytes. It is part of an interface's alias.
pub const NETWORK_LEN_MAX: usize = 64;
/// The kernel's limit for an interface's name, in bytes.
pub const IFNAME_LEN_MAX: usize = 15;

/// Checks a network name or a container id; the error is the rest of a sentence that begins with what it is.
pub(crate) fn check_name(name: &str, len_max: usize) -> Result<(), String> {
    if name.len() > len_max {
        return Err(format!("is longer than {len_max} bytes"));
    }
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !first || !bytes.all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        return Err(format!(
            "`{name}` does not match [a-zA-Z0-9][a-zA-Z0-9_.-]*"
        ));
    }
    Ok(())
}

pub(crate) fn check_ifname(name: &str) -> Result<(), CniError> {
    let reason = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > IFNAME_LEN_MAX {
        format!("is longer than {IFNAME_LEN_MAX} bytes")
    } else if matches!(name, "." | "..") {
        "must not be . or ..".to_owned()
    } else if name
        .chars()
        .any(|c| matches!(c, '/' | ':') || c.is_whitespace())
    {
        "must not contain /, : or white space".to_owned()
    } else {
        return Ok(());
    };
    Err(CniError::invalid_environment(format!(
        "CNI_IFNAME `{name}` {reason}"
    )))
}
