//! Read-only access to a node's pinned maps, for inspection, with or without a running agent.
//!
//! Nothing is written: arrays are mapped read-only, and other maps are only looked up. The programs' own decision function
//! runs over the maps ([`Tables`]), and records its steps here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{
    Array, HashMap as BpfHashMap, IterableMap as _, Map, MapData, PerCpuArray, PerCpuHashMap,
};
use dormouse_agent_sys::words::Words;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::Tables;
use dormouse_ebpf::deny::{LIST_A, NO_LIST};
use dormouse_ebpf::flow::{Flow, FlowKey};
use dormouse_ebpf::maps::{
    Affinity, AffinityKey, Backend, DROPS_MAX, DropKey, FRONTEND_SOURCE_RANGES, FRONTEND_VIP,
    FrontendKey, LEASE_STALE, Pod, SlotOptions, SourceRange, join,
};
use dormouse_ebpf::service::{Route, SLOTS_MAX, Set, Target, wakes};
use dormouse_ebpf::trace::{Step, StepRecord};
use dormouse_ebpf::wake_limit::{WakeLimit, WakeSource};

use super::arrays::{Arrays, octets};
use super::clock;
use super::counts::sums;
use super::deny::{self, Denied};
use super::error::DatapathError;
use super::loads::{self, BackendCount};
use super::walk::walk;
use super::{SCHEMA, Verdict, xdp};

/// A frontend: address, port, IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendAddress {
    /// Frontend address.
    pub address: IpAddr,
    /// Port; 0: any.
    pub port: u16,
    /// IP protocol number; 0: any.
    pub protocol: u8,
}

