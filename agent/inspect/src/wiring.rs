//! The wiring of each pod address, joined from the journal's lease, the kernel's link and neighbour entries, and the data
//! path's pod table; differences between them are listed as faults.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_agent_datapath::Pinned;
use dormouse_agent_ipam::{BootId, Lease, LeaseKey, NetnsId, NodePrefix, State, Suffix};
use dormouse_agent_pod::names::suffix_of_link;
use dormouse_cni::pending::since_boot;
use dormouse_ebpf::maps::Pod;

use super::InspectError;
use super::kernel::{Kernel, Link, Neighbour};
use super::leases::Leases;

mod faults;

/// Folder with the named network namespaces.
const NAMESPACES: &str = "/run/netns";

/// A snapshot of journal, kernel and data path.
#[derive(Debug)]
pub struct Wiring {
    prefix: Option<NodePrefix>,
    leases: Option<Leases>,
    kernel: Kernel,
    /// The data path's pod table; none if it cannot be read.
    pods: Option<HashMap<Ipv6Addr, Pod>>,
    namespaces: HashMap<NetnsId, PathBuf>,
    now: Duration,
}

/// The wiring of one pod address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wired {
    /// The IPv6 address.
    pub address: Ipv6Addr,
    /// The IPv4 address of the same lease.
    pub address4: Option<Ipv4Addr>,
    /// The lower 32 bits of the address, inside the node's prefix.
    pub suffix: Suffix,
    /// The holder of the lease.
    pub holder: Option<LeaseKey>,
    /// `reserved`, `live`, `releasing`, `quarantined`; `stray`: the address is in use without a lease.
    pub state: &'static str,
    /// Age of the lease.
    pub age: Option<Duration>,
    /// Remaining quarantine, in which no pod can get the address.
    pub quarantine: Option<Duration>,
    /// Host side of the veth pair.
    pub link: Option<Link>,
    /// The bridge of the host side.
    pub bridge: Option<String>,
    /// The pod's network namespace: a path, or the inode number.
    pub netns: Option<String>,
    /// The permanent neighbour entry, and the name of its interface.
    pub neighbour: Option<(Neighbour, String)>,
    /// The interface of the proxy neighbour entry.
    pub proxied: Option<String>,
    /// The row in the data path's pod table; the outer none: the table could not be read.
    pub row: Option<Option<Pod>>,
    /// Differences between journal, kernel and data path.
    pub faults: Vec<&'static str>,
}

