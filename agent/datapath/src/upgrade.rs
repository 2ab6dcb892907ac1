//! Takes over a data path whose maps have other names or sizes, without losing a connection.
//!
//! Maps of the same layout are shared. The table of flows exists twice for a while, and each packet hook runs the old
//! program first and the new one behind it: a packet that the old program does not know is left to the next. Then the old
//! programs' VIPs are taken away with one word: from then on connections begin in the new table, while earlier ones go on
//! in the old one. When all of these have been copied, the old programs are detached. Until then the old programs forward no
//! packet that they do not know, and each data path draws NAT ports from its own half of the node's ports. Until then, too,
//! the new programs use no NAT port again of which their table has a flow: the old one may have it still, and is asked first.
//!
//! An agent that dies during a take-over leaves two data paths that work together. The next agent takes over both; on the
//! pods' links its programs take the place of the second one's, so connections that this one begins meanwhile may be lost.
//!
//! Maps of an unknown schema cannot be read: only the links are taken over, and connections end.

mod flow_copy;
mod folders;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap};
use dormouse_ebpf::config::{Config as Facts, Forwarding, Net, SERVICE_RANGES_MAX};
use dormouse_ebpf::maps::{FRONTEND_CLUSTER_IP, FRONTEND_VIP, FrontendKey};

use dormouse_agent_sys::readers;
pub(super) use flow_copy::FlowCopy;
use flow_copy::NOT_YET;
use folders::{beside, failed, is_link, links, pins, remove, set_aside};
use schema::Maps;

use super::clock;
use super::error::DatapathError;

/// The starts of the pins of links that the next data path takes over as they are.
const MOVED: [&str; 2] = ["link_cg_", "link_xdp_"];
/// Maps that the new data path does not share: of another size, or emptied for the old programs.
const OWN: &[&str] = &["flow", "opening", "config", "current", "frontend"];

/// The data paths that were in force before, oldest first.
#[derive(Debug)]
pub(super) struct Predecessors {
    all: Vec<Predecessor>,
    /// The maps of the data path that takes over.
    successor: Maps,
}

/// The folder of pins of a data path before.
#[derive(Debug)]
struct Predecessor {
    folder: PathBuf,
    /// Its maps; none: of an unknown schema.
    maps: Option<Maps>,
}

