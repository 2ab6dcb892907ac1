//! The limit of wakes by source, as the agent sets it.

use std::path::Path;

use aya::maps::{Array, Map, MapData};
use dormouse_agent_services::Prefix;
use dormouse_ebpf::wake_limit::{TRUSTED_MAX, WakeLimit};

use super::error::DatapathError;
use super::services::layout::net;

/// The name of the map.
const NAME: &str = "wake_limit";

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
    /// Writes the limits to the map that is pinned in this folder.
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
        let map = MapData::from_pin(pins.join(NAME))
            .and_then(Map::from_map_data)
            .map_err(DatapathError::map("open the pinned", NAME))?;
        let mut row = Array::try_from(map).map_err(DatapathError::map("open", NAME))?;
        row.set(0, limit, 0)
            .map_err(DatapathError::map("write", NAME))
    }
}