impl Wiring {
    /// Reads the journal, the kernel and the data path's maps.
    pub fn look(state_dir: &Path, pinned: Option<&Pinned>) -> Result<Self, InspectError> {
        let unreadable = |error: std::io::Error| {
            InspectError::not_allowed(format!(
                "cannot read the kernel's links and neighbours: {error}"
            ))
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // Namespaces, links and leases do not outlive a boot: an older journal is ignored.
        let leases =
            Leases::read(state_dir)?.filter(|leases| Some(leases.boot) == BootId::parse(&boot));
        let facts = pinned.and_then(|pinned| {
            let network = Ipv6Addr::from(pinned.facts().node_prefix);
            NodePrefix::new(network, 96).ok()
        });
        Ok(Self {
            prefix: leases.as_ref().map(|leases| leases.prefix).or(facts),
            leases,
            kernel: Kernel::look().map_err(unreadable)?,
            pods: pinned
                .map(Pinned::pods)
                .transpose()?
                .map(|pods| pods.into_iter().collect()),
            namespaces: namespaces(),
            now: since_boot(),
        })
    }

    /// The kernel's part of the snapshot.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The node's prefix, from the journal or the data path's configuration.
    pub fn prefix(&self) -> Option<NodePrefix> {
        self.prefix
    }

    /// The holder of an address.
    pub fn holder(&self, address: IpAddr) -> Option<&LeaseKey> {
        Some(&self.lease(address)?.key)
    }

    fn lease(&self, address: IpAddr) -> Option<&Lease> {
        let by_suffix = &self.leases.as_ref()?.held;
        let lease = match address {
            IpAddr::V6(address) => by_suffix.get(&self.prefix?.suffix(address)?),
            IpAddr::V4(address) => by_suffix.values().find(|lease| lease.ipv4 == Some(address)),
        };
        lease.map(AsRef::as_ref)
    }

    /// All addresses with a lease, a quarantine, a link, an entry or a row, in order.
    pub fn all(&self) -> Vec<Wired> {
        let Some(prefix) = self.prefix else {
            return Vec::new();
        };
        let mut suffixes = BTreeSet::new();
        if let Some(leases) = &self.leases {
            suffixes.extend(leases.held.keys());
            suffixes.extend(
                leases
                    .quarantined
                    .keys()
                    .filter(|suffix| leases.quarantine(**suffix, self.now).is_some()),
            );
        }
        suffixes.extend(
            self.kernel
                .links
                .iter()
                .filter_map(|link| suffix_of_link(&link.name)),
        );
        suffixes.extend(
            self.pods
                .iter()
                .flatten()
                .filter_map(|(address, _)| prefix.suffix(*address)),
        );
        let neighbours = self
            .kernel
            .neighbours
            .iter()
            .filter(|entry| entry.permanent || entry.proxy);
        suffixes.extend(neighbours.filter_map(|entry| match entry.address {
            IpAddr::V6(address) => prefix.suffix(address),
            IpAddr::V4(_) => None,
        }));
        suffixes
            .into_iter()
            .map(|suffix| self.wired(prefix, suffix))
            .collect()
    }

    /// One address; none if it is outside of the node's prefix, or free without any object.
    pub fn one(&self, address: IpAddr) -> Option<Wired> {
        let prefix = self.prefix?;
        let suffix = match address {
            IpAddr::V6(address) => prefix.suffix(address)?,
            IpAddr::V4(_) => self.lease(address)?.suffix,
        };
        let wired = self.wired(prefix, suffix);
        (wired.state != "free").then_some(wired)
    }

    fn wired(&self, prefix: NodePrefix, suffix: Suffix) -> Wired {
        let address = prefix.address(suffix);
        let lease = self
            .leases
            .as_ref()
            .and_then(|leases| leases.held.get(&suffix));
        let quarantine = self
            .leases
            .as_ref()
            .and_then(|leases| leases.quarantine(suffix, self.now));
        let entries = || {
            self.kernel
                .neighbours
                .iter()
                .filter(|entry| entry.address == IpAddr::V6(address))
        };
        let neighbour = entries().find(|entry| entry.permanent && !entry.proxy);
        let proxy = entries().find(|entry| entry.proxy);
        let row = self.pods.as_ref().map(|pods| pods.get(&address).copied());
        let links = self.kernel.links.iter();
        let named = links
            .into_iter()
            .find(|link| suffix_of_link(&link.name) == Some(suffix));
        let known = || self.kernel.link(row.flatten()?.ifindex);
        let link = named.or_else(known);
        let there = link.is_some() || neighbour.is_some() || row.flatten().is_some();
        let state = match lease.map(|lease| lease.state) {
            Some(State::Reserved) => "reserved",
            Some(State::Live) => "live",
            Some(State::Releasing) => "releasing",
            None if there => "stray",
            None if quarantine.is_some() => "quarantined",
            None => "free",
        };
        let bridge = link.and_then(|link| link.controller);
        let address4 = lease.and_then(|lease| lease.ipv4);
        let reached4 = address4.is_none_or(|address| self.reaches4(address));
        let row4 = |address: Ipv4Addr| {
            let pods = self.pods.as_ref();
            pods.is_none_or(|pods| pods.contains_key(&address.to_ipv6_mapped()))
        };
        let known4 = address4.is_none_or(row4);
        let mut wired = Wired {
            address,
            address4,
            suffix,
            holder: lease.map(|lease| lease.key.clone()),
            state,
            age: lease.map(|lease| self.now.saturating_sub(lease.since)),
            quarantine,
            link: link.cloned(),
            bridge: bridge.map(|bridge| self.kernel.name(bridge)),
            netns: lease.and_then(|lease| self.netns(lease.netns)),
            neighbour: neighbour.map(|entry| (entry.clone(), self.kernel.name(entry.ifindex))),
            proxied: proxy.map(|entry| self.kernel.name(entry.ifindex)),
            row,
            faults: Vec::new(),
        };
        wired.faults = wired.faults(reached4, known4);
        wired
    }

    fn reaches4(&self, address: Ipv4Addr) -> bool {
        let mut entries = self.kernel.neighbours.iter();
        entries.any(|entry| entry.permanent && entry.address == IpAddr::V4(address))
    }

    fn netns(&self, id: NetnsId) -> Option<String> {
        let path = self
            .namespaces
            .get(&id)
            .map(|path| path.display().to_string());
        let known = id != NetnsId::default();
        path.or_else(|| known.then(|| format!("inode {}", id.ino)))
    }
}

impl Wired {
    /// network/container/interface.
    pub fn holder_text(&self) -> String {
        self.holder
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// The named network namespaces, by device and inode.
fn namespaces() -> HashMap<NetnsId, PathBuf> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let known = entries.filter_map(|entry| {
        let found = fs::metadata(entry.path()).ok()?;
        Some((
            NetnsId {
                dev: found.dev(),
                ino: found.ino(),
            },
            entry.path(),
        ))
    });
    known.collect()
}
