//! A second copy of the programs for explanations: it shares the maps that programs only read, and has its own copies of those
//! that they write.
//!
//! Flows, affinity, touch words, buckets of wakes, counters, loads and events are not shared, so a run changes nothing that the running programs
//! see. The entries that this one packet's decision reads are copied in before the run.

use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::{Program, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use dormouse_ebpf::flow::{Flow, FlowKey, OPENING};
use dormouse_ebpf::maps::{Affinity, AffinityKey, FLOW_FILTER_WORDS};
use dormouse_ebpf::packet_log;
use dormouse_ebpf::trace::{STEPS_MAX, StepRecord};
use dormouse_ebpf::wake_limit::WakeSource;

use super::counts::sums;
use super::error::DatapathError;
use super::load::OBJECT;
use super::pinned::Pinned;
use super::run::{Hook, RUN_ROOM};
use super::{Verdict, clock, probe};

/// The maps that programs only read.
const SHARED: &[&str] = &[
    "svc",
    "lease",
    "current",
    "backend_set",
    "backend",
    "prefix",
    "frontend_filter",
    "frontend",
    "slot_option",
    "source_range",
    "config",
    "pod",
    "wake_limit",
    "deny_a",
    "deny_b",
];

/// Maps of which one packet needs few entries, and their reduced sizes.
const SMALL: &[(&str, u32)] = &[
    ("flow", 1 << 10),
    ("opening", 1 << 10),
    ("load", 1),
    ("affinity", 1 << 10),
    ("fragment", 1 << 10),
    ("reverse_peer", 1 << 10),
    ("drops", 1 << 10),
    ("wake_budget", 1 << 10),
    // A ring buffer's size is a power of two, and whole pages.
    ("events", 1 << 16),
    (packet_log::MAP, packet_log::UNUSED_BYTES),
];

/// Size of `__sk_buff` in bytes, and the offset of its ifindex (linux/bpf.h).
const CONTEXT_LEN: usize = 192;
const CONTEXT_IFINDEX: usize = 40;

/// The entries, written by programs, that a packet's decision reads.
#[derive(Debug, Default)]
pub struct PacketState {
    /// The packet's flow, and its reverse flow.
    pub flows: Vec<(FlowKey, Flow)>,
    /// The client's affinity entries.
    pub affinity: Vec<(AffinityKey, Affinity)>,
    /// The VIP's index and its touch word.
    pub touch: Option<(u32, u64)>,
    /// The sender's bucket of wakes.
    pub budget: Option<(WakeSource, u64)>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Explained {
    /// The program's return code (TC_ACT_*).
    pub verdict: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// The recorded steps.
    pub steps: Vec<StepRecord>,
    /// The verdicts that it counted.
    pub counted: Vec<(Verdict, u64)>,
}

/// A loaded copy of one program.
pub struct Explainer {
    object: Ebpf,
    hook: Hook,
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer")
            .field("hook", &self.hook)
            .finish_non_exhaustive()
    }
}

impl Explainer {
    /// Loads the program of a hook. A running agent is not involved.
    pub fn open(pinned: &Pinned, hook: Hook) -> Result<Self, DatapathError> {
        probe::judge(&probe::Findings {
            root: nix::unistd::geteuid().is_root(),
            failed: None,
        })?;
        let borrowed = Borrowed::make(pinned.folder())?;
        let mut loader = EbpfLoader::new();
        loader
            .default_map_pin_directory(&borrowed.folder)
            .override_global("EXPLAIN", &1_u32, true);
        for (name, size) in SMALL {
            loader.map_max_entries(name, *size);
        }
        let mut object = loader.load(OBJECT)?;
        drop(borrowed);
        let name = hook.program();
        match object.program_mut(name) {
            Some(Program::SchedClassifier(program)) => program.load(),
            _ => return Err(DatapathError::Absent { name }),
        }
        .map_err(DatapathError::program("load", name))?;
        Ok(Self { object, hook })
    }

    /// Copies in the entries that the packet's decision reads.
    pub fn copy_in(&mut self, state: &PacketState) -> Result<(), DatapathError> {
        for (key, flow) in &state.flows {
            let name = if flow.is(OPENING) { "opening" } else { "flow" };
            let mut flows: HashMap<_, FlowKey, Flow> = self.map(name)?;
            let inserted = flows.insert(key, flow, 0);
            inserted.map_err(DatapathError::map("insert into", name))?;
        }
        let mut flow_filter: Array<_, u64> = self.map("flow_filter")?;
        for place in 0..FLOW_FILTER_WORDS {
            // Any address may have flows here: the flow table is small.
            let set = flow_filter.set(place, u64::MAX, 0);
            set.map_err(DatapathError::map("write", "flow_filter"))?;
        }
        let mut affinity: HashMap<_, AffinityKey, Affinity> = self.map("affinity")?;
        for (key, clients) in &state.affinity {
            let inserted = affinity.insert(key, clients, 0);
            inserted.map_err(DatapathError::map("insert into", "affinity"))?;
        }
        if let Some((vip, noted)) = state.touch {
            let mut touch: Array<_, u64> = self.map("touch")?;
            let set = touch.set(vip, noted, 0);
            set.map_err(DatapathError::map("write", "touch"))?;
        }
        if let Some((source, full_at_ns)) = state.budget {
            let mut budgets: HashMap<_, WakeSource, u64> = self.map("wake_budget")?;
            let inserted = budgets.insert(source, full_at_ns, 0);
            inserted.map_err(DatapathError::map("insert into", "wake_budget"))?;
        }
        Ok(())
    }

    /// Runs the program over a frame on an interface. Only once: a second packet would see the state left by the first.
    pub fn run(mut self, frame: &[u8], ifindex: u32) -> Result<Explained, DatapathError> {
        let name = self.hook.program();
        let mut room = vec![0; frame.len() + RUN_ROOM];
        let mut context = [0; CONTEXT_LEN];
        context[CONTEXT_IFINDEX..CONTEXT_IFINDEX + 4].copy_from_slice(&ifindex.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut room),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let result = match self.object.program(name) {
            Some(Program::SchedClassifier(program)) => program.test_run(options),
            _ => return Err(DatapathError::Absent { name }),
        }
        .map_err(DatapathError::program("run", name))?;
        room.truncate(result.data_size_out as usize);
        Ok(Explained {
            verdict: result.return_value,
            frame: room,
            steps: self.steps()?,
            counted: self.counted()?,
        })
    }

    fn steps(&mut self) -> Result<Vec<StepRecord>, DatapathError> {
        let trace: Array<_, StepRecord> = self.map("trace")?;
        let record = |place: u32| {
            trace
                .get(&place, 0)
                .map_err(DatapathError::map("read", "trace"))
        };
        let count = record(0)?.step.min(STEPS_MAX - 1);
        (1..=count).map(record).collect()
    }

    fn counted(&mut self) -> Result<Vec<(Verdict, u64)>, DatapathError> {
        let name = "stats";
        let map = self.object.take_map(name);
        let map = map.ok_or(DatapathError::Absent { name })?;
        let stats = PerCpuArray::try_from(map).map_err(DatapathError::map("open", name))?;
        let counted = sums(&stats).into_iter();
        Ok(counted.filter(|(_, count)| *count > 0).collect())
    }

    fn map<'a, T>(&'a mut self, name: &'static str) -> Result<T, DatapathError>
    where
        T: TryFrom<&'a mut aya::maps::Map, Error = aya::maps::MapError>,
    {
        let map = self.object.map_mut(name);
        T::try_from(map.ok_or(DatapathError::Absent { name })?)
            .map_err(DatapathError::map("open", name))
    }
}

/// A temporary folder in which the shared maps are pinned a second time, so that the loader reuses them and creates the others;
/// removed after loading.
struct Borrowed {
    folder: PathBuf,
}

impl Borrowed {
    fn make(pins: &Path) -> Result<Self, DatapathError> {
        // File names on a bpffs must not contain dots.
        let (process, now_ns) = (std::process::id(), clock::boottime_ns());
        let folder = pins.with_file_name(format!("explain-{process}-{now_ns}"));
        let failed = |source| DatapathError::Folder {
            path: folder.clone(),
            source,
        };
        std::fs::create_dir(&folder).map_err(failed)?;
        let borrowed = Self { folder };
        for name in SHARED {
            let map =
                MapData::from_pin(pins.join(name)).map_err(DatapathError::map("open", name))?;
            map.pin(borrowed.folder.join(name))
                .map_err(DatapathError::map("pin a second time", name))?;
        }
        Ok(borrowed)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "failed to remove a temporary folder of pins");
        }
    }
}
