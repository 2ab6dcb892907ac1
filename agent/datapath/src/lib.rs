//! The kernel's half of the node, as the agent sees it: loaded once, taken over by every later agent, told what changed.
//!
//! All state lies in pinned maps. Dropping a [`Datapath`] changes nothing in the kernel; [`detach`] takes it away.

#![forbid(unsafe_code)]

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
mod flowing;
mod flows;
mod grace;
mod ids;
mod kept;
mod load;
mod loads;
mod measure;
mod mirror;
mod network;
mod pinned;
mod pins;
mod pods;
mod pool;
pub mod probe;
mod services;
mod upgrade;
mod view;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::HashMap;
use dormouse_agent_services::{Changes, Node, Services};
use parking_lot::Mutex;

use dormouse_agent_netlink::Rtnl;

pub use arrays::octets;
pub use cluster::ClusterFacts;
pub use counts::VipCount;
use dormouse_ebpf::flow::FLOWS_MAX;
pub use dormouse_ebpf::service::{EventKind as KernelEventKind, Mode};
pub use dormouse_ebpf::verdict::Verdict;
pub use entry::{Activator, Backend, Entry, PodEntry, VipRange, pod_keys};
pub use error::DatapathError;
pub use events::{KernelEvent, KernelEvents};
pub use explain::{Explained, Explainer, PacketState};
pub use flows::{ServiceFlows, Sweep, Swept};
pub use grace::Grace;
pub use load::{Hook, Run};
pub use loads::BackendCount;
pub use pinned::{FrontendAddress, Pinned};
pub use services::Served;
pub use view::View;

use arrays::Arrays;
use counts::Counters;
use flows::Flows;
use grace::Graces;
use load::Loaded;
use pods::Stand;
use pool::Pool;
use services::{Calls, Ledger, Registry};
use upgrade::Predecessors;

/// The version of the maps' layouts and names: another one gets a folder of pins of its own.
const SCHEMA: &str = "v5";

/// A flow without a packet for so long has lost its client. Connections to Services may be silent for longer.
const FLOW_IDLE_NS: u64 = 10 * 60 * 1_000_000_000;

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

/// Ends flows that have been idle for ten minutes; to be called each half minute or so. Blocks, but not the data path's
/// other users.
pub fn expire_flows(datapath: &Mutex<Datapath>) {
    let sweep = datapath.lock().sweep();
    let now_ns = clock::boottime_ns();
    let swept = sweep.walk(now_ns, FLOW_IDLE_NS);
    match datapath.lock().swept(swept, now_ns) {
        Ok(0) => {}
        Ok(ended) => tracing::debug!(ended, "idle flows ended"),
        Err(error) => tracing::warn!(%error, "failed to count ended connections"),
    }
}

/// The data path as its users share it: the loop, and the pod network. No lock is held across an await.
pub type SharedDatapath = Arc<Mutex<Datapath>>;

/// The data path of one node. One owner; the kernel reads along.
#[derive(Debug)]
pub struct Datapath {
    config: Config,
    /// Held as long as this agent writes the maps.
    _lock: File,
    loaded: Loaded,
    rtnl: Rtnl,
    arrays: Arc<Arrays>,
    pool: Pool,
    registry: Registry,
    /// The cluster's facts are in force.
    in_cluster: bool,
    counters: Counters,
    flows: Flows,
    events: Option<KernelEvents>,
    graces: Graces,
}

