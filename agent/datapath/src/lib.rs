//! The data path of a node, as the agent uses it: pinned maps and BPF programs, taken over by each next agent.
//!
//! All state is in pinned maps. Dropping a [`Datapath`] changes nothing in the kernel; [`detach`] removes maps and programs.
//!
//! # Locks
//!
//! Each part has its own lock, so that a wake ([`Apps::publish`]), a pod ([`Pods::add`]) and a scrape ([`Datapath::stats`],
//! [`Datapath::fill`]) never wait for a sync of Services:
//!
//! | lock | of | held for | while holding it, may take |
//! |---|---|---|---|
//! | `ServiceTable::registry` | [`ServiceTable`] | a whole sync, with its grace periods | facts, pool, fill |
//! | `Apps::counters` | [`Apps`] | one entry, or one reading of all counters | pool |
//! | `Pods::links` | [`Pods`] | one pod | none |
//! | `NodeFacts::places` | [`NodeFacts`] | one change, with its grace period | none |
//! | `DenyList::tries` | [`DenyList`] | a replacement of the list | facts |
//! | `Programs` | [`Programs`] | attaching, a run | none |
//! | `Datapath::xdp` | the log of where XDP is | a comparison | none |
//! | `PacketLog` | the log of packets | the lines that there are | none |
//! | `Flows::tables` | the sweep | a walk through the flow table | none |
//! | `Pool::used` | apps and Services | 64 rows; no system call, no grace period | none |
//! | `ServiceTable::fill` | metrics | a copy | none |
//!
//! A word in an array has one writer: the slots of apps are written under `counters`, those of Services under `registry`,
//! a backend's row by the owner of its id.

#![forbid(unsafe_code)]

mod app_entries;
mod apps;
mod arrays;
mod attached;
mod bits;
mod clock;
mod cluster;
mod counts;
mod deny;
pub mod entry;
mod error;
mod events;
mod explain;
mod extents;
mod facts;
mod flow_filter;
mod flows;
mod grace;
mod ids;
mod interface;
mod load;
mod loads;
mod measure;
mod other_pods;
pub mod packet_filter;
mod packet_log;
mod pinned;
mod pins;
mod pods;
mod pool;
pub mod probe;
mod programs;
mod protocol;
mod removal;
mod run;
mod service_table;
mod services;
mod shared;
mod upgrade;
mod wake_limit;
mod walk;
mod write_through;
mod xdp;

use std::fs::File;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::{MapData, PerCpuArray};
use dormouse_ebpf::flow::FLOWS_MAX;
use dormouse_ebpf::verdict::VERDICTS_LEN;
use parking_lot::Mutex;

pub use apps::Apps;
pub use arrays::octets;
pub use attached::{Attached, foreign_programs};
pub use cluster::ClusterFacts;
pub use counts::VipCount;
pub use deny::{Denied, DenyList};
pub use dormouse_ebpf::deny::{DENIED_MAX, WITHOUT_END};
pub use dormouse_ebpf::packet_filter::PacketFilter;
pub use dormouse_ebpf::pod_link::{GATEWAY, GATEWAY_MAC, GATEWAY4};
pub use dormouse_ebpf::service::{EventKind as KernelEventKind, Mode};
pub use dormouse_ebpf::verdict::Verdict;
pub use dormouse_ebpf::wake_limit::{TRUSTED_MAX, WAKE_BURST_MAX};
pub use entry::{Activator, Backend, Entry, PodEntry, VipRange, pod_keys};
pub use error::DatapathError;
pub use events::{KernelEvent, KernelEvents};
pub use explain::{Explained, Explainer, PacketState};
pub use facts::NodeFacts;
pub use flows::{FlowFill, ServiceFlows, Sweep, Swept};
pub use grace::Grace;
pub use loads::BackendCount;
pub use packet_log::PacketLog;
pub use pinned::{FrontendAddress, Pinned};
pub use pods::Pods;
pub use programs::Programs;
pub use protocol::{protocol_name, protocol_number};
pub use run::{Hook, Run};
pub use service_table::ServiceTable;
pub use services::Served;
pub use wake_limit::WakeLimits;
pub use xdp::{Xdp, XdpMode};

use arrays::Arrays;
use flows::Flows;
use grace::Graces;
use load::Loaded;
use pods::Stand;
use pool::Pool;
use shared::Shared;
use upgrade::{FlowCopy, Predecessors};

/// The version of the maps' layouts and names: each version has its own folder of pins.
const SCHEMA: &str = "v6";

