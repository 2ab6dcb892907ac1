//! The pod network: keeps leases, the kernel's objects and the data path's table consistent. Every operation can be called
//! from any thread; operations on different attachments run in parallel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dormouse_agent_ipam::journal;
use dormouse_agent_ipam::leases::Opening;
use dormouse_agent_ipam::{
    BootId, Ipv4Range, Lease, LeaseKey, Leases, LeasesError, NodePrefix, State, Suffix, Usage,
};
use dormouse_agent_netlink::{Batch, Rtnl};
use dormouse_agent_sys::retry;
use dormouse_cni::pending::since_boot;
use netlink_packet_route::link::LinkMessage;
use parking_lot::{Mutex, MutexGuard};

use super::bridge::{self, BridgeOptions, Fabric};
use super::counters::RequestCounters;
use super::error::NetworkError;
use super::keyed_lock::KeyedLock;
use super::recovery::PodLink;
use super::removal::Remover;
use super::shards::Shards;
use super::unreachable_routes::Net;
use super::{PodEntry, PodTable, Sysctls, messages, names};
use crate::metrics::{Command, Repaired, Stage, WiringMetrics};
use stages::Stages;

mod attach;
mod bridges;
mod check;
mod detach;
mod mtu;
mod queues;
mod repair;
mod reserve;
mod stages;

/// Default name of the first bridge.
pub const BRIDGE_DEFAULT: &str = "dormouse0";
/// Time limit for the journal's lock: `dormouse-agent offline` holds it for milliseconds.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);

/// Settings of the pod network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The node's /96.
    pub prefix: NodePrefix,
    /// The prefix that the network delivers to the node: the /96, or a shorter one that contains it.
    pub delivered: NodePrefix,
    /// The range of the pods' IPv4 addresses; none: pods are IPv6 only.
    pub range4: Option<Ipv4Range>,
    /// The node's state folder.
    pub state_dir: PathBuf,
    /// Name of the first bridge.
    pub bridge: String,
    /// Name of the uplink.
    pub uplink: String,
    /// Quarantine of a released address.
    pub rest: Duration,
    /// The sysctls of the node.
    pub sysctls: Sysctls,
}

impl NetworkConfig {
    /// IPv6 only, default bridge and quarantine; the network delivers exactly the node's prefix, and the data path answers
    /// solicitations.
    pub fn new(prefix: NodePrefix, state_dir: PathBuf, uplink: impl Into<String>) -> Self {
        Self {
            prefix,
            delivered: prefix,
            range4: None,
            state_dir,
            bridge: BRIDGE_DEFAULT.to_owned(),
            uplink: uplink.into(),
            rest: dormouse_agent_ipam::allocator::QUARANTINE_DEFAULT,
            sysctls: Sysctls::default(),
        }
    }

    /// Checks that the journal in the state folder fits these settings. [`Network::open`] checks it too; callers that make other
    /// changes first call this before them.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.leases().map(drop)
    }

    pub(super) fn bridge_options(&self) -> BridgeOptions {
        BridgeOptions {
            has_ipv4: self.range4.is_some(),
            sysctls: self.sysctls.clone(),
        }
    }

    /// The networks in which addresses without a pod are refused: all that is delivered, and no part of it. A longer prefix would
    /// take precedence over the link of another CNI plugin, whose pods have addresses of the same prefix during a migration.
    fn refused(&self) -> HashSet<Net> {
        let v6 = (self.delivered.network().into(), self.delivered.length());
        let v4 = |range: Ipv4Range| (range.network().into(), range.length());
        [v6].into_iter().chain(self.range4.map(v4)).collect()
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
        let path = folder.join(journal::FILE);
        let leases = retry::wait(JOURNAL_PATIENCE, is_busy, || Leases::open(&path, opening))?;
        if leases.writes().compactions_failed > 0 {
            tracing::warn!(
                path = %path.display(),
                "failed to compact the lease journal: is the disk full? It stays in use as it is"
            );
        }
        let bytes = leases.writes().cut_bytes;
        if bytes > 0 {
            tracing::warn!(
                bytes,
                "truncated an incomplete record at the end of the lease journal"
            );
        }
        Ok(leases)
    }
}

/// A pod that is connected to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The holder of its lease.
    pub key: LeaseKey,
    /// IPv6 address.
    pub address: Ipv6Addr,
    /// IPv4 address, if it has one.
    pub address4: Option<Ipv4Addr>,
}