impl Datapath {
    /// Loads the programs, or takes over from the agent before: pinned maps are read, pinned links get the new programs
    /// in one step each, so no packet goes without.
    pub fn open(config: Config) -> Result<Self, DatapathError> {
        probe::judge(&probe::Findings {
            root: nix::unistd::geteuid().is_root(),
            failed: None,
        })?;
        let target = load::Target::find(&config)?;
        let folder = config.pins();
        pins::make_folder(&config.bpffs)?;
        let lock = pins::lock(&config.bpffs)?;
        let predecessors = upgrade::predecessors(&folder)?;
        pins::make_folder(&folder)?;
        if let Some(predecessors) = &predecessors {
            predecessors.share()?;
        }
        let mut loaded = Loaded::open(&folder, config.flows_max)?;
        let carried = predecessors.as_ref().map(Predecessors::fill).transpose()?;
        let arrays = Arc::new(Arrays::open(&loaded)?);
        let pool = Pool::read(&arrays);
        let facts = network::keep(&mut loaded, &arrays, &config)?;
        let calls = Calls::take(&mut loaded)?;
        let registry = Registry::open(&arrays, calls, cluster::direct(&facts))?;
        let events = KernelEvents::open(&mut loaded, mirror::unanswered(&arrays))?;
        let counters = Counters::open(&mut loaded, mirror::followed(&arrays))?;
        let flows = Flows::open(&mut loaded, &arrays)?;
        if let Some(predecessors) = &predecessors {
            predecessors.hand_over()?;
            predecessors.make_way()?;
        }
        let mut rtnl = Rtnl::open().map_err(DatapathError::program("attach", "tcx_pod_in"))?;
        // Pods last: what they begin must be known to the programs that see the answers.
        loaded.attach(&folder, &config, &target)?;
        let stand = if predecessors.is_some() {
            Stand::Behind
        } else {
            Stand::Own
        };
        for pod in network::interfaces(&loaded)? {
            pods::attach(&mut loaded, &mut rtnl, (pod, stand))?;
            if stand == Stand::Own {
                pods::clear(&mut rtnl, pod)?;
            }
        }
        if let (Some(predecessors), Some(carried)) = (predecessors, carried) {
            predecessors.retire(carried)?;
            for pod in network::interfaces(&loaded)? {
                pods::attach(&mut loaded, &mut rtnl, (pod, Stand::Own))?;
                pods::clear(&mut rtnl, pod)?;
            }
        }
        network::end_take_over(&mut loaded, &arrays)?;
        Ok(Self {
            config,
            _lock: lock,
            loaded,
            rtnl,
            arrays,
            pool,
            registry,
            in_cluster: false,
            counters,
            flows,
            events: Some(events),
            graces: Graces::default(),
        })
    }

    /// Whether solicitations for pods are answered on the uplink: a network that routes the node prefix asks for none.
    pub fn answer(&mut self, answers: bool) -> Result<(), DatapathError> {
        network::answer(&mut self.loaded, &self.arrays, answers)
    }

    /// Leads packets between the cluster's pods past the host's own forwarding, which they would reach by this interface;
    /// none: no packet.
    pub fn forward_by(&mut self, forwarder: Option<u32>, node: &Node) -> Result<(), DatapathError> {
        network::forward_by(&mut self.loaded, &self.arrays, forwarder, node)
    }

    /// Follows the uplink, whose link-layer address answers name, and which may have been made anew; in force at once.
    pub fn refresh_uplink(&mut self) -> Result<(), DatapathError> {
        let target = load::Target::find(&self.config)?;
        self.loaded
            .attach(&self.config.pins(), &self.config, &target)?;
        network::refresh_uplink(&mut self.loaded, &self.arrays, &self.config.uplink)
    }

    /// Says which addresses are VIPs and where the activators are; in force at once.
    pub fn configure(
        &mut self,
        ranges: &[VipRange],
        acting: &[Activator],
    ) -> Result<(), DatapathError> {
        network::configure(
            &mut self.loaded,
            &self.arrays,
            &self.config,
            (ranges, acting),
        )
    }

    /// Says what the node knows of itself and of its cluster; to be called before [`Datapath::serve`], and when the
    /// node's addresses change. Where service ranges have their slots changes only with the ranges.
    pub fn set_cluster(&mut self, cluster: &ClusterFacts) -> Result<(), DatapathError> {
        let mut facts = network::current(&self.loaded, &self.arrays)?;
        let node = &cluster.node;
        let direct = self.registry.layout(node, cluster.low(&facts));
        cluster::fill(&mut facts, node, &direct)?;
        self.registry
            .set_local(&self.arrays, &node.addresses.local)?;
        network::put(&mut self.loaded, &self.arrays, &facts)?;
        self.registry.set_direct(&direct);
        self.in_cluster = true;
        Ok(())
    }

