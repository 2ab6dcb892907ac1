//! Takes over a data path whose maps are laid out otherwise: new maps are filled from the old ones, then each link gets
//! its new program in one step. No packet goes without a program, and no connection without its flow.
//!
//! What began between the copy and the step is copied after it. A packet that comes in between is decided by its own hash,
//! which gives the same answer again where nothing else was drawn; the second copy, right before the steps, keeps that
//! time short.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuHashMap};
use dormouse_ebpf::config::Config as Facts;
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{Flow, FlowKey};
use dormouse_ebpf::maps::{Extra, ForeignKey, Peer, PeerKey, Pod, Socket, Sticky, StickyKey};

use super::error::DatapathError;
use super::sys::Words;

/// `BPF_NOEXIST`: what the new programs wrote down already is newer.
const NEW: u64 = 1;

/// Arrays that are copied word by word.
const ARRAYS: &[&str] = &[
    "svc", "touch", "lease", "current", "vec", "backend", "prefix", "filter",
];

/// The folder of a data path before.
#[derive(Debug)]
pub(super) struct Former {
    folder: PathBuf,
    /// The folder that takes over.
    heir: PathBuf,
    /// Its entries mean the same; only the sizes of maps differ.
    alike: bool,
}

/// The pins of another layout beside `folder`, if an agent before left some. Those that no link is among are what is left
/// of a take-over that was cut off, or never began: they are taken away.
pub(super) fn former(folder: &Path, layout: &str) -> Result<Option<Former>, DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: folder.to_path_buf(),
        source,
    };
    let Some(parent) = folder.parent().filter(|parent| parent.exists()) else {
        return Ok(None);
    };
    let mut former = None;
    for found in fs::read_dir(parent).map_err(failed)? {
        let found = found.map_err(failed)?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        let is_layout = found.file_type().map_err(failed)?.is_dir() && name.starts_with('v');
        if !is_layout || found.path() == folder {
            continue;
        }
        if links(&found.path())?.is_empty() {
            fs::remove_dir_all(found.path()).map_err(failed)?;
            continue;
        }
        former = Some(Former {
            folder: found.path(),
            heir: folder.to_path_buf(),
            alike: *name == *layout || name.starts_with(&format!("{layout}-")),
        });
    }
    Ok(former)
}

impl Former {
    /// Copies what the old maps hold, before anything reads the new ones. Does nothing once a link has changed hands.
    pub(super) fn copy(&self) -> Result<(), DatapathError> {
        if !self.alike || !links(&self.heir)?.is_empty() {
            return Ok(());
        }
        for &name in ARRAYS {
            self.copy_array(name)?;
        }
        self.copy_facts()?;
        self.copy_hash::<ForeignKey, u32>("foreign")?;
        self.copy_hash::<u32, Extra>("extra")?;
        self.copy_hash::<[u8; 16], Pod>("pod")?;
        self.copy_admitted()?;
        self.copy_counts()?;
        self.copy_hash::<u32, Counts>("expired")?;
        self.copy_connections()
    }

    /// Copies the connections that began since the copy.
    pub(super) fn catch_up(&self) -> Result<(), DatapathError> {
        if self.alike {
            self.copy_connections()?;
        }
        Ok(())
    }

    /// Hands the old links over, so that attaching finds them.
    pub(super) fn hand_over(&self) -> Result<(), DatapathError> {
        for link in links(&self.folder)? {
            let (from, to) = (self.folder.join(&link), self.heir.join(&link));
            // What the new object has no program for goes with the old folder, when all else works.
            if link.to_string_lossy() == "link_xdp_uplink" {
                continue;
            }
            fs::rename(&from, &to)
                .map_err(|source| DatapathError::Folder { path: from, source })?;
        }
        Ok(())
    }

    /// Copies what began meanwhile, and takes the old maps away.
    pub(super) fn finish(self) -> Result<(), DatapathError> {
        self.catch_up()?;
        tracing::info!(former = %self.folder.display(), "took over a data path of another layout");
        fs::remove_dir_all(&self.folder).map_err(|source| DatapathError::Folder {
            path: self.folder.clone(),
            source,
        })
    }

    fn copy_connections(&self) -> Result<(), DatapathError> {
        self.copy_hash::<FlowKey, Flow>("flow")?;
        self.copy_array("flowing")?;
        self.copy_hash::<StickyKey, Sticky>("sticky")?;
        self.copy_hash::<PeerKey, Peer>("peer")?;
        self.copy_hash::<u64, Socket>("socket")
    }

