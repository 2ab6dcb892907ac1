//! Takes over a data path whose maps are laid out otherwise, and loses nothing of what is under way.
//!
//! Maps of the same layout are shared. Of the table of flows there are two for a while, and at each hook for packets the
//! old program and behind it the new one: what the old one does not know it leaves to the next. Then the old programs
//! forget every VIP, by one word: from then on connections begin in the new table, while those before go on in the old
//! one. When all of these have been carried over, the old programs go. Until then the old ones send nothing on that they do not
//! know, and of the node's ports each data path draws from a half of its own.
//!
//! An agent that dies on the way leaves two data paths that do the same together. The next one takes over both; on pods' links
//! it stands where the second did, so connections that this one begins meanwhile may be lost.
//!
//! Layouts of another version cannot be read: of those only the links are handed over, and connections end.

mod carry;
mod folders;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, Map, MapData};
use dormouse_ebpf::config::{Config as Facts, HANDING_OVER, Net, SERVICE_RANGES_MAX, TAKING_OVER};
use dormouse_ebpf::maps::{FOREIGN_CLUSTER_IP, FOREIGN_VIP, ForeignKey};

use carry::{Carried, NOT_YET};
use folders::{beside, failed, is_link, links, pins, remove, set_aside};

use super::clock;
use super::error::DatapathError;
use dormouse_agent_sys::readers;

/// Maps that the new data path has for itself: of another size, or such that the old programs shall forget what they say.
const OWN: &[&str] = &["flow", "config", "current", "foreign"];

/// The data paths that were in force before, oldest first.
#[derive(Debug)]
pub(super) struct Formers {
    all: Vec<Former>,
    /// The folder that takes over.
    heir: PathBuf,
}

/// The folder of a data path before.
#[derive(Debug)]
struct Former {
    folder: PathBuf,
    /// Its entries mean the same; only the sizes of maps differ.
    alike: bool,
}

/// The pins of other layouts beside `folder`, if agents before left some, and those in `folder` itself if they are of a
/// take-over that was cut off. A folder that no link is in is taken away: nothing runs by it.
pub(super) fn formers(folder: &Path, layout: &str) -> Result<Option<Formers>, DatapathError> {
    let mut all = Vec::new();
    for other in beside(folder)? {
        if links(&other)?.is_empty() {
            remove(&other)?;
            continue;
        }
        let name = other.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(layout);
        let alike = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        all.push(Former {
            alike,
            folder: other,
        });
    }
    if all.is_empty() {
        return Ok(None);
    }
    if folder.exists() {
        if links(folder)?.is_empty() {
            remove(folder)?;
        } else {
            all.push(Former {
                folder: set_aside(folder)?,
                alike: true,
            });
        }
    }
    let aged = all
        .into_iter()
        .map(|former| Ok((former.age()?, former)))
        .collect::<Result<BTreeMap<_, _>, DatapathError>>()?;
    Ok(Some(Formers {
        all: aged.into_values().collect(),
        heir: folder.to_path_buf(),
    }))
}

impl Formers {
    /// Pins the maps in the new folder that both data paths use.
    pub(super) fn share(&self) -> Result<(), DatapathError> {
        let Some(last) = self.last() else {
            return Ok(());
        };
        for name in pins(&last.folder)? {
            let is_own = OWN.iter().any(|own| name == *own);
            if !is_own && !is_link(&name) {
                let (from, to) = (last.folder.join(&name), self.heir.join(&name));
                fs::hard_link(&from, to).map_err(failed(&from))?;
            }
        }
        Ok(())
    }

    /// Fills the maps that are not shared, before anything reads them. Flows that begin from now on are carried over by
    /// [`Formers::retire`].
    pub(super) fn fill(&self) -> Result<Vec<Carried>, DatapathError> {
        if let Some(last) = self.last() {
            copy_array::<u64>(&last.folder, &self.heir, "current")?;
            copy_array::<Facts>(&last.folder, &self.heir, "config")?;
            change_facts(&self.heir, |facts| Facts {
                forwarder: TAKING_OVER,
                ..facts
            })?;
            copy_foreign(&last.folder, &self.heir)?;
        }
        let alike = self.all.iter().filter(|former| former.alike);
        alike
            .map(|former| Carried::begin(&former.folder, &self.heir))
            .collect()
    }

    /// Has the old programs send nothing on by themselves, so that what they do not know comes to the new ones behind them; and
    /// draw other ports than those.
    pub(super) fn make_way(&self) -> Result<(), DatapathError> {
        for former in self.all.iter().filter(|former| former.alike) {
            change_facts(&former.folder, |facts| Facts {
                forwarder: HANDING_OVER,
                ..facts
            })?;
        }
        readers::wait_for_readers();
        Ok(())
    }

