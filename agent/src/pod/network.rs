//! The node's network: the leases, the kernel's state and the data path's table, kept in step. Every operation may be
//! called from any thread; those on different attachments run side by side.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_agent_ipam::leases::Opening;
use dormouse_agent_ipam::{BootId, Lease, LeaseKey, Leases, NodePrefix, State, Suffix};
use dormouse_cni::pending::since_boot;

use super::bridge::{self, Fabric};
use super::busy::Busy;
use super::counters::RequestCounters;
use super::error::NetworkError;
use super::netlink::Rtnl;
use super::recovery::{self, Healing, PodLink};
use super::{PodEntry, PodTable, messages, names, sysctl};
use crate::ndp::Advertiser;

mod attach;
mod check;
mod detach;

/// The bridge's name unless told otherwise.
pub const BRIDGE_DEFAULT: &str = "dormouse0";
const JOURNAL: &str = "leases";

/// What a node's network is made of.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// The node's state folder.
    pub state_dir: PathBuf,
    /// The bridge's name.
    pub bridge: String,
    /// The outer interface.
    pub uplink: String,
    /// How long a released address rests.
    pub rest: Duration,
    /// Whether the kernel's neighbour proxy answers for pods on the uplink: for nodes without the data path's answers.
    pub proxy_neighbors: bool,
}

impl NetworkConfig {
    /// The usual bridge and rest; the data path answers for pods.
    pub fn new(prefix: NodePrefix, state_dir: PathBuf, uplink: impl Into<String>) -> Self {
        Self {
            prefix,
            state_dir,
            bridge: BRIDGE_DEFAULT.to_owned(),
            uplink: uplink.into(),
            rest: dormouse_agent_ipam::allocator::REST_DEFAULT,
            proxy_neighbors: false,
        }
    }

    /// Whether the journal in the state folder fits; [`Network::open`] asks too, but late for those who make other
    /// changes before.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.leases().map(drop)
    }

    fn leases(&self) -> Result<Leases, NetworkError> {
        let folder = &self.state_dir;
        fs::create_dir_all(folder).map_err(machine("create the node's state folder"))?;
        let opening = Opening {
            prefix: self.prefix,
            rest: self.rest,
            boot: boot_id().map_err(machine("read the kernel's boot id"))?,
        };
        Ok(Leases::open(&folder.join(JOURNAL), opening)?)
    }
}

/// A pod that is wired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whose it is.
    pub key: LeaseKey,
    /// Its address.
    pub address: Ipv6Addr,
}

/// The node's network.
pub struct Network {
    config: NetworkConfig,
    fabric: Fabric,
    leases: Mutex<Leases>,
    rtnl: Mutex<Rtnl>,
    table: Mutex<Box<dyn PodTable>>,
    busy: Busy,
    /// Live leases whose link was found missing, and when first (since boot).
    missing: Mutex<HashMap<Suffix, Duration>>,
    advertiser: Option<Advertiser>,
    counters: RequestCounters,
}

impl Network {
    /// Makes or finds the bridge, reads the journal, heals what a crash or a reboot left, and tells `table` of every
    /// pod that lives. Works in the calling thread's network namespace, and so must all later calls.
    pub fn open(config: NetworkConfig, table: Box<dyn PodTable>) -> Result<Self, NetworkError> {
        let leases = config.leases()?;
        let fabric = bridge::ensure(&config.bridge, &config.uplink, config.prefix)?;
        sysctl::forward(&config.uplink)?;
        if config.proxy_neighbors {
            sysctl::proxy_neighbors(&config.uplink)?;
        }
        let rtnl = Rtnl::open().map_err(machine("open a routing socket"))?;
        let advertiser = Advertiser::open(&config.uplink)
            .inspect_err(|error| tracing::warn!(%error, "pods will not be announced on the uplink"))
            .ok();
        let network = Self {
            config,
            fabric,
            leases: Mutex::new(leases),
            rtnl: Mutex::new(rtnl),
            table: Mutex::new(table),
            busy: Busy::default(),
            missing: Mutex::new(HashMap::new()),
            advertiser,
            counters: RequestCounters::default(),
        };
        network.heal()?;
        network.consume_pending()?;
        Ok(network)
    }