/// The opened maps of a node.
pub struct Pinned {
    folder: PathBuf,
    arrays: Arrays,
    config: Config,
    frontends: BpfHashMap<MapData, FrontendKey, u32>,
    slot_options: BpfHashMap<MapData, u32, SlotOptions>,
    source_ranges: LpmTrie<MapData, SourceRange, u32>,
    affinity: BpfHashMap<MapData, AffinityKey, Affinity>,
    pods: BpfHashMap<MapData, [u8; 16], Pod>,
    flows: BpfHashMap<MapData, FlowKey, Flow>,
    opening: BpfHashMap<MapData, FlowKey, Flow>,
    wake_limit: WakeLimit,
    wake_budgets: BpfHashMap<MapData, WakeSource, u64>,
    steps: RefCell<Vec<StepRecord>>,
    affinity_read: RefCell<Vec<(AffinityKey, Affinity)>>,
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Pinned {
    /// Opens the maps; `bpffs` is the node's folder of pins.
    pub fn open(bpffs: &Path) -> Result<Self, DatapathError> {
        let folder = in_force(bpffs);
        let arrays = arrays(&folder)?;
        let slots: Array<MapData, Config> = typed(&folder, "config")?;
        let slot = u32::from(arrays.current.load(0).unwrap_or(0) & 1 == 1);
        let config = slots
            .get(&slot, 0)
            .map_err(DatapathError::map("read", "config"))?;
        let wake_limit: Array<MapData, WakeLimit> = typed(&folder, "wake_limit")?;
        Ok(Self {
            arrays,
            config,
            wake_limit: wake_limit
                .get(&0, 0)
                .map_err(DatapathError::map("read", "wake_limit"))?,
            wake_budgets: typed(&folder, "wake_budget")?,
            frontends: typed(&folder, "frontend")?,
            slot_options: typed(&folder, "slot_option")?,
            source_ranges: typed(&folder, "source_range")?,
            affinity: typed(&folder, "affinity")?,
            pods: typed(&folder, "pod")?,
            flows: typed(&folder, "flow")?,
            opening: typed(&folder, "opening")?,
            folder,
            steps: RefCell::default(),
            affinity_read: RefCell::default(),
        })
    }

    /// Whether the uplink's driver judges packets from outside first (XDP).
    pub fn has_xdp(&self) -> bool {
        self.folder.join(xdp::PIN).exists()
    }

    /// The folder that contains the opened pins.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The node's configuration at the time of opening.
    pub fn facts(&self) -> &Config {
        &self.config
    }

    /// The two words of a slot.
    pub fn slot(&self, slot: u32) -> (Route, Set) {
        self.arrays.slot(slot)
    }

    /// The `touch` word of an app's VIP, which programs write.
    pub fn touch(&self, vip: u32) -> Option<u64> {
        self.arrays.touch.load(vip as usize)
    }

    /// The sender's bucket of wakes, if it has woken an app.
    pub fn wake_budget(&self, source: &WakeSource) -> Option<u64> {
        self.wake_budgets.get(source, 0).ok()
    }

    /// The slots with an entry.
    pub fn followed(&self) -> impl Iterator<Item = (u32, Route, Set)> {
        let slots = (0..SLOTS_MAX).map(|slot| (slot, self.arrays.slot(slot)));
        slots.filter_map(|(slot, (route, set))| route.present.then_some((slot, route, set)))
    }

    /// Address, port and generation of a backend.
    pub fn endpoint(&self, id: u32) -> Option<(IpAddr, u16, u16)> {
        let backend = self.arrays.backend(id)?;
        let prefix = self.arrays.upper(backend.prefix)?;
        let address = IpAddr::from(join(&prefix, backend.host)).to_canonical();
        Some((address, backend.port, backend.generation))
    }

    /// The backends of a slot with their connection counts.
    pub fn backend_counts(&self, slot: u32) -> Vec<BackendCount> {
        loads::of_slot(&self.arrays, slot)
    }

    /// The backends of a set that new connections may use.
    pub fn backends(&self, set: Set) -> impl Iterator<Item = (IpAddr, u16)> {
        let places = (set.offset..).take(set.count.into());
        places.filter_map(|place| {
            let (address, port, _) = self.endpoint(self.arrays.id(place)?)?;
            Some((address, port))
        })
    }

    /// The row of a pod of this node.
    pub fn pod(&self, address: IpAddr) -> Option<Pod> {
        self.pods.get(&octets(address), 0).ok()
    }

    /// All pods of this node.
    pub fn pods(&self) -> Result<Vec<(Ipv6Addr, Pod)>, DatapathError> {
        let mut pods = Vec::new();
        walk(&self.pods, "pod", |key: &[u8; 16], pod: &Pod| {
            pods.push((Ipv6Addr::from(*key), *pod));
            true
        })?;
        pods.sort_unstable_by_key(|(address, _)| *address);
        Ok(pods)
    }

    /// The entry of a flow, opening or established; one that becomes established meanwhile is in one of the tables.
    pub fn flow(&self, key: &FlowKey) -> Option<Flow> {
        let tables = [&self.flows, &self.opening, &self.flows];
        tables.iter().find_map(|flows| flows.get(key, 0).ok())
    }

    /// Capacity of the flow table and of that of opening connections, in flows.
    pub fn flows_max(&self) -> Result<[u32; 2], DatapathError> {
        let room = |flows: &BpfHashMap<MapData, FlowKey, Flow>| -> Result<u32, DatapathError> {
            let info = flows.map().info();
            let info = info.map_err(DatapathError::map("look at", "flow"))?;
            Ok(info.max_entries())
        };
        Ok([room(&self.flows)?, room(&self.opening)?])
    }

    /// Calls `show` for each flow, the opening ones first, else in no particular order, while it returns true. A flow that becomes
    /// established meanwhile may be shown twice.
    pub fn flows(
        &self,
        mut show: impl FnMut(&FlowKey, &Flow) -> bool,
    ) -> Result<(), DatapathError> {
        let mut goes_on = true;
        for (flows, name) in [(&self.opening, "opening"), (&self.flows, "flow")] {
            walk(flows, name, |key: &FlowKey, flow: &Flow| {
                goes_on = goes_on && show(key, flow);
                goes_on
            })?;
        }
        Ok(())
    }

    /// Verdict counters since the maps were created, summed over all CPUs.
    pub fn stats(&self) -> Result<Vec<(Verdict, u64)>, DatapathError> {
        let stats: PerCpuArray<MapData, u64> = typed(&self.folder, "stats")?;
        Ok(sums(&stats))
    }

    /// The deny list in force: the entries that have not ended, in no particular order.
    pub fn denied(&self) -> Result<Vec<Denied>, DatapathError> {
        let name = match self.config.deny {
            NO_LIST => return Ok(Vec::new()),
            LIST_A => deny::NAMES[0],
            _ => deny::NAMES[1],
        };
        let trie: deny::Trie = typed(&self.folder, name)?;
        let entries = deny::entries(&trie, clock::boottime_ns());
        entries.map_err(DatapathError::map("read", name))
    }

    /// Refused and dropped packets by slot and verdict, summed over all CPUs; rare keys may have been evicted (LRU).
    pub fn drops(&self) -> Result<HashMap<DropKey, u64>, DatapathError> {
        let drops: PerCpuHashMap<MapData, DropKey, u64> = typed(&self.folder, "drops")?;
        // A concurrent insert restarts the walk: it is bounded, and a key is never added twice.
        let counted = drops.iter().take(2 * DROPS_MAX as usize);
        let counted = counted.filter_map(Result::ok);
        Ok(counted
            .map(|(key, cpus)| (key, cpus.iter().sum()))
            .collect())
    }

    /// The frontend of each slot; of several, the smallest. Slots for sources inside the cluster have that of the external slot.
    pub fn frontends(&self) -> Result<HashMap<u32, FrontendAddress>, DatapathError> {
        let mut places = HashMap::new();
        walk(
            &self.frontends,
            "frontend",
            |key: &FrontendKey, value: &u32| {
                if key.kind == FRONTEND_VIP {
                    let place = FrontendAddress {
                        address: IpAddr::from(key.address).to_canonical(),
                        port: key.port,
                        protocol: key.protocol,
                    };
                    let known = places
                        .entry(value & !FRONTEND_SOURCE_RANGES)
                        .or_insert(place);
                    *known = place.min(*known);
                }
                true
            },
        )?;
        walk(
            &self.slot_options,
            "slot_option",
            |slot: &u32, options: &SlotOptions| {
                if let Some(place) = places
                    .get(slot)
                    .copied()
                    .filter(|_| options.internal_slot != 0)
                {
                    places.entry(options.internal_slot).or_insert(place);
                }
                true
            },
        )?;
        Ok(places)
    }

    /// Time since the end of the node lease, if apps' entries are used nevertheless.
    pub fn stale_for(&self) -> Option<Duration> {
        let lease = self.arrays.lease.load(0)?;
        if lease & LEASE_STALE == 0 || lease == u64::MAX {
            return None;
        }
        let over = clock::boottime_ns().checked_sub(lease & !LEASE_STALE)?;
        Some(Duration::from_nanos(over))
    }

    /// The frontend of a slot with an address of its own: a cluster IP, or an app's VIP.
    pub fn own_frontend(&self, slot: u32) -> Option<FrontendAddress> {
        let (route, _) = self.arrays.slot(slot);
        let services = self.config.services.iter();
        let services = services.take(self.config.services_len as usize);
        let apps = self.config.ranges.iter();
        let apps = apps.take(self.config.ranges_len as usize);
        let mut ranges = services.chain(apps);
        let range = ranges
            .find(|range| slot.wrapping_sub(range.base) <= !range.mask && slot >= range.base)?;
        let mut address = range.prefix;
        let low = u32::from_be_bytes([address[12], address[13], address[14], address[15]]);
        let low = low | (slot - range.base);
        address[12..].copy_from_slice(&low.to_be_bytes());
        Some(FrontendAddress {
            address: IpAddr::from(address).to_canonical(),
            port: route.port,
            protocol: route.protocol.number(),
        })
    }

    /// The steps of decisions since the last call.
    pub fn take_steps(&self) -> Vec<StepRecord> {
        self.steps.take()
    }

    /// The affinity entries that decisions looked up since the last call.
    pub fn take_affinity(&self) -> Vec<(AffinityKey, Affinity)> {
        self.affinity_read.take()
    }
}

impl Tables for Pinned {
    fn config(&self) -> Option<&Config> {
        Some(&self.config)
    }