/// Settings of the data path.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's folder of pins, on a bpffs: `/sys/fs/bpf/dormouse/<node>`.
    pub bpffs: PathBuf,
    /// Name of the uplink.
    pub uplink: String,
    /// The node's cgroup (v2), which contains the processes of its pods.
    pub cgroup: PathBuf,
    /// The node prefix, a /96.
    pub node_prefix: (Ipv6Addr, u8),
    /// IPv6 address of the node.
    pub node_address: Ipv6Addr,
    /// Capacity of the flow table, in flows (two per connection); opening connections have a table of their own, a quarter as
    /// large.
    pub flows_max: u32,
    /// When packets are screened by the uplink's XDP program.
    pub xdp: XdpMode,
    /// The packets that programs log; none: none, and the programs have no instruction for it.
    pub log_packets: Option<PacketFilter>,
}

impl Config {
    /// The folder of the maps of this schema and these sizes, and of the links.
    pub(crate) fn pins(&self) -> PathBuf {
        self.bpffs.join(if self.flows_max == FLOWS_MAX {
            SCHEMA.to_owned()
        } else {
            format!("{SCHEMA}-{}", self.flows_max)
        })
    }
}

/// The data path, shared by the node loop, the pod network, Services and metrics.
pub type SharedDatapath = Arc<Datapath>;

/// The data path of one node, in parts with a lock each.
pub struct Datapath {
    /// Apps' entries, and their counters.
    pub apps: Apps,
    /// Services.
    pub services: ServiceTable,
    /// The pod table, and the programs on pods' links.
    pub pods: Pods,
    /// The configuration: ranges, activators, addresses.
    pub facts: Arc<NodeFacts>,
    /// The sources that are denied.
    pub deny: DenyList,
    /// The loaded programs.
    pub programs: Programs,
    config: Config,
    /// Open while this agent writes the maps: the lock of the folder of pins.
    _lock: File,
    arrays: Arc<Arrays>,
    pool: Arc<Pool>,
    stats: Arc<PerCpuArray<MapData, u64>>,
    flows: Flows,
    events: Mutex<Option<KernelEvents>>,
    /// None: packets are not logged.
    packet_log: Option<PacketLog>,
    graces: Graces,
    /// Whether the XDP program is attached, as it was logged.
    xdp: Mutex<Option<Xdp>>,
}

