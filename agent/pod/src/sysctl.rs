//! Settings that the kernel offers only as files, of the calling thread's network namespace.

use std::fs;
use std::io;

const IPV6: &str = "/proc/sys/net/ipv6";
const IPV4: &str = "/proc/sys/net/ipv4";

/// The neighbour table is shared by all namespaces and its entries of pods count: (setting, least value).
const NEIGHBOR_LIMITS: [(&str, u64); 3] = [
    ("gc_thresh1", 8192),
    ("gc_thresh2", 32_768),
    ("gc_thresh3", 65_536),
];

/// Kinds of reverse path filters.
const STRICT: u8 = 1;
const LOOSE: &str = "2";

/// A setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to set {path} to {value}")]
pub struct SysctlError {
    /// The file.
    pub path: String,
    /// What it should say.
    pub value: String,
    /// Why it does not.
    #[source]
    pub source: io::Error,
}

/// Makes the node a router that keeps its own default routes: an interface that listens to router advertisements stops
/// to once it forwards, and loses what it learnt, unless told otherwise before.
pub(crate) fn forward(uplink: &str) -> Result<(), SysctlError> {
    for interface in interfaces()? {
        keep_listening(&interface, interface == uplink)?;
    }
    set(&format!("{IPV6}/conf/all/forwarding"), "1")?;
    make_room(IPV6)
}

/// The same for IPv4.
pub(crate) fn forward4() -> Result<(), SysctlError> {
    set(&format!("{IPV4}/ip_forward"), "1")?;
    make_room(IPV4)
}

/// Enlarges a family's neighbour table.
fn make_room(family: &str) -> Result<(), SysctlError> {
    for (name, least) in NEIGHBOR_LIMITS {
        // Only the initial namespace has them.
        let path = format!("{family}/neigh/default/{name}");
        let now = read(&path).and_then(|value| value.parse::<u64>().ok());
        if now.is_some_and(|now| now < least) {
            set(&path, &least.to_string())?;
        }
    }
    Ok(())
}

/// Only 1 stops to listen; 2 is what keeps on. 0 is left alone too: systemd-networkd and NetworkManager write it where they
/// listen themselves. Apart from the uplink, an interface that forwards already listens no more, and that stays so.
fn keep_listening(interface: &str, is_uplink: bool) -> Result<(), SysctlError> {
    let says = |name: &str, value: &str| {
        read(&format!("{IPV6}/conf/{interface}/{name}")).is_some_and(|now| now == value)
    };
    if says("accept_ra", "1") && (is_uplink || says("forwarding", "0")) {
        write(&format!("{IPV6}/conf/{interface}/accept_ra"), "2")?;
    }
    Ok(())
}

/// All interfaces; not what is said of those to come, which follow the kernel's rule.
fn interfaces() -> Result<Vec<String>, SysctlError> {
    let names = nix::net::if_::if_nameindex().map_err(|error| SysctlError {
        path: format!("{IPV6}/conf"),
        value: "listen to router advertisements".to_owned(),
        source: error.into(),
    })?;
    let names = names
        .iter()
        .map(|name| name.name().to_string_lossy().into_owned());
    Ok(names.collect())
}

/// The uplink answers at once for neighbours that it stands for.
pub(crate) fn proxy_neighbors(uplink: &str) -> Result<(), SysctlError> {
    set(&format!("{IPV6}/conf/{uplink}/proxy_ndp"), "1")?;
    set(&format!("{IPV6}/neigh/{uplink}/proxy_delay"), "0")
}

/// A bridge takes no part in autoconfiguration.
pub(crate) fn quiet_bridge(bridge: &str) -> Result<(), SysctlError> {
    set(&format!("{IPV6}/conf/{bridge}/accept_ra"), "0")
}

/// What a pod answers in a service's name comes from where no route to that name leads. Programs check what pods send; of
/// the kernel's own two checks the loose one lets it pass, and counts where both are asked for.
pub(crate) fn trust_bridge4(bridge: &str) -> Result<(), SysctlError> {
    let path = |interface: &str| format!("{IPV4}/conf/{interface}/rp_filter");
    let says = |interface: &str| read(&path(interface)).and_then(|value| value.parse::<u8>().ok());
    if says("all").max(says(bridge)) == Some(STRICT) {
        return write(&path(bridge), LOOSE);
    }
    Ok(())
}

/// Pods reach each other through the gateway; the redirects that the kernel sends because both are behind one link
/// would lead them to a neighbour that their isolated port cannot reach. A new link has neither setting.
pub(crate) fn quiet_pod(ifname: &str) -> Result<(), SysctlError> {
    write(&format!("{IPV6}/conf/{ifname}/accept_redirects"), "0")?;
    write(&format!("{IPV6}/conf/{ifname}/accept_ra"), "0")
}

/// The same for IPv4, where the namespace's own setting counts too.
pub(crate) fn quiet_pod4(ifname: &str) -> Result<(), SysctlError> {
    write(&format!("{IPV4}/conf/all/accept_redirects"), "0")?;
    write(&format!("{IPV4}/conf/{ifname}/accept_redirects"), "0")
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn set(path: &str, value: &str) -> Result<(), SysctlError> {
    if read(path).is_some_and(|now| now == value) {
        return Ok(());
    }
    write(path, value)
}

fn write(path: &str, value: &str) -> Result<(), SysctlError> {
    fs::write(path, value).map_err(|source| SysctlError {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}