    /// A map as it was, and the one that takes over.
    fn open(&self, name: &'static str) -> Result<(Map, Map), DatapathError> {
        let open = |folder: &Path| {
            MapData::from_pin(folder.join(name))
                .and_then(Map::from_map_data)
                .map_err(DatapathError::map("take over", name))
        };
        Ok((open(&self.folder)?, open(&self.heir)?))
    }

    fn copy_array(&self, name: &'static str) -> Result<(), DatapathError> {
        let (Map::Array(from), Map::Array(to)) = self.open(name)? else {
            return Err(DatapathError::Absent { name });
        };
        let words = words(&from, name)?.min(words(&to, name)?);
        let map = |array: &MapData| {
            Words::map(std::os::fd::AsFd::as_fd(array.fd()), words)
                .map_err(DatapathError::map("map the memory of", name))
        };
        let (from, to) = (map(&from)?, map(&to)?);
        for place in 0..words {
            if let Some(word) = from.load(place)
                && to.load(place) != Some(word)
            {
                to.store(place, word);
            }
        }
        Ok(())
    }

    fn copy_facts(&self) -> Result<(), DatapathError> {
        let failed = || DatapathError::map("take over", "config");
        let (from, mut to) = self.open("config")?;
        let from: Array<_, Facts> = Array::try_from(&from).map_err(failed())?;
        let mut to: Array<_, Facts> = Array::try_from(&mut to).map_err(failed())?;
        for slot in 0..to.len().min(from.len()) {
            let facts = from.get(&slot, 0).map_err(failed())?;
            to.set(slot, facts, 0).map_err(failed())?;
        }
        Ok(())
    }

    /// A full table, or an entry that is there already, is no fault: the newest stay.
    fn copy_hash<K: aya::Pod, V: aya::Pod>(&self, name: &'static str) -> Result<(), DatapathError> {
        let failed = || DatapathError::map("take over", name);
        let (from, mut to) = self.open(name)?;
        let from: HashMap<_, K, V> = HashMap::try_from(&from).map_err(failed())?;
        let mut to: HashMap<_, K, V> = HashMap::try_from(&mut to).map_err(failed())?;
        for (key, value) in from.iter().filter_map(Result::ok) {
            let _ = to.insert(key, value, NEW);
        }
        Ok(())
    }

    fn copy_admitted(&self) -> Result<(), DatapathError> {
        use aya::maps::lpm_trie::LpmTrie;
        use dormouse_ebpf::maps::Admitted;
        let failed = || DatapathError::map("take over", "admitted");
        let (from, mut to) = self.open("admitted")?;
        let from: LpmTrie<_, Admitted, u32> = LpmTrie::try_from(&from).map_err(failed())?;
        let mut to: LpmTrie<_, Admitted, u32> = LpmTrie::try_from(&mut to).map_err(failed())?;
        for (key, value) in from.iter().filter_map(Result::ok) {
            let _ = to.insert(&key, value, NEW);
        }
        Ok(())
    }

    fn copy_counts(&self) -> Result<(), DatapathError> {
        let failed = || DatapathError::map("take over", "counts");
        let (from, mut to) = self.open("counts")?;
        let from: PerCpuHashMap<_, u32, Counts> =
            PerCpuHashMap::try_from(&from).map_err(failed())?;
        let mut to: PerCpuHashMap<_, u32, Counts> =
            PerCpuHashMap::try_from(&mut to).map_err(failed())?;
        for (vip, counts) in from.iter().filter_map(Result::ok) {
            let _ = to.insert(vip, counts, NEW);
        }
        Ok(())
    }
}

/// The words of a mapped array.
fn words(array: &MapData, name: &'static str) -> Result<usize, DatapathError> {
    let info = array.info().map_err(DatapathError::map("look at", name))?;
    let size = info.value_size() as usize * info.max_entries() as usize;
    Ok(size / size_of::<u64>())
}

/// The names of pinned links.
fn links(folder: &Path) -> Result<Vec<OsString>, DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: folder.to_path_buf(),
        source,
    };
    let mut found = Vec::new();
    for pin in fs::read_dir(folder).map_err(failed)? {
        let name = pin.map_err(failed)?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("link_") || text.starts_with("pod_") {
            found.push(name);
        }
    }
    Ok(found)
}
