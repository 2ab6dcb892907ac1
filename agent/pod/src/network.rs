//! The node's network: the leases, the kernel's state and the data path's table, kept in step. Every operation may be
//! called from any thread; those on different attachments run side by side.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dormouse_agent_ipam::leases::Opening;
use dormouse_agent_ipam::{
    BootId, Ipv4Range, Lease, LeaseKey, Leases, LeasesError, NodePrefix, State, Suffix, Usage,
};
use dormouse_cni::pending::since_boot;
use netlink_packet_route::link::LinkMessage;
use parking_lot::{Mutex, MutexGuard};

use super::bridge::{self, Fabric};
use super::counters::RequestCounters;
use super::error::NetworkError;
use super::keyed_lock::KeyedLock;
use super::recovery::PodLink;
use super::refusal::Net;
use super::removal::Remover;
use super::shards::Shards;
use super::{PodEntry, PodTable, messages, names, sysctl};
use crate::metrics::{Command, Healed, Stage, WiringMetrics};
use dormouse_agent_netlink::{Batch, Rtnl};
use dormouse_agent_sys::retry;
use stages::Stages;

mod attach;
mod check;
mod detach;
mod heal;
mod mtu;
mod queues;
mod reserve;
mod stages;

/// The bridge's name unless told otherwise.
pub const BRIDGE_DEFAULT: &str = "dormouse0";
const JOURNAL: &str = "leases";
/// How long to wait for the journal: agents that serve one request while no other runs hold it for milliseconds.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);

/// What a node's network is made of.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// What the network delivers to the node: its prefix, or more.
    pub delivered: NodePrefix,
    /// What pods get IPv4 addresses from; none: they get IPv6 ones only.
    pub range4: Option<Ipv4Range>,
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
    /// IPv6 only, the usual bridge and rest; the network delivers no more than the prefix, and the data path answers for
    /// pods.
    pub fn new(prefix: NodePrefix, state_dir: PathBuf, uplink: impl Into<String>) -> Self {
        Self {
            prefix,
            delivered: prefix,
            range4: None,
            state_dir,
            bridge: BRIDGE_DEFAULT.to_owned(),
            uplink: uplink.into(),
            rest: dormouse_agent_ipam::allocator::QUARANTINE_DEFAULT,
            proxy_neighbors: false,
        }
    }

    /// Whether the journal in the state folder fits; [`Network::open`] asks too, but late for those who make other
    /// changes before.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.leases().map(drop)
    }

    /// The networks of which the node has what pods have, and nothing else.
    fn refused(&self) -> HashSet<Net> {
        let v6 = |prefix: NodePrefix| (prefix.network().into(), prefix.length());
        let v4 = |range: Ipv4Range| (range.network().into(), range.length());
        [v6(self.delivered), v6(self.prefix)]
            .into_iter()
            .chain(self.range4.map(v4))
            .collect()
    }

    fn leases(&self) -> Result<Leases, NetworkError> {
        let folder = &self.state_dir;
        fs::create_dir_all(folder).map_err(machine("create the node's state folder"))?;
        let boot = boot_id().map_err(machine("read the kernel's boot id"))?;
        let opening = Opening {
            quarantine: self.rest,
            range4: self.range4,
            ..Opening::new(self.prefix, boot)
        };
        let journal = folder.join(JOURNAL);
        let leases = retry::wait(JOURNAL_PATIENCE, is_busy, || {
            Leases::open(&journal, opening)
        })?;
        let bytes = leases.writes().cut_bytes;
        if bytes > 0 {
            tracing::warn!(
                bytes,
                "cut what a crash left unfinished in the journal of leases"
            );
        }
        Ok(leases)
    }
}

/// A pod that is wired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whose it is.
    pub key: LeaseKey,
    /// Its address.
    pub address: Ipv6Addr,
    /// Its IPv4 address, where it has one.
    pub address4: Option<Ipv4Addr>,
}

/// The node's network.
pub struct Network {
    config: NetworkConfig,
    /// The outer interface.
    uplink: u32,
    /// Largest packet of the uplink and of everything behind it, in bytes.
    mtu: AtomicU32,
    shards: Mutex<Shards>,
    leases: Leases,
    batch: Batch,
    remover: Remover,
    table: Mutex<Box<dyn PodTable>>,
    in_work: KeyedLock,
    /// Live leases whose link was found missing, and when first (since boot).
    missing: Mutex<HashMap<Suffix, Duration>>,
    /// Pods whose packets may have to wait on the host's end of their link, as the data path was told.
    queued: Mutex<HashSet<Suffix>>,
    counters: RequestCounters,
    wiring: WiringMetrics,
}