impl std::fmt::Debug for Datapath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datapath")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Datapath {
    /// Loads the programs, or takes over the data path of the previous agent: pinned maps are reused, and pinned links are updated
    /// atomically, so no packet passes without a program.
    pub fn open(config: Config) -> Result<Self, DatapathError> {
        probe::judge(&probe::Findings {
            root: nix::unistd::geteuid().is_root(),
            failed: None,
        })?;
        load::Target::find(&config)?;
        let folder = config.pins();
        pins::make_folder(&config.bpffs)?;
        let lock = pins::lock(&config.bpffs)?;
        let predecessors = upgrade::predecessors(&folder)?;
        pins::make_folder(&folder)?;
        if let Some(predecessors) = &predecessors {
            predecessors.share()?;
        }
        pins::drop_smaller(&folder, "stats", VERDICTS_LEN)?;
        let mut loaded = Loaded::open(&folder, config.flows_max, config.log_packets.as_ref())?;
        let copies = predecessors.as_ref().map(Predecessors::fill).transpose()?;
        let arrays = Arc::new(loaded.arrays()?);
        let graces = Graces::default();
        let pool = Arc::new(Pool::read(&arrays, graces.clone()));
        let facts = Arc::new(NodeFacts::open(&mut loaded, &arrays, &config)?);
        let stats = PerCpuArray::try_from(loaded.take("stats")?);
        let stats = Arc::new(stats.map_err(DatapathError::map("open", "stats"))?);
        let shared = Shared {
            flows: Flows::open(&mut loaded, &arrays, &stats)?,
            arrays: Arc::clone(&arrays),
            pool: Arc::clone(&pool),
            graces: graces.clone(),
            facts: Arc::clone(&facts),
        };
        let services = ServiceTable::open(&mut loaded, &shared)?;
        let events = KernelEvents::open(&mut loaded, app_entries::unanswered(&arrays))?;
        let packet_log = config.log_packets.map(|_| PacketLog::open(&mut loaded));
        let apps = Apps::open(&mut loaded, &shared)?;
        let pods = Pods::open(&mut loaded, &facts)?;
        let deny = DenyList::open(&mut loaded, &facts)?;
        let datapath = Self {
            apps,
            services,
            pods,
            facts,
            deny,
            programs: Programs::new(loaded),
            config,
            _lock: lock,
            arrays,
            pool,
            stats,
            flows: shared.flows,
            events: Mutex::new(Some(events)),
            packet_log: packet_log.transpose()?,
            graces,
            xdp: Mutex::default(),
        };
        datapath.take_over(predecessors, copies)?;
        Ok(datapath)
    }

    /// Attaches the programs, behind those of previous agents until their connections have been copied.
    fn take_over(
        &self,
        predecessors: Option<Predecessors>,
        copies: Option<Vec<FlowCopy>>,
    ) -> Result<(), DatapathError> {
        if let Some(predecessors) = &predecessors {
            predecessors.hand_over()?;
            predecessors.make_way()?;
        }
        // Pods last: connections that they begin must be known to the programs that receive the replies.
        self.programs.attach(&self.config)?;
        if let (Some(predecessors), Some(copies)) = (predecessors, copies) {
            self.pods.attach_all(Stand::Behind)?;
            predecessors.retire(copies)?;
        }
        self.pods.attach_all(Stand::Own)?;
        self.facts.end_take_over()?;
        // Last: a link takes one XDP program, and that of a previous agent is gone by now.
        self.attach_xdp();
        Ok(())
    }

    /// Attaches the uplink's XDP program where that is of use, and logs what has changed.
    fn attach_xdp(&self) {
        let xdp = self.programs.attach_xdp(&self.config);
        let mut last = self.xdp.lock();
        if last.as_ref() != Some(&xdp) {
            tracing::info!(uplink = self.config.uplink, %xdp, "XDP");
            *last = Some(xdp);
        }
    }

    /// Updates the ifindex and link-layer address of the uplink, which may have changed or been recreated.
    pub fn refresh_uplink(&self) -> Result<(), DatapathError> {
        self.programs.attach(&self.config)?;
        self.facts.refresh_uplink()?;
        self.attach_xdp();
        Ok(())
    }

    /// Sets the wakes that one source may cause. Without a call the limits of the previous agent stay, at first none.
    pub fn limit_wakes(&self, limits: &WakeLimits) -> Result<(), DatapathError> {
        limits.write(&self.config.pins())
    }

    /// Fill of the maps that the agent writes: name, used entries, capacity. For the maps of Services as of their last sync.
    pub fn fill(&self) -> Vec<(&'static str, usize, usize)> {
        let mut fill = self.pool.fill().to_vec();
        fill.extend(self.services.fill());
        fill.push(("deny", self.deny.len(), DENIED_MAX as usize));
        fill
    }

    /// Fill of the flow table, which the programs write.
    pub fn flow_fill(&self) -> FlowFill {
        self.flows.fill()
    }

    /// Fill of the table of opening connections' flows.
    pub fn opening_fill(&self) -> FlowFill {
        self.flows.opening_fill()
    }

    /// Waits for a grace period: no program uses a word that was replaced before. Takes about 10 ms.
    pub fn grace(&self) {
        self.grace_period().wait();
    }

    /// Begins a grace period; the caller waits for it.
    pub fn grace_period(&self) -> Grace {
        self.graces.begin()
    }

    /// The reader of the kernel's events; it can be taken once.
    pub fn take_events(&self) -> Result<KernelEvents, DatapathError> {
        self.events.lock().take().ok_or(DatapathError::Taken)
    }

    /// The reader of the log of packets. None: packets are not logged.
    pub fn packet_log(&self) -> Option<PacketLog> {
        self.packet_log.clone()
    }

    /// The backends of a slot with the connections that this node has started since each got its id: absolute counts. Cost: the
    /// slot's backends.
    pub fn backend_counts(&self, slot: u32) -> Vec<BackendCount> {
        loads::of_slot(&self.arrays, slot)
    }

    /// Verdict counters since the maps were created, summed over all CPUs.
    pub fn stats(&self) -> Vec<(Verdict, u64)> {
        counts::sums(&*self.stats)
    }

    /// Memory of each of a node's maps, in bytes.
    pub fn memory(&self) -> Result<Vec<(String, u64)>, DatapathError> {
        measure::memory(&self.config.pins())
    }
}

/// Removes a node's data path from the kernel, in the calling thread's network namespace: links, then maps. Missing objects
/// are no error.
pub fn detach(bpffs: &Path) -> Result<(), DatapathError> {
    if !bpffs.exists() {
        return Ok(());
    }
    let _lock = pins::lock(bpffs)?;
    pods::detach(bpffs)?;
    match std::fs::remove_dir_all(bpffs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DatapathError::Folder {
            path: bpffs.to_path_buf(),
            source: error,
        }),
        _ => Ok(()),
    }
}
