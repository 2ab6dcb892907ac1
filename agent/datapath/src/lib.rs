//! The kernel side of the node: loaded once, taken over by every later agent, updated in place.
//!
//! All state lies in pinned maps. Dropping a [`Datapath`] changes nothing in the kernel; [`detach`] takes it away.
//!
//! # Locks
//!
//! Each part has its own lock, so that a wake ([`Apps::publish`]), a pod ([`Pods::add`]) and a scrape ([`Datapath::stats`],
//! [`Datapath::fill`]) never wait for a sync of Services:
//!
//! | lock | of | held for | while holding it, may take |
//! |---|---|---|---|
//! | `ServiceTable::registry` | [`ServiceTable`] | a whole sync, with its grace periods | facts, pool, fill |
//! | `Apps::counters` | [`Apps`] | one entry, or 64 VIPs' counters | pool |
//! | `Pods::links` | [`Pods`] | one pod | none |
//! | `NodeFacts::places` | [`NodeFacts`] | one change, with its grace period | none |
//! | `Programs` | [`Programs`] | attaching, a run | none |
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
mod bits;
mod clock;
mod cluster;
mod counts;
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
mod pinned;
mod pins;
mod pods;
mod pool;
pub mod probe;
mod programs;
mod service_table;
mod services;
mod upgrade;
mod view;
mod write_through;

use std::fs::File;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::{HashMap, MapData, PerCpuArray};
use dormouse_ebpf::flow::FLOWS_MAX;
use dormouse_ebpf::maps::{Affinity, AffinityKey};
use parking_lot::Mutex;

pub use apps::Apps;
pub use arrays::octets;
pub use cluster::ClusterFacts;
pub use counts::VipCount;
pub use dormouse_ebpf::service::{EventKind as KernelEventKind, Mode};
pub use dormouse_ebpf::verdict::Verdict;
pub use entry::{Activator, Backend, Entry, PodEntry, VipRange, pod_keys};
pub use error::DatapathError;
pub use events::{KernelEvent, KernelEvents};
pub use explain::{Explained, Explainer, PacketState};
pub use facts::NodeFacts;
pub use flows::{ServiceFlows, Sweep, Swept};
pub use grace::Grace;
pub use load::{Hook, Run};
pub use loads::BackendCount;
pub use pinned::{FrontendAddress, Pinned};
pub use pods::Pods;
pub use programs::Programs;
pub use service_table::ServiceTable;
pub use services::Served;
pub use view::View;

use arrays::Arrays;
use flows::Flows;
use grace::Graces;
use load::Loaded;
use pods::Stand;
use pool::Pool;
use upgrade::{FlowCopy, Predecessors};

/// The version of the maps' layouts and names: another one gets a folder of pins of its own.
const SCHEMA: &str = "v5";

/// Where the data path lives.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's folder of pins, on a bpffs: `/sys/fs/bpf/dormouse/<node>`.
    pub bpffs: PathBuf,
    /// The outer interface.
    pub uplink: String,
    /// The node's cgroup (v2): the processes of its pods live below it.
    pub cgroup: PathBuf,
    /// The node prefix, a /96.
    pub node_prefix: (Ipv6Addr, u8),
    /// The node's own address.
    pub node_address: Ipv6Addr,
    /// Connections that are remembered, each direction by itself.
    pub flows_max: u32,
}

impl Config {
    /// Where the maps of this layout and these sizes, and the links, are pinned.
    pub(crate) fn pins(&self) -> PathBuf {
        self.bpffs.join(if self.flows_max == FLOWS_MAX {
            SCHEMA.to_owned()
        } else {
            format!("{SCHEMA}-{}", self.flows_max)
        })
    }
}

/// The data path as its users share it: the node loop, the pod network, Services and metrics.
pub type SharedDatapath = Arc<Datapath>;

/// The data path of one node, in parts that are used side by side.
pub struct Datapath {
    /// The entries of apps, and what is counted for them.
    pub apps: Apps,
    /// Services.
    pub services: ServiceTable,
    /// The node's pods.
    pub pods: Pods,
    /// The node's own facts: ranges, activators, addresses.
    pub facts: Arc<NodeFacts>,
    /// The programs.
    pub programs: Programs,
    config: Config,
    /// Held as long as this agent writes the maps.
    _lock: File,
    arrays: Arc<Arrays>,
    pool: Arc<Pool>,
    stats: PerCpuArray<MapData, u64>,
    affinity: HashMap<MapData, AffinityKey, Affinity>,
    events: Mutex<Option<KernelEvents>>,
    graces: Graces,
}

