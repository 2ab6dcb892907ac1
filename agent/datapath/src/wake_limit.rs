//! The limit of wakes by source, as the agent sets it.

use std::path::Path;

use aya::maps::{Array, HashMap, Map, MapData};
use dormouse_agent_services::Prefix;
use dormouse_ebpf::wake_limit::{TRUSTED_MAX, WAKE_SOURCES_MAX, WakeLimit, WakeSource};

use super::error::DatapathError;
use super::services::layout::net;

/// The names of the maps: of the limit, and of the sources' buckets.
const NAME: &str = "wake_limit";
const BUDGETS: &str = "wake_budget";
/// A bucket that was full at any time.
const FULL: u64 = 0;

/// The wakes that one source may cause: a /64 or an IPv4 address outside, a pod, the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeLimits {
    /// Wakes a minute; 0: no limit.
    pub per_minute: u32,
    /// Wakes at once.
    pub burst: u32,
    /// Sources without a limit, at most [`TRUSTED_MAX`] prefixes.
    pub trusted: Vec<Prefix>,
}

impl WakeLimits {
    /// Writes the limits to the map that is pinned in this folder. If it had another limit, each source has a full bucket then: a bucket is the
    /// time at which it is full, by the limit before, which may be hours from now.
    pub(super) fn write(&self, pins: &Path) -> Result<(), DatapathError> {
        if self.trusted.len() > TRUSTED_MAX {
            return Err(DatapathError::Full {
                what: "prefixes of trusted proxies",
                max: TRUSTED_MAX,
            });
        }
        let mut limit = WakeLimit::new(self.per_minute, self.burst);
        for (place, trusted) in limit.trusted.iter_mut().zip(&self.trusted) {
            *place = net(trusted);
        }
        let map = pinned(pins, NAME)?;
        let mut row: Array<_, WakeLimit> =
            Array::try_from(map).map_err(DatapathError::map("open", NAME))?;
        let before = row.get(&0, 0).map_err(DatapathError::map("read", NAME))?;
        row.set(0, limit, 0)
            .map_err(DatapathError::map("write", NAME))?;
        if before.budget() == limit.budget() {
            return Ok(());
        }
        fill_buckets(pins)
    }
}

fn pinned(pins: &Path, name: &'static str) -> Result<Map, DatapathError> {
    MapData::from_pin(pins.join(name))
        .and_then(Map::from_map_data)
        .map_err(DatapathError::map("open the pinned", name))
}

/// Fills the buckets that there are. Programs change them meanwhile.
fn fill_buckets(pins: &Path) -> Result<(), DatapathError> {
    let map = pinned(pins, BUDGETS)?;
    let mut buckets: HashMap<_, WakeSource, u64> =
        HashMap::try_from(map).map_err(DatapathError::map("open", BUDGETS))?;
    // An eviction may let the kernel begin again with its first key.
    let sources: Result<Vec<_>, _> = buckets.keys().take(2 * WAKE_SOURCES_MAX as usize).collect();
    for source in sources.map_err(DatapathError::map("read", BUDGETS))? {
        let filled = buckets.insert(source, FULL, 0);
        filled.map_err(DatapathError::map("insert into", BUDGETS))?;
    }
    Ok(())
}