    fn route(&self, slot: u32) -> Option<u64> {
        self.arrays.svc.load(slot as usize * 2)
    }

    fn set(&self, slot: u32) -> Option<u64> {
        self.arrays.svc.load(slot as usize * 2 + 1)
    }

    fn id(&self, place: u32) -> Option<u32> {
        self.arrays.id(place)
    }

    fn backend(&self, id: u32) -> Option<Backend> {
        self.arrays.backend(id)
    }

    fn prefix(&self, id: u32) -> Option<[u8; 16]> {
        self.arrays.upper(id)
    }

    fn frontend_filter(&self, word: u32) -> u64 {
        self.arrays.frontend_filter.load(word as usize).unwrap_or(0)
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.frontends.get(key, 0).ok()
    }

    fn has_pod(&self, address: &[u8; 16]) -> bool {
        self.pods.get(address, 0).is_ok()
    }

    fn slot_options(&self, slot: u32) -> Option<SlotOptions> {
        self.slot_options.get(&slot, 0).ok()
    }

    fn in_source_range(&self, slot: u32, source: &[u8; 16]) -> bool {
        let range = SourceRange {
            slot: slot.to_be_bytes(),
            address: *source,
        };
        self.source_ranges.get(&Key::new(160, range), 0).is_ok()
    }

    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        let affinity = self.affinity.get(key, 0).ok()?;
        self.affinity_read.borrow_mut().push((*key, affinity));
        Some(affinity)
    }