    /// Puts the changes of one sync in force, at a cost of what changed. Nothing that an agent before left is taken away
    /// before [`Datapath::settle`]. What has no room is told, and tried again later.
    pub fn serve(
        &mut self,
        services: &Services,
        changes: &Changes,
    ) -> Result<Served, DatapathError> {
        if !self.in_cluster {
            return Err(DatapathError::NoCluster);
        }
        let mut served = self.registry.serve(
            &mut ledger(&self.arrays, &mut self.pool, &self.graces),
            services,
            changes,
        );
        if self.registry.has_shed() {
            // Ids that rest may be what lacks: after a grace period they are free.
            if !served.shed.is_empty() && self.pool.has_resting() {
                self.graces.begin().wait();
            }
            let again = self.registry.retry(
                &mut ledger(&self.arrays, &mut self.pool, &self.graces),
                services,
            );
            served.retried(again, |port| self.registry.is_shed(port));
        }
        Ok(served)
    }

    /// Every source of objects has told all that it has: takes away what the maps hold and nobody has spoken of.
    pub fn settle(&mut self, services: &Services) -> Served {
        let mut ledger = ledger(&self.arrays, &mut self.pool, &self.graces);
        self.registry.settle(&mut ledger, services)
    }

    /// The maps as decisions read them, to ask what would become of a connection.
    pub fn view(&self) -> Result<View<'_>, DatapathError> {
        let affinity = HashMap::try_from(self.loaded.map("affinity")?);
        Ok(View {
            arrays: &self.arrays,
            registry: &self.registry,
            config: network::current(&self.loaded, &self.arrays)?,
            affinity: Some(affinity.map_err(DatapathError::map("open", "affinity"))?),
        })
    }

    /// How full the maps are that the agent fills: name, entries in use, and how many there may be.
    pub fn fill(&self) -> Vec<(&'static str, usize, usize)> {
        let mut fill = self.pool.fill().to_vec();
        fill.extend(self.registry.fill());
        fill
    }

    /// Puts a VIP's entry in force. After [`Datapath::grace`] nobody decides by the entry before.
    pub fn publish(&mut self, entry: &Entry) -> Result<(), DatapathError> {
        if entry.mode == Mode::Serve {
            self.counters.follow(entry.vip)?;
        }
        let (arrays, pool) = (&self.arrays, &mut self.pool);
        match mirror::publish(arrays, pool, entry, self.graces.now()) {
            // Ids that rest may be what lacks: after a grace period they are free.
            Err(DatapathError::Full { .. }) if pool.has_resting() => {
                self.graces.begin().wait();
                mirror::publish(arrays, pool, entry, self.graces.now())
            }
            done => done,
        }
    }

    /// Switches VIPs whose backends stay from one mode to the other: one word each.
    pub fn flip(&mut self, vips: &[u32], mode: Mode) {
        mirror::flip(&self.arrays, vips, mode);
    }

    /// Stops following a VIP: its packets go to an activator, and the first of them raises a miss.
    pub fn forget(&mut self, vip: u32) -> Result<(), DatapathError> {
        mirror::forget(&self.arrays, &mut self.pool, vip, self.graces.now());
        self.counters.forget(vip)
    }

    /// Returns when no program can still decide by a word that was replaced before; takes about 10 ms.
    pub fn grace(&self) {
        self.grace_period().wait();
    }

    /// Begins a grace period, to be waited for elsewhere.
    pub fn grace_period(&self) -> Grace {
        self.graces.begin()
    }

    /// Renews the node lease: until then (CLOCK_BOOTTIME nanoseconds) leased entries act as they say.
    pub fn grant(&self, lease_until_ns: u64) {
        self.arrays.lease.store(0, lease_until_ns);
    }

    /// Ends a lease without end, which an agent without control left: from now on only grants count.
    pub fn expect_grants(&self) {
        if self.arrays.lease.load(0) == Some(u64::MAX) {
            self.grant(0);
        }
    }

    /// Makes a pod known: solicitations for it are answered, flows may lead to it.
    pub fn add_pod(&mut self, pod: PodEntry) -> Result<(), DatapathError> {
        // Known before its packets are judged, and called seen only when they are.
        network::add_pod(&mut self.loaded, &pod, false)?;
        let at = (pod.ifindex, Stand::Own);
        if pods::attach(&mut self.loaded, &mut self.rtnl, at)? {
            return network::add_pod(&mut self.loaded, &pod, true);
        }
        network::expect_unseen(&mut self.loaded, &self.arrays)
    }

    /// Forgets an address of a pod; IPv4 is mapped. One that is not known is no error.
    pub fn remove_pod(&mut self, address: Ipv6Addr) -> Result<(), DatapathError> {
        network::remove_pod(&mut self.loaded, address)
    }

    /// The addresses of the pods that are known; IPv4 is mapped.
    pub fn pods(&self) -> Result<BTreeSet<Ipv6Addr>, DatapathError> {
        network::pods(&self.loaded)
    }

    /// The kernel's events, once: whoever takes them reads them from then on.
    pub fn take_events(&mut self) -> Result<KernelEvents, DatapathError> {
        self.events.take().ok_or(DatapathError::Taken)
    }

    /// What was counted since the call before, for each VIP that had a connection in between.
    pub fn counts(&mut self) -> Vec<VipCount> {
        self.counters.take(clock::boottime_ns())
    }

    /// The backends of a slot, and what this node has given them since each got its id: absolute counts, to be compared
    /// between two calls. Costs a look at each backend of the slot.
    pub fn backend_counts(&self, slot: u32) -> Vec<BackendCount> {
        loads::of_slot(&self.arrays, slot)
    }

    /// Begins a look at all connections; it goes on without access to the data path, and ends in [`Datapath::swept`].
    pub fn sweep(&self) -> Sweep {
        self.flows.sweep(&self.counters)
    }

    /// Counts what a sweep found to have ended. Returns how many flows it removed.
    pub fn swept(&mut self, swept: Swept, now_ns: u64) -> Result<usize, DatapathError> {
        swept.count(&mut self.counters, now_ns)
    }

    /// Ends flows without a packet for `idle_ns`, so that a client that vanished keeps no app awake. Returns how many.
    pub fn expire_idle(&mut self, now_ns: u64, idle_ns: u64) -> Result<usize, DatapathError> {
        let swept = self.sweep().walk(now_ns, idle_ns);
        self.swept(swept, now_ns)
    }

    /// The flows of Services, for [`ServiceFlows::end_stale`] after [`Datapath::serve`] and its grace period.
    pub fn service_flows(&self) -> ServiceFlows {
        self.flows.of_services()
    }

    /// The VIPs that the maps hold, sorted.
    pub fn followed(&self) -> Vec<u32> {
        mirror::followed(&self.arrays)
    }

    /// What became of packets, all CPUs together, since the maps were made.
    pub fn stats(&self) -> Vec<(Verdict, u64)> {
        counts::stats(&self.loaded)
    }

    /// The mean time of one run of a program that is attached nowhere, over the maps as they are.
    pub fn measure(
        &mut self,
        program: &'static str,
        runs: u32,
    ) -> Result<std::time::Duration, DatapathError> {
        measure::time(&mut self.loaded, program, runs)
    }

    /// The memory of each of a node's maps, in bytes.
    pub fn memory(&self) -> Result<Vec<(String, u64)>, DatapathError> {
        measure::memory(&self.config.pins())
    }

    /// Runs the program of a hook over a frame, over the real maps: what would become of it here and now.
    pub fn run(&self, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
        self.loaded.run(hook, frame)
    }
}

fn ledger<'a>(arrays: &'a Arrays, pool: &'a mut Pool, graces: &Graces) -> Ledger<'a> {
    Ledger {
        arrays,
        pool,
        now: graces.now(),
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
