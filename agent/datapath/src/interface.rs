//! An interface of the agent's network namespace.

use super::error::DatapathError;

/// ifindex and link-layer address of an interface of this network namespace.
pub(super) fn interface(name: &str) -> Result<(u32, [u8; 6]), DatapathError> {
    let absent = || DatapathError::Uplink {
        name: name.to_owned(),
    };
    let mut addresses = nix::ifaddrs::getifaddrs().map_err(|_unreadable| absent())?;
    addresses
        .find_map(|interface| {
            let link = interface.address?.as_link_addr().copied()?;
            let ifindex = u32::try_from(link.ifindex()).ok()?;
            (interface.interface_name == name).then_some((ifindex, link.addr()?))
        })
        .ok_or_else(absent)
}