    fn takes_token(&self, vip: u32, route: Route, target: Target) -> bool {
        let noted = self.touch(vip);
        self.wake_limit.budget().is_some()
            && noted.is_some_and(|noted| wakes(route, noted, target).is_some())
    }

    fn lease_until_ns(&self) -> u64 {
        self.arrays.lease.load(0).unwrap_or(0)
    }

    fn now_ns(&self) -> u64 {
        clock::boottime_ns()
    }

    fn trace(&self, step: Step, first: u64, second: u64) {
        let values = [first, second];
        let step = step as u32;
        self.steps.borrow_mut().push(StepRecord {
            step,
            pad: 0,
            values,
        });
    }
}

/// The active folder of this schema (the flow table's size is part of its name). During a take-over there are two; the one
/// with the links is active.
fn in_force(bpffs: &Path) -> PathBuf {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        let rest = name.as_deref().and_then(|name| name.strip_prefix(SCHEMA));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let entries = std::fs::read_dir(bpffs).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    folders.sort_unstable_by_key(|folder| !folder.join("link_tcx_uplink_in").exists());
    folders
        .into_iter()
        .next()
        .unwrap_or_else(|| bpffs.join(SCHEMA))
}

/// Opens a pinned map.
fn pinned(folder: &Path, name: &'static str) -> Result<MapData, DatapathError> {
    MapData::from_pin(folder.join(name)).map_err(DatapathError::map("open the pinned", name))
}

fn typed<T>(folder: &Path, name: &'static str) -> Result<T, DatapathError>
where
    T: TryFrom<Map>,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let map =
        Map::from_map_data(pinned(folder, name)?).map_err(DatapathError::map("open", name))?;
    T::try_from(map).map_err(DatapathError::map("open", name))
}

fn arrays(folder: &Path) -> Result<Arrays, DatapathError> {
    Arrays::of(|name, words| {
        let map = pinned(folder, name)?;
        Words::view(map.fd().as_fd(), words).map_err(DatapathError::map("map the memory of", name))
    })
}
