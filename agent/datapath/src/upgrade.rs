//! Take-over of a data path whose maps have another layout, without losing connections.
//!
//! Maps with the same layout are shared. During the take-over there are two flow tables, and at each packet hook the old
//! program runs in front of the new one: packets that the old program does not know are passed on to the new one. Then one
//! word removes all VIPs from the old programs: from now on connections begin in the new table, while established ones
//! continue in the old one. When all of them have been copied, the old programs are detached. Until then the old programs
//! forward nothing that they do not know, and each data path uses its own half of the NAT ports.
//!
//! An agent that is killed in between leaves two data paths that work together. The next agent takes over both; on pods' links
//! its programs run in the place of the second, so connections that the second one creates meanwhile may be lost.
//!
//! Layouts of another schema version cannot be read: only their links are taken over, and connections end.

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

/// Maps that are not shared: they differ in size, or the old programs must lose their content.
const OWN: &[&str] = &["flow", "config", "current", "foreign"];

/// The data paths of previous agents, oldest first.
#[derive(Debug)]
pub(super) struct Formers {
    all: Vec<Former>,
    /// The folder of the new data path.
    successor: PathBuf,
}

/// The folder of a previous data path.
#[derive(Debug)]
struct Former {
    folder: PathBuf,
    /// Its entries have the same meaning; only the sizes of maps differ.
    alike: bool,
}

/// The folders of other layouts beside `folder`, and the one of an interrupted take-over in `folder` itself. A folder without
/// links is removed: no program uses it.
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
        successor: folder.to_path_buf(),
    }))
}

impl Formers {
    /// Pins the shared maps in the new folder.
    pub(super) fn share(&self) -> Result<(), DatapathError> {
        let Some(last) = self.last() else {
            return Ok(());
        };
        for name in pins(&last.folder)? {
            let is_own = OWN.iter().any(|own| name == *own);
            if !is_own && !is_link(&name) {
                let (from, to) = (last.folder.join(&name), self.successor.join(&name));
                fs::hard_link(&from, to).map_err(failed(&from))?;
            }
        }
        Ok(())
    }

    /// Copies the maps that are not shared, before any program reads them. Flows that begin from now on are copied by
    /// [`Formers::retire`].
    pub(super) fn fill(&self) -> Result<Vec<Carried>, DatapathError> {
        if let Some(last) = self.last() {
            copy_array::<u64>(&last.folder, &self.successor, "current")?;
            copy_array::<Facts>(&last.folder, &self.successor, "config")?;
            change_facts(&self.successor, |facts| Facts {
                forwarder: TAKING_OVER,
                ..facts
            })?;
            copy_foreign(&last.folder, &self.successor)?;
        }
        let alike = self.all.iter().filter(|former| former.alike);
        alike
            .map(|former| Carried::begin(&former.folder, &self.successor))
            .collect()
    }

    /// Stops the old programs from forwarding directly, so that unknown packets reach the new programs behind them, and restricts
    /// them to their half of the NAT ports.
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

    /// Moves the cgroup links to the new folder, where attaching finds them: these programs' maps are shared.
    pub(super) fn hand_over(&self) -> Result<(), DatapathError> {
        for former in &self.all {
            for link in links(&former.folder)? {
                if link.to_string_lossy().starts_with("link_cg_") {
                    let (from, to) = (former.folder.join(&link), self.successor.join(&link));
                    fs::rename(&from, to).map_err(failed(&from))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the old data paths. Must be called when the new programs are attached everywhere, behind the old ones.
    pub(super) fn retire(self, mut carried: Vec<Carried>) -> Result<(), DatapathError> {
        for flows in &mut carried {
            flows.catch_up(NOT_YET)?;
            flows.clear(NOT_YET)?;
        }
        for flows in &mut carried {
            flows.catch_up(NOT_YET)?;
        }
        let forgotten_ns = clock::boottime_ns();
        // The youngest first: packets that it does not know reach the older ones, which still have their VIPs.
        for former in self.all.iter().rev().filter(|former| former.alike) {
            former.forget_vips()?;
        }
        for flows in &mut carried {
            flows.catch_up(forgotten_ns)?;
            flows.clear(forgotten_ns)?;
        }
        // A grace period: programs that ran with the old configuration have stored their flows.
        readers::wait_for_readers();
        for mut flows in carried {
            flows.catch_up(forgotten_ns)?;
            flows.hand_over(forgotten_ns)?;
        }
        for former in &self.all {
            former.remove()?;
            tracing::info!(former = %former.folder.display(), "took over the data path of a previous layout");
        }
        Ok(())
    }

    /// The youngest one of the same schema.
    fn last(&self) -> Option<&Former> {
        self.all.iter().rev().find(|former| former.alike)
    }
}

impl Former {
    /// Orders data paths by the creation of their maps.
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

    /// Removes every VIP from its programs: they continue to translate the flows that they know, and begin no new ones.
    fn forget_vips(&self) -> Result<(), DatapathError> {
        change_facts(&self.folder, |facts| Facts {
            ranges_len: 0,
            services_len: 0,
            service_ranges: [Net::default(); SERVICE_RANGES_MAX],
            ..facts
        })?;
        self.forget_foreign()
    }

    /// Cluster IPs are removed first: with them present, removing the ports would make the programs refuse packets.
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

    /// Removes links first: a folder without links is recognized as unused.
    fn remove(&self) -> Result<(), DatapathError> {
        for link in links(&self.folder)? {
            let pin = self.folder.join(link);
            fs::remove_file(&pin).map_err(failed(&pin))?;
        }
        remove(&self.folder)
    }
}

/// Activates a changed configuration for the programs of a folder; at most once per grace period.
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