/// The folders of pins beside `folder` that an agent before left, and `folder` itself if a take-over into it was cut off.
/// A folder without links is removed: no program runs by it.
pub(super) fn predecessors(folder: &Path) -> Result<Option<Predecessors>, DatapathError> {
    let mut all = Vec::new();
    for other in beside(folder)? {
        if links(&other)?.is_empty() {
            remove(&other)?;
            continue;
        }
        all.push(Predecessor {
            maps: Maps::of(&other),
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
            let aside = set_aside(folder)?;
            all.push(Predecessor {
                maps: Some(Maps::current(&aside)),
                folder: aside,
            });
        }
    }
    let aged = all
        .into_iter()
        .map(|predecessor| Ok((predecessor.age()?, predecessor)))
        .collect::<Result<BTreeMap<_, _>, DatapathError>>()?;
    Ok(Some(Predecessors {
        all: aged.into_values().collect(),
        successor: Maps::current(folder),
    }))
}

impl Predecessors {
    /// Pins the maps that both data paths use in the new folder, under their present names.
    pub(super) fn share(&self) -> Result<(), DatapathError> {
        let Some(last) = self.last() else {
            return Ok(());
        };
        for pin in pins(last.folder())? {
            let name = last.name_of(&pin);
            let is_own = OWN.iter().any(|own| name == *own);
            if !is_own && !is_link(&pin) {
                let (from, to) = (last.folder().join(&pin), self.successor.folder().join(name));
                fs::hard_link(&from, to).map_err(failed(&from))?;
            }
        }
        Ok(())
    }

    /// Fills the maps that are not shared, before any program reads them. Flows that begin from now on are copied by
    /// [`Predecessors::retire`].
    pub(super) fn fill(&self) -> Result<Vec<FlowCopy>, DatapathError> {
        if let Some(last) = self.last() {
            copy_array::<u64>(last, &self.successor, "current")?;
            copy_array::<Facts>(last, &self.successor, "config")?;
            change_facts(&self.successor, |facts| Facts {
                forwarding: Forwarding::TakingOver.into(),
                ..facts
            })?;
            copy_frontends(last, &self.successor)?;
        }
        let mut copies = Vec::new();
        for maps in self.readable() {
            copies.extend(FlowCopy::begin(maps, &self.successor)?);
        }
        Ok(copies)
    }

    /// Stops the old programs from forwarding packets themselves, so that those they do not know reach the new programs
    /// behind them; and has them draw other NAT ports than those.
    pub(super) fn make_way(&self) -> Result<(), DatapathError> {
        for maps in self.readable() {
            change_facts(maps, |facts| Facts {
                forwarding: Forwarding::HandingOver.into(),
                ..facts
            })?;
        }
        readers::wait_for_readers();
        Ok(())
    }

    /// Moves the links of the cgroup, whose programs write shared maps only, and of the driver, which takes one program, to the new folder, so that
    /// attaching finds them.
    pub(super) fn hand_over(&self) -> Result<(), DatapathError> {
        for predecessor in &self.all {
            for link in links(&predecessor.folder)? {
                if MOVED
                    .iter()
                    .any(|start| link.to_string_lossy().starts_with(start))
                {
                    let from = predecessor.folder.join(&link);
                    let to = self.successor.folder().join(&link);
                    fs::rename(&from, to).map_err(failed(&from))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the old data paths. To be called when the new programs are attached everywhere, behind the old ones.
    pub(super) fn retire(self, mut copies: Vec<FlowCopy>) -> Result<(), DatapathError> {
        for flows in &mut copies {
            flows.catch_up(NOT_YET)?;
            flows.clear(NOT_YET)?;
        }
        for flows in &mut copies {
            flows.catch_up(NOT_YET)?;
        }
        let forgotten_ns = clock::boottime_ns();
        // The youngest first: packets that it does not know reach the programs before, which have their VIPs still.
        for maps in self.readable().rev() {
            remove_vips(maps)?;
        }
        for flows in &mut copies {
            flows.catch_up(forgotten_ns)?;
            flows.clear(forgotten_ns)?;
        }
        // Programs that ran with the old facts have written the flows that they began.
        readers::wait_for_readers();
        for mut flows in copies {
            flows.catch_up(forgotten_ns)?;
            flows.hand_over(forgotten_ns)?;
        }
        for predecessor in &self.all {
            predecessor.remove()?;
            let folder = predecessor.folder.display();
            tracing::info!(%folder, "took over the data path of a previous layout");
        }
        Ok(())
    }

    /// The maps of known schemas, oldest first.
    fn readable(&self) -> impl DoubleEndedIterator<Item = &Maps> {
        self.all
            .iter()
            .filter_map(|predecessor| predecessor.maps.as_ref())
    }

    /// The maps with the newest facts.
    fn last(&self) -> Option<&Maps> {
        self.readable().next_back()
    }
}

impl Predecessor {
    /// Grows with the time when its maps were made.
    fn age(&self) -> Result<(bool, u32, PathBuf), DatapathError> {
        let id = match &self.maps {
            Some(maps) => {
                let info = maps.open("flow")?.info();
                info.map_err(DatapathError::map("look at", "flow"))?.id()
            }
            None => 0,
        };
        Ok((self.maps.is_some(), id, self.folder.clone()))
    }

    /// Links go first: a folder without links is removed by the next start.
    fn remove(&self) -> Result<(), DatapathError> {
        for link in links(&self.folder)? {
            let pin = self.folder.join(link);
            fs::remove_file(&pin).map_err(failed(&pin))?;
        }
        remove(&self.folder)
    }
}

/// Takes all VIPs from the programs that read these maps: they apply the flows that they know, and begin none.
fn remove_vips(maps: &Maps) -> Result<(), DatapathError> {
    change_facts(maps, |facts| Facts {
        ranges_len: 0,
        services_len: 0,
        service_ranges: [Net::default(); SERVICE_RANGES_MAX],
        ..facts
    })?;
    let mut frontends: HashMap<_, FrontendKey, u32> = maps.typed("frontend")?;
    let keys: Vec<_> = frontends.keys().filter_map(Result::ok).collect();
    // Cluster IPs first: an address that is still known as one would reject the ports that go next.
    for kind in [FRONTEND_CLUSTER_IP, FRONTEND_VIP] {
        for key in keys.iter().filter(|key| key.kind == kind) {
            frontends
                .remove(key)
                .map_err(DatapathError::map("remove from", "frontend"))?;
        }
    }
    Ok(())
}

/// Puts other facts in force for the programs that read these maps; at most once in a grace period.
fn change_facts(maps: &Maps, change: impl FnOnce(Facts) -> Facts) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("write", "config");
    let mut current: Array<_, u64> = maps.typed("current")?;
    let mut facts: Array<_, Facts> = maps.typed("config")?;
    let slot = u32::from(current.get(&0, 0).map_err(failed())? & 1 == 1);
    let known = facts.get(&slot, 0).map_err(failed())?;
    let other = slot ^ 1;
    facts.set(other, change(known), 0).map_err(failed())?;
    current.set(0, u64::from(other), 0).map_err(failed())
}

fn copy_array<V: aya::Pod>(
    from: &Maps,
    to: &Maps,
    name: &'static str,
) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("take over", name);
    let from: Array<_, V> = from.typed(name)?;
    let mut to: Array<_, V> = to.typed(name)?;
    for slot in 0..from.len().min(to.len()) {
        let value = from.get(&slot, 0).map_err(failed())?;
        to.set(slot, value, 0).map_err(failed())?;
    }
    Ok(())
}

fn copy_frontends(from: &Maps, to: &Maps) -> Result<(), DatapathError> {
    let failed = || DatapathError::map("take over", "frontend");
    let from: HashMap<_, FrontendKey, u32> = from.typed("frontend")?;
    let mut to: HashMap<_, FrontendKey, u32> = to.typed("frontend")?;
    for entry in &from {
        let (key, value) = entry.map_err(failed())?;
        to.insert(key, value, 0).map_err(failed())?;
    }
    Ok(())
}