/// The pod network of a node.
pub struct Network {
    config: NetworkConfig,
    /// MTU of the uplink, and so of bridges and pods, in bytes.
    mtu: AtomicU32,
    shards: Mutex<Shards>,
    leases: Leases,
    batch: Batch,
    remover: Remover,
    table: Mutex<Box<dyn PodTable>>,
    in_work: KeyedLock,
    /// Live leases whose link is missing, and since when (time since boot).
    missing: Mutex<HashMap<Suffix, Duration>>,
    /// Pods whose host side has a qdisc that queues, as reported to the data path.
    queued: Mutex<HashSet<Suffix>>,
    counters: RequestCounters,
    wiring: WiringMetrics,
}

impl Network {
    /// Sets up the bridge, opens the journal, repairs what a crash or reboot left, and adds every pod to `table`. Uses the
    /// calling thread's network namespace; all later calls must be made in the same one.
    pub fn open(config: NetworkConfig, table: Box<dyn PodTable>) -> Result<Self, NetworkError> {
        let leases = config.leases()?;
        let range4 = config.range4;
        let refused = config.refused();
        let options = config.bridge_options();
        let fabric = bridge::ensure(&config.bridge, &config.uplink, &refused, &options)?;
        config.sysctls.forward(&config.uplink)?;
        if range4.is_some() {
            config.sysctls.forward4()?;
        }
        let Fabric { bridges, mtu } = fabric;
        let network = Self {
            config,
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
        let kept = network.repair()?;
        let took_us = began.elapsed().as_micros();
        tracing::info!(pods = kept, took_us, "recovered the node's pods");
        network.consume_pending()?;
        Ok(network)
    }

    /// The settings.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Sets the uplink's sysctls again, which are lost if it is deleted and created again.
    pub fn refresh_uplink(&self) -> Result<(), NetworkError> {
        Ok(self.config.sysctls.forward(&self.config.uplink)?)
    }

    /// The connected pods, ordered by address.
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

    /// Whether this pod is connected, with this address. Once its removal has begun, it is not.
    pub fn is_wired(&self, key: &LeaseKey, address: Ipv6Addr) -> bool {
        let lease = self.leases.lease(key);
        lease.is_some_and(|lease| {
            lease.state == State::Live && lease.wired && self.address(lease.suffix) == address
        })
    }

    /// Counters of the plugin's requests.
    pub fn counters(&self) -> &RequestCounters {
        &self.counters
    }

    /// Metrics of stages and repairs.
    pub fn wiring(&self) -> &WiringMetrics {
        &self.wiring
    }

    /// Numbers of leased, quarantined and free addresses.
    pub fn usage(&self) -> Usage {
        self.leases.usage(since_boot())
    }

    fn publish(&self, suffix: Suffix, pod: PodEntry) -> Result<(), NetworkError> {
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

    /// Removes a lease's pod from the data path and the kernel, then frees the lease.
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
        let requests = messages::both(address, lease.ipv4).flat_map(|address| {
            let remove_host_route = |bridge: &u32| messages::remove_host_route(address, *bridge);
            bridges
                .iter()
                .flat_map(remove_host_route)
                .collect::<Vec<_>>()
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

    /// Removes the pod of a lease that a crash left, or that vanished without DEL.
    fn reclaim(&self, lease: &Lease) -> Result<(), NetworkError> {
        self.unwire(lease)?;
        self.wiring.repaired(Repaired::Lease);
        Ok(())
    }

    /// The bridges that the pod's routes may point to.
    fn bridges_of(&self, lease: &Lease) -> Vec<u32> {
        let shards = self.shards.lock();
        match shards.bridge_of(lease.suffix) {
            Some(bridge) => vec![bridge],
            None if lease.wired => shards.bridges().collect(),
            None => Vec::new(),
        }
    }

    /// Whether a pod's link is a port of one of the bridges.
    fn is_port(&self, link: &PodLink) -> bool {
        let shards = self.shards.lock();
        link.controller
            .is_some_and(|bridge| shards.bridges().any(|ours| ours == bridge))
    }

    fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.config.prefix.address(suffix)
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

/// All links of the namespace, read over a socket of its own: such a long reply would delay other threads.
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