    /// Hands the links of cgroups over, so that attaching finds them: what these programs remember is shared.
    pub(super) fn hand_over(&self) -> Result<(), DatapathError> {
        for former in &self.all {
            for link in links(&former.folder)? {
                if link.to_string_lossy().starts_with("link_cg_") {
                    let (from, to) = (former.folder.join(&link), self.heir.join(&link));
                    fs::rename(&from, to).map_err(failed(&from))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the old data paths. To be called when the new programs are attached everywhere, behind the old ones.
    pub(super) fn retire(self, mut carried: Vec<Carried>) -> Result<(), DatapathError> {
        for flows in &mut carried {
            flows.catch_up(NOT_YET)?;
            flows.clear(NOT_YET)?;
        }
        for flows in &mut carried {
            flows.catch_up(NOT_YET)?;
        }
        let forgotten_ns = clock::boottime_ns();
        // The youngest first: what it does not know it leaves to those before, which know their VIPs still.
        for former in self.all.iter().rev().filter(|former| former.alike) {
            former.forget_vips()?;
        }
        for flows in &mut carried {
            flows.catch_up(forgotten_ns)?;
            flows.clear(forgotten_ns)?;
        }
        // Programs that ran by the old facts have written down what they began.
        readers::wait_for_readers();
        for mut flows in carried {
            flows.catch_up(forgotten_ns)?;
            flows.hand_over(forgotten_ns)?;
        }
        for former in &self.all {
            former.remove()?;
            tracing::info!(former = %former.folder.display(), "took over a data path of another layout");
        }
        Ok(())
    }

    /// The one whose facts are the newest.
    fn last(&self) -> Option<&Former> {
        self.all.iter().rev().find(|former| former.alike)
    }
}

impl Former {
    /// Grows with the time when its maps were made.
    fn age(&self) -> Result<(bool, u32, PathBuf), DatapathError> {
        let id = if self.alike {
            let flows = open(&self.folder, "flow")?;
            let info = flows.info();
            info.map_err(DatapathError::map("look at", "flow"))?.id()
        } else {
            0
        };
        Ok((self.alike, id, self.folder.clone()))
    }

    /// Makes its programs take every VIP for somebody else's address: they follow the flows that they know, and begin
    /// none.
    fn forget_vips(&self) -> Result<(), DatapathError> {
        change_facts(&self.folder, |facts| Facts {
            ranges_len: 0,
            services_len: 0,
            service_ranges: [Net::default(); SERVICE_RANGES_MAX],
            ..facts
        })?;
        self.forget_foreign()
    }

    /// That an address is a cluster IP goes first: it would refuse the ports that go next.
    fn forget_foreign(&self) -> Result<(), DatapathError> {
        let mut foreign: HashMap<_, ForeignKey, u32> = typed(&self.folder, "foreign")?;
        let keys: Vec<_> = foreign.keys().filter_map(Result::ok).collect();
        for kind in [FOREIGN_CLUSTER_IP, FOREIGN_VIP] {
            for key in keys.iter().filter(|key| key.kind == kind) {
                foreign
                    .remove(key)
                    .map_err(DatapathError::map("remove from", "foreign"))?;
            }
        }
        Ok(())
    }

    /// Links go first: a folder without them is known for what it is.
    fn remove(&self) -> Result<(), DatapathError> {
        for link in links(&self.folder)? {
            let pin = self.folder.join(link);
            fs::remove_file(&pin).map_err(failed(&pin))?;
        }
        remove(&self.folder)
    }
}

/// Puts other facts in force for the programs of a folder; once in each grace period.
fn change_facts(folder: &Path, change: impl FnOnce(Facts) -> Facts) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("write", "config");
    let mut current: Array<_, u64> = typed(folder, "current")?;
    let mut facts: Array<_, Facts> = typed(folder, "config")?;
    let slot = u32::from(current.get(&0, 0).map_err(failed())? & 1 == 1);
    let known = facts.get(&slot, 0).map_err(failed())?;
    let other = slot ^ 1;
    facts.set(other, change(known), 0).map_err(failed())?;
    current.set(0, u64::from(other), 0).map_err(failed())
}

fn copy_array<V: aya::Pod>(
    from: &Path,
    to: &Path,
    name: &'static str,
) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("take over", name);
    let from: Array<_, V> = typed(from, name)?;
    let mut to: Array<_, V> = typed(to, name)?;
    for slot in 0..from.len().min(to.len()) {
        let value = from.get(&slot, 0).map_err(failed())?;
        to.set(slot, value, 0).map_err(failed())?;
    }
    Ok(())
}

fn copy_foreign(from: &Path, to: &Path) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("take over", "foreign");
    let from: HashMap<_, ForeignKey, u32> = typed(from, "foreign")?;
    let mut to: HashMap<_, ForeignKey, u32> = typed(to, "foreign")?;
    for entry in &from {
        let (key, value) = entry.map_err(failed())?;
        to.insert(key, value, 0).map_err(failed())?;
    }
    Ok(())
}

fn open(folder: &Path, name: &'static str) -> Result<MapData, DatapathError> {
    MapData::from_pin(folder.join(name)).map_err(DatapathError::map("take over", name))
}

fn typed<T>(folder: &Path, name: &'static str) -> Result<T, DatapathError>
where
    T: TryFrom<Map>,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let map =
        Map::from_map_data(open(folder, name)?).map_err(DatapathError::map("take over", name))?;
    T::try_from(map).map_err(DatapathError::map("take over", name))
}