impl std::fmt::Debug for Datapath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datapath")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Datapath {
    /// Loads the programs, or takes over from the agent before: pinned maps are read, pinned links get the new programs
    /// in one step each, so no packet goes without.
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
        let mut loaded = Loaded::open(&folder, config.flows_max)?;
        let copies = predecessors.as_ref().map(Predecessors::fill).transpose()?;
        let arrays = Arc::new(loaded.arrays()?);
        let graces = Graces::default();
        let pool = Arc::new(Pool::read(&arrays, graces.clone()));
        let facts = Arc::new(NodeFacts::open(&mut loaded, &arrays, &config)?);
        let flows = Flows::open(&mut loaded, &arrays)?;
        let services =
            ServiceTable::open(&mut loaded, (&arrays, &pool), &graces, (&facts, &flows))?;
        let events = KernelEvents::open(&mut loaded, app_entries::unanswered(&arrays))?;
        let apps = Apps::open(&mut loaded, &arrays, &pool, (&graces, &flows))?;
        let pods = Pods::open(&mut loaded, &facts)?;
        let (stats, affinity) = (loaded.take("stats")?, loaded.take("affinity")?);
        let datapath = Self {
            apps,
            services,
            pods,
            facts,
            programs: Programs::new(loaded),
            config,
            _lock: lock,
            arrays,
            pool,
            stats: PerCpuArray::try_from(stats).map_err(DatapathError::map("open", "stats"))?,
            affinity: HashMap::try_from(affinity)
                .map_err(DatapathError::map("open", "affinity"))?,
            events: Mutex::new(Some(events)),
            graces,
        };
        datapath.take_over(predecessors, copies)?;
        Ok(datapath)
    }

    /// Attaches the programs, behind those of agents before until these have handed over.
    fn take_over(
        &self,
        predecessors: Option<Predecessors>,
        copies: Option<Vec<FlowCopy>>,
    ) -> Result<(), DatapathError> {
        if let Some(predecessors) = &predecessors {
            predecessors.hand_over()?;
            predecessors.make_way()?;
        }
        // Pods last: what they begin must be known to the programs that see the answers.
        self.programs.attach(&self.config)?;
        if let (Some(predecessors), Some(copies)) = (predecessors, copies) {
            self.pods.attach_all(Stand::Behind)?;
            predecessors.retire(copies)?;
        }
        self.pods.attach_all(Stand::Own)?;
        self.facts.end_take_over()
    }

    /// Follows the uplink, whose link-layer address answers name, and which may have been recreated; in force at once.
    pub fn refresh_uplink(&self) -> Result<(), DatapathError> {
        self.programs.attach(&self.config)?;
        self.facts.refresh_uplink()
    }

    /// The maps as decisions read them, to ask what would become of a connection. Services are not changed meanwhile.
    pub fn view(&self) -> Result<View<'_>, DatapathError> {
        Ok(View {
            arrays: &self.arrays,
            config: self.facts.current()?,
            registry: Box::new(self.services.registry()),
            affinity: Some(&self.affinity),
        })
    }

    /// How full the maps are that the agent fills: name, entries in use, and how many there may be. Of Services as of
    /// their last sync.
    pub fn fill(&self) -> Vec<(&'static str, usize, usize)> {
        let mut fill = self.pool.fill().to_vec();
        fill.extend(self.services.fill());
        fill
    }

    /// Returns when no program can still decide by a word that was replaced before; takes about 10 ms.
    pub fn grace(&self) {
        self.grace_period().wait();
    }

    /// Begins a grace period, to be waited for elsewhere.
    pub fn grace_period(&self) -> Grace {
        self.graces.begin()
    }

    /// The kernel's events, once: the taker reads them from then on.
    pub fn take_events(&self) -> Result<KernelEvents, DatapathError> {
        self.events.lock().take().ok_or(DatapathError::Taken)
    }

    /// The backends of a slot, and what this node has given them since each got its id: absolute counts, to be compared
    /// between two calls. Costs a look at each backend of the slot.
    pub fn backend_counts(&self, slot: u32) -> Vec<BackendCount> {
        loads::of_slot(&self.arrays, slot)
    }

    /// What became of packets, all CPUs together, since the maps were made.
    pub fn stats(&self) -> Vec<(Verdict, u64)> {
        counts::sums(&self.stats)
    }

    /// The memory of each of a node's maps, in bytes.
    pub fn memory(&self) -> Result<Vec<(String, u64)>, DatapathError> {
        measure::memory(&self.config.pins())
    }
}

/// Takes the data path of a node out of the kernel, whose network namespace is the calling thread's: links, then maps. What is not there is no error.
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