    /// The interfaces that pods are wired to.
    pub fn fabric(&self) -> Fabric {
        self.fabric
    }

    /// The pods that are wired, by address.
    pub fn pods(&self) -> Vec<Pod> {
        let leases = self.leases();
        let live = leases
            .allocator()
            .leases()
            .filter(|lease| lease.state == State::Live);
        let by_suffix: BTreeMap<_, _> = live
            .map(|lease| (lease.suffix, lease.key.clone()))
            .collect();
        let address = |suffix| leases.address(suffix);
        by_suffix
            .into_iter()
            .map(|(suffix, key)| Pod {
                key,
                address: address(suffix),
            })
            .collect()
    }

    /// Whether ADD could succeed now.
    pub fn has_room(&self) -> bool {
        self.leases().has_room(since_boot())
    }

    /// How often each request was answered how.
    pub fn counters(&self) -> &RequestCounters {
        &self.counters
    }

    fn heal(&self) -> Result<(), NetworkError> {
        let links = self.pod_links()?;
        let plan = recovery::plan(
            self.leases().allocator().leases(),
            &links,
            self.fabric.bridge,
        );
        for healing in plan {
            self.heal_one(healing)?;
        }
        Ok(())
    }

    fn heal_one(&self, healing: Healing) -> Result<(), NetworkError> {
        match healing {
            Healing::Keep(lease, ifindex) => self.tell(&lease, ifindex),
            Healing::Adopt(lease, ifindex) => {
                tracing::warn!(key = %lease.key, "took back a pod that the journal had lost");
                self.leases().adopt(&lease)?;
                self.tell(&lease, ifindex)
            }
            Healing::Unwire(lease) => {
                tracing::info!(key = %lease.key, "freed what a crash or a vanished pod left");
                self.unwire(&lease)
            }
            Healing::RemoveLink(name) => {
                tracing::warn!(link = name, "removed a link that is nobody's");
                Ok(self.rtnl().batch(&[messages::remove_link(&name)])?)
            }
        }
    }

    fn tell(&self, lease: &Lease, ifindex: u32) -> Result<(), NetworkError> {
        let address = self.address(lease.suffix);
        let pod = PodEntry {
            address,
            ifindex,
            mac: names::pod_mac(lease.suffix),
        };
        let added = self.table().add(pod);
        added.map_err(|source| NetworkError::Table {
            what: "add",
            source,
        })
    }

    /// Removes whatever the data path and the kernel have of a lease, then frees it.
    fn unwire(&self, lease: &Lease) -> Result<(), NetworkError> {
        let address = self.address(lease.suffix);
        if lease.state != State::Releasing {
            self.leases().release(lease.suffix)?;
        }
        let removed = self.table().remove(address);
        removed.map_err(|source| NetworkError::Table {
            what: "remove",
            source,
        })?;
        let requests = messages::unwire(lease.suffix, address, self.fabric.bridge, self.proxy_on());
        self.rtnl().batch(&requests)?;
        self.leases().free(lease.suffix, since_boot())?;
        lock(&self.missing).remove(&lease.suffix);
        Ok(())
    }

    fn pod_links(&self) -> Result<Vec<PodLink>, NetworkError> {
        let links = self
            .rtnl()
            .links()
            .map_err(machine("list the node's links"))?;
        Ok(links.iter().filter_map(PodLink::read).collect())
    }

    fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.config.prefix.address(suffix)
    }

    fn proxy_on(&self) -> Option<u32> {
        self.config.proxy_neighbors.then_some(self.fabric.uplink)
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        lock(&self.leases)
    }

    fn rtnl(&self) -> MutexGuard<'_, Rtnl> {
        lock(&self.rtnl)
    }

    fn table(&self) -> MutexGuard<'_, Box<dyn PodTable>> {
        lock(&self.table)
    }
}

/// A thread that panicked left the value whole: every change is made by one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn machine(what: &'static str) -> impl FnOnce(io::Error) -> NetworkError {
    move |source| NetworkError::Machine { what, source }
}

fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    BootId::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}
