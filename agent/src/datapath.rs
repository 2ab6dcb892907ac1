//! The kernel's half of the node, as the agent sees it: loaded once, taken over by every later agent, told what changed.
//!
//! All state lies in pinned maps. Dropping a [`Datapath`] changes nothing in the kernel; [`detach`] takes it away.

mod arrays;
mod counts;
pub mod entry;
mod error;
mod events;
mod flows;
mod grace;
mod ids;
mod load;
mod mirror;
mod network;
mod pins;
pub mod probe;
mod sys;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

pub use counts::VipCount;
pub use dormouse_ebpf::service::{EventKind as KernelEventKind, Mode};
pub use dormouse_ebpf::verdict::Verdict;
pub use entry::{Activator, Backend, Entry, PodEntry, VipRange};
pub use error::DatapathError;
pub use events::{KernelEvent, KernelEvents};
pub use flows::{Sweep, Swept};
pub use grace::Grace;
pub use load::{Hook, Run};
pub(crate) use sys::watch;

use arrays::Arrays;
use counts::Counters;
use flows::Flows;
use grace::Graces;
use load::Loaded;
use mirror::Mirror;

/// The version of the map layouts: another one gets a folder of pins of its own.
const SCHEMA: &str = "v1";

/// A flow without a packet for so long has lost its client: longer than any keep-alive that is meant to keep one.
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
}

/// Ends flows that have been idle for ten minutes; to be called each half minute or so. Blocks, but not the data path's
/// other users.
pub fn expire_flows(datapath: &Mutex<Datapath>) {
    let sweep = datapath.lock().sweep();
    let now_ns = sys::boottime_ns();
    let swept = sweep.walk(now_ns, FLOW_IDLE_NS);
    match datapath.lock().swept(swept, now_ns) {
        Ok(0) => {}
        Ok(ended) => tracing::debug!(ended, "idle flows ended"),
        Err(error) => tracing::warn!(%error, "ended connections were not counted"),
    }
}

/// The data path of one node. One owner; the kernel reads along.
#[derive(Debug)]
pub struct Datapath {
    config: Config,
    /// Held as long as this agent writes the maps.
    _lock: File,
    loaded: Loaded,
    arrays: Arrays,
    mirror: Mirror,
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
        let folder = config.bpffs.join(SCHEMA);
        pins::make_folder(&folder)?;
        let lock = pins::lock(&config.bpffs)?;
        let mut loaded = Loaded::open(&folder)?;
        let arrays = Arrays::open(&loaded)?;
        let mirror = Mirror::read(&arrays);
        network::keep(&mut loaded, &arrays, &config)?;
        let events = KernelEvents::open(&mut loaded, Mirror::unanswered(&arrays))?;
        let counters = Counters::open(&mut loaded, mirror.followed())?;
        let flows = Flows::open(&mut loaded)?;
        loaded.attach(&folder, &config, &target)?;
        Ok(Self {
            config,
            _lock: lock,
            loaded,
            arrays,
            mirror,
            counters,
            flows,
            events: Some(events),
            graces: Graces::default(),
        })
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

    /// Puts a VIP's entry in force. After [`Datapath::grace`] nobody decides by the entry before.
    pub fn publish(&mut self, entry: &Entry) -> Result<(), DatapathError> {
        if entry.mode == Mode::Serve {
            self.counters.follow(entry.vip)?;
        }
        match self.mirror.publish(&self.arrays, entry, self.graces.now()) {
            // Ids that rest may be what lacks: after a grace period they are free.
            Err(DatapathError::Full { .. }) => {
                self.grace();
                self.mirror.publish(&self.arrays, entry, self.graces.now())
            }
            done => done,
        }
    }

    /// Stops following a VIP: its packets go to an activator, and the first of them raises a miss.
    pub fn forget(&mut self, vip: u32) -> Result<(), DatapathError> {
        self.mirror.forget(&self.arrays, vip, self.graces.now());
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
        network::add_pod(&mut self.loaded, &pod)
    }

    /// Forgets a pod. One that is not known is no error.
    pub fn remove_pod(&mut self, address: Ipv6Addr) -> Result<(), DatapathError> {
        network::remove_pod(&mut self.loaded, address)
    }

    /// The addresses of the pods that are known.
    pub fn pods(&self) -> Result<BTreeSet<Ipv6Addr>, DatapathError> {
        network::pods(&self.loaded)
    }

    /// The kernel's events, once: whoever takes them reads them from then on.
    pub fn take_events(&mut self) -> Result<KernelEvents, DatapathError> {
        self.events.take().ok_or(DatapathError::Taken)
    }

    /// What was counted since the call before, for each VIP that had a connection in between.
    pub fn counts(&mut self) -> Vec<VipCount> {
        self.counters.take(sys::boottime_ns())
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

    /// The VIPs that the maps hold, sorted.
    pub fn followed(&self) -> Vec<u32> {
        self.mirror.followed()
    }

    /// What became of packets, all CPUs together, since the maps were made.
    pub fn stats(&self) -> Vec<(Verdict, u64)> {
        counts::stats(&self.loaded)
    }

    /// Runs the program of a hook over a frame, over the real maps: what would become of it here and now.
    pub fn run(&self, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
        self.loaded.run(hook, frame)
    }
}

/// Takes the data path of a node out of the kernel: links, then maps. What is not there is no error.
pub fn detach(bpffs: &Path) -> Result<(), DatapathError> {
    if !bpffs.exists() {
        return Ok(());
    }
    let _lock = pins::lock(bpffs)?;
    match std::fs::remove_dir_all(bpffs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DatapathError::Folder {
            path: bpffs.to_path_buf(),
            source: error,
        }),
        _ => Ok(()),
    }
}