impl Network {
    /// Makes or finds the bridge, reads the journal, heals what a crash or a reboot left, and tells `table` of every
    /// pod that lives. Works in the calling thread's network namespace, and so must all later calls.
    pub fn open(config: NetworkConfig, table: Box<dyn PodTable>) -> Result<Self, NetworkError> {
        let leases = config.leases()?;
        let range4 = config.range4;
        let refused = config.refused();
        let fabric = bridge::ensure(&config.bridge, &config.uplink, &refused, range4.is_some())?;
        sysctl::forward(&config.uplink)?;
        if range4.is_some() {
            sysctl::forward4()?;
        }
        if config.proxy_neighbors {
            sysctl::proxy_neighbors(&config.uplink)?;
        }
        let Fabric {
            bridges,
            uplink,
            mtu,
        } = fabric;
        let network = Self {
            config,
            uplink,
            mtu: AtomicU32::new(mtu),
            shards: Mutex::new(bridges.into_iter().collect()),
            leases,
            batch: Batch::open().map_err(machine("open a routing socket"))?,
            remover: Remover::default(),
            table: Mutex::new(table),
            in_work: KeyedLock::default(),
            missing: Mutex::new(HashMap::new()),
            queued: Mutex::default(),
            counters: RequestCounters::default(),
            wiring: WiringMetrics::default(),
        };
        let began = Instant::now();
        let kept = network.heal()?;
        let took_us = began.elapsed().as_micros();
        tracing::info!(pods = kept, took_us, "found the node's pods again");
        network.consume_pending()?;
        Ok(network)
    }

    /// What it was opened with.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// The pods that are wired, by address.
    pub fn pods(&self) -> Vec<Pod> {
        let leases = self.leases.leases();
        let live = leases
            .iter()
            .filter(|lease| lease.state == State::Live && lease.wired);
        let by_suffix: BTreeMap<_, _> = live.map(|lease| (lease.suffix, lease)).collect();
        by_suffix
            .into_iter()
            .map(|(suffix, lease)| Pod {
                key: lease.key.clone(),
                address: self.address(suffix),
                address4: lease.ipv4,
            })
            .collect()
    }

    /// How often each request was answered how.
    pub fn counters(&self) -> &RequestCounters {
        &self.counters
    }

    /// What wiring takes, and what was put right.
    pub fn wiring(&self) -> &WiringMetrics {
        &self.wiring
    }

    /// How many addresses are in use, and are left.
    pub fn usage(&self) -> Usage {
        self.leases.usage(since_boot())
    }

    fn tell(&self, suffix: Suffix, pod: PodEntry) -> Result<(), NetworkError> {
        let added = self.table().add(pod);
        added.map_err(|source| NetworkError::Table {
            what: "add",
            source,
        })?;
        if pod.direct {
            self.queued.lock().remove(&suffix);
        } else {
            self.queued.lock().insert(suffix);
        }
        Ok(())
    }

    /// Removes whatever the data path and the kernel have of a lease, then frees it.
    fn unwire(&self, lease: &Lease) -> Result<(), NetworkError> {
        let mut stages = Stages::begin(&self.wiring, Command::Del);
        let address = self.address(lease.suffix);
        if lease.state != State::Releasing {
            self.leases.release(lease.suffix)?;
            stages.ended(Stage::Journal);
        }
        let removed = self.table().remove(address, lease.ipv4);
        stages.ended(Stage::Datapath);
        removed.map_err(|source| NetworkError::Table {
            what: "remove",
            source,
        })?;
        let bridges = self.bridges_of(lease);
        let proxy_on = self.proxy_on();
        let requests = messages::both(address, lease.ipv4).flat_map(|address| {
            let unreach = |bridge: &u32| messages::unreach(address, *bridge, proxy_on);
            bridges.iter().flat_map(unreach).collect::<Vec<_>>()
        });
        let requests = requests.collect();
        self.remover
            .remove(&names::link_name(lease.suffix), requests)?;
        self.shards.lock().remove(lease.suffix);
        self.queued.lock().remove(&lease.suffix);
        stages.ended(Stage::Host);
        self.leases.free(lease.suffix, since_boot())?;
        stages.ended(Stage::Journal);
        self.missing.lock().remove(&lease.suffix);
        Ok(())
    }

    /// Unwires what a crash left, or a pod that vanished without DEL.
    fn reclaim(&self, lease: &Lease) -> Result<(), NetworkError> {
        self.unwire(lease)?;
        self.wiring.healed(Healed::Lease);
        Ok(())
    }

    /// Where a pod's routes may lead.
    fn bridges_of(&self, lease: &Lease) -> Vec<u32> {
        let shards = self.shards.lock();
        match shards.bridge_of(lease.suffix) {
            Some(bridge) => vec![bridge],
            None if lease.wired => shards.bridges().collect(),
            None => Vec::new(),
        }
    }

    /// Whether a pod's link is plugged in.
    fn is_port(&self, link: &PodLink) -> bool {
        let shards = self.shards.lock();
        link.controller
            .is_some_and(|bridge| shards.bridges().any(|ours| ours == bridge))
    }

    fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.config.prefix.address(suffix)
    }

    fn proxy_on(&self) -> Option<u32> {
        self.config.proxy_neighbors.then_some(self.uplink)
    }

    fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Box<dyn PodTable>> {
        self.table.lock()
    }
}

fn is_busy(error: &LeasesError) -> bool {
    matches!(error, LeasesError::Journal { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
}

/// All links of the namespace, by a socket of its own: an answer that is so long would hold others up.
fn links() -> Result<Vec<LinkMessage>, NetworkError> {
    let links = Rtnl::open().and_then(|mut rtnl| rtnl.links());
    links.map_err(machine("list the node's links"))
}

fn pod_links() -> Result<Vec<PodLink>, NetworkError> {
    Ok(links()?.iter().filter_map(PodLink::read).collect())
}

fn machine(what: &'static str) -> impl FnOnce(io::Error) -> NetworkError {
    move |source| NetworkError::Machine { what, source }
}

fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    BootId::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}
