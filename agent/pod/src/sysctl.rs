//! Sysctls of the calling thread's network namespace, which netlink does not offer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of the network's sysctls, where `/proc/sys` can be written.
pub const SYSCTLS_DEFAULT: &str = "/proc/sys/net";

/// Minimum sizes of the neighbour table, which all namespaces share and which contains the pods' entries.
const NEIGHBOR_LIMITS: [(&str, u64); 3] = [
    ("gc_thresh1", 8192),
    ("gc_thresh2", 32_768),
    ("gc_thresh3", 65_536),
];

/// Values of rp_filter.
const STRICT: u8 = 1;
const LOOSE: &str = "2";

/// Why a sysctl could not be set.
#[derive(Debug, thiserror::Error)]
#[error("failed to set {path} to {value}")]
pub struct SysctlError {
    /// Path of the file.
    pub path: String,
    /// The required value.
    pub value: String,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// The network's sysctls below a folder. Of any mount of procfs, they are those of the calling thread's namespace.
#[derive(Clone, Debug)]
pub struct Sysctls(Arc<Path>);

impl Default for Sysctls {
    fn default() -> Self {
        Self::below(SYSCTLS_DEFAULT.into())
    }
}

impl Sysctls {
    /// Those below this folder.
    pub fn below(folder: PathBuf) -> Self {
        Self(folder.into())
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0.display())
    }

    /// Enables IPv6 forwarding, and keeps the node's default routes: without accept_ra=2, a forwarding interface ignores router
    /// advertisements and loses the routes it has learned.
    pub(crate) fn forward(&self, uplink: &str) -> Result<(), SysctlError> {
        for interface in self.interfaces()? {
            self.keep_accepting_ra(&interface, interface == uplink)?;
        }
        set(&self.path("ipv6/conf/all/forwarding"), "1")?;
        self.make_room("ipv6")
    }

    /// Enables IPv4 forwarding.
    pub(crate) fn forward4(&self) -> Result<(), SysctlError> {
        set(&self.path("ipv4/ip_forward"), "1")?;
        self.make_room("ipv4")
    }

    /// Enlarges a family's neighbour table.
    fn make_room(&self, family: &str) -> Result<(), SysctlError> {
        for (name, least) in NEIGHBOR_LIMITS {
            // The files exist in the initial namespace only.
            let path = self.path(&format!("{family}/neigh/default/{name}"));
            let now = read(&path).and_then(|value| value.parse::<u64>().ok());
            if now.is_some_and(|now| now < least) {
                set(&path, &least.to_string())?;
            }
        }
        Ok(())
    }

    /// Sets accept_ra from 1 to 2. 0 is not changed: systemd-networkd and NetworkManager write it when they process
    /// advertisements themselves. Apart from the uplink, an interface that forwards already ignores advertisements, and stays so.
    fn keep_accepting_ra(&self, interface: &str, is_uplink: bool) -> Result<(), SysctlError> {
        let is = |name: &str, value: &str| {
            read(&self.path(&format!("ipv6/conf/{interface}/{name}")))
                .is_some_and(|now| now == value)
        };
        if is("accept_ra", "1") && (is_uplink || is("forwarding", "0")) {
            write(&self.path(&format!("ipv6/conf/{interface}/accept_ra")), "2")?;
        }
        Ok(())
    }

    /// All interfaces, without the defaults for new ones, which follow the kernel's rule.
    fn interfaces(&self) -> Result<Vec<String>, SysctlError> {
        let names = nix::net::if_::if_nameindex().map_err(|error| SysctlError {
            path: self.path("ipv6/conf"),
            value: "accept router advertisements".to_owned(),
            source: error.into(),
        })?;
        let names = names
            .iter()
            .map(|name| name.name().to_string_lossy().into_owned());
        Ok(names.collect())
    }

    /// Disables autoconfiguration on a bridge.
    pub(crate) fn ignore_router_advertisements(&self, bridge: &str) -> Result<(), SysctlError> {
        set(&self.path(&format!("ipv6/conf/{bridge}/accept_ra")), "0")
    }

    /// Sets rp_filter to loose on an IPv4 bridge: replies of pods in a VIP's name have a source address without a route to the
    /// pod. The programs check the pods' source addresses, so strict mode is not needed.
    pub(crate) fn loosen_rp_filter(&self, bridge: &str) -> Result<(), SysctlError> {
        let path = |interface: &str| self.path(&format!("ipv4/conf/{interface}/rp_filter"));
        let filter =
            |interface: &str| read(&path(interface)).and_then(|value| value.parse::<u8>().ok());
        if filter("all").max(filter(bridge)) == Some(STRICT) {
            return write(&path(bridge), LOOSE);
        }
        Ok(())
    }

    /// Disables ICMPv6 redirects and router advertisements inside the pod: pods reach each other through the gateway, and the
    /// kernel's redirects (both pods are behind one link) would point to a neighbour that the isolated port cannot reach.
    pub(crate) fn ignore_redirects(&self, ifname: &str) -> Result<(), SysctlError> {
        write(
            &self.path(&format!("ipv6/conf/{ifname}/accept_redirects")),
            "0",
        )?;
        write(&self.path(&format!("ipv6/conf/{ifname}/accept_ra")), "0")
    }

    /// The same for IPv4, where the namespace's setting counts too.
    pub(crate) fn ignore_redirects4(&self, ifname: &str) -> Result<(), SysctlError> {
        write(&self.path("ipv4/conf/all/accept_redirects"), "0")?;
        write(
            &self.path(&format!("ipv4/conf/{ifname}/accept_redirects")),
            "0",
        )
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_below_the_given_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, now) in [
            ("ipv6/conf/all/forwarding", "0\n"),
            ("ipv6/conf/lo/accept_ra", "1\n"),
            ("ipv6/conf/lo/forwarding", "0\n"),
            ("ipv6/neigh/default/gc_thresh3", "1024\n"),
            ("ipv6/conf/b0/accept_ra", "1\n"),
            ("ipv4/conf/all/rp_filter", "1\n"),
            ("ipv4/conf/b0/rp_filter", "0\n"),
        ] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), now).unwrap();
        }
        let sysctls = Sysctls::below(folder.path().to_owned());
        sysctls.forward("lo").unwrap();
        sysctls.ignore_router_advertisements("b0").unwrap();
        sysctls.loosen_rp_filter("b0").unwrap();
        for (name, now) in [
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/lo/accept_ra", "2"),
            ("ipv6/neigh/default/gc_thresh3", "65536"),
            ("ipv6/conf/b0/accept_ra", "0"),
            ("ipv4/conf/b0/rp_filter", LOOSE),
        ] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), now, "{name}");
        }
        let error = sysctls.ignore_router_advertisements("none").unwrap_err();
        assert!(error.path.starts_with(folder.path().to_str().unwrap()));
    }
}
