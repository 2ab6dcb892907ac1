//! The node's configuration in the `config` map: ranges, activators, addresses.

use std::net::Ipv6Addr;
use std::sync::Arc;

use aya::maps::{Array, MapData};
use dormouse_agent_services::Node;
use dormouse_agent_sys::{netns, readers};
use dormouse_ebpf::config::{self, ACTIVATORS_MAX, Forwarding, RANGES_MAX};
use dormouse_ebpf::service::VIPS_MAX;
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::entry::{Activator, VipRange};
use super::error::DatapathError;
use super::interface::interface;
use super::load::Loaded;
use super::{Config, cluster};

/// The double-buffered configuration: programs read one slot of the map while the other one is written.
///
/// The lock is held during the grace period after which a slot is unused; only changes of the configuration wait for it.
pub struct NodeFacts {
    config: Config,
    arrays: Arc<Arrays>,
    places: Mutex<Array<MapData, config::Config>>,
}

impl std::fmt::Debug for NodeFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeFacts")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl NodeFacts {
    /// Writes the agent's settings, and keeps the ranges and activators of the previous agent.
    pub(super) fn open(
        loaded: &mut Loaded,
        arrays: &Arc<Arrays>,
        config: &Config,
    ) -> Result<Self, DatapathError> {
        let (prefix, len) = config.node_prefix;
        if len != 96 {
            return Err(DatapathError::Prefix {
                prefix,
                len,
                what: "a node prefix: that is a /96",
            });
        }
        let (uplink, uplink_mac) = interface(&config.uplink)?;
        let netns = netns::cookie().map_err(DatapathError::map("fill", "config"))?;
        let places = Array::try_from(loaded.take("config")?)
            .map_err(DatapathError::map("open", "config"))?;
        let facts = Self {
            config: config.clone(),
            arrays: Arc::clone(arrays),
            places: Mutex::new(places),
        };
        facts.change(|known| {
            Ok(config::Config {
                node_prefix: masked(prefix, 96),
                node_address: config.node_address.octets(),
                uplink,
                uplink_mac,
                netns,
                ..known
            })
        })?;
        Ok(facts)
    }

    /// Sets the VIP ranges and the activators; takes effect at once.
    pub fn configure(
        &self,
        ranges: &[VipRange],
        acting: &[Activator],
    ) -> Result<(), DatapathError> {
        if ranges.len() > RANGES_MAX {
            return Err(DatapathError::Full {
                what: "VIP ranges",
                max: RANGES_MAX,
            });
        }
        if acting.len() > ACTIVATORS_MAX {
            return Err(DatapathError::Full {
                what: "activators",
                max: ACTIVATORS_MAX,
            });
        }
        self.change(|mut facts| {
            facts.ranges = [config::Range::default(); RANGES_MAX];
            for (slot, range) in facts.ranges.iter_mut().zip(ranges) {
                *slot = layout(range)?;
            }
            facts.activators = [config::Activator::default(); ACTIVATORS_MAX];
            for (slot, activator) in facts.activators.iter_mut().zip(acting) {
                *slot = config::Activator {
                    prefix: masked(activator.prefix, 96),
                    via: activator.via.octets(),
                };
            }
            facts.ranges_len = u32::try_from(ranges.len()).unwrap_or(0);
            facts.activators_len = u32::try_from(acting.len()).unwrap_or(0);
            cluster::refuse_overlap(&facts)?;
            // The interface may have been recreated meanwhile.
            (facts.uplink, facts.uplink_mac) = interface(&self.config.uplink)?;
            Ok(facts)
        })
    }

    /// Sets whether programs answer neighbour solicitations for pods on the uplink; not needed if the node prefix is routed.
    pub fn answer(&self, answers: bool) -> Result<(), DatapathError> {
        self.change(|facts| {
            Ok(config::Config {
                quiet: u8::from(!answers),
                ..facts
            })
        })
    }

    /// Sets the interface whose forwarding is bypassed for packets between the cluster's pods; without one, the host forwards
    /// them.
    pub fn forward_by(&self, forwarder: Option<u32>, node: &Node) -> Result<(), DatapathError> {
        self.change(|facts| {
            Ok(config::Config {
                forwarding: forwarder.map_or(Forwarding::Off, Forwarding::By).into(),
                // On a node without Services, nothing else sets the cluster's ranges.
                pods: cluster::pods(node),
                ..facts
            })
        })
    }

    /// Sets whether another proxy on this node may translate connections that were established before Services came into force.
    pub fn set_beside_proxy(&self, is_beside: bool) -> Result<(), DatapathError> {
        self.change(|facts| {
            Ok(config::Config {
                beside_proxy: is_beside.into(),
                ..facts
            })
        })
    }

    /// Updates the uplink's ifindex and link-layer address.
    pub(super) fn refresh_uplink(&self) -> Result<(), DatapathError> {
        let (uplink, uplink_mac) = interface(&self.config.uplink)?;
        self.change(|facts| {
            Ok(config::Config {
                uplink,
                uplink_mac,
                ..facts
            })
        })
    }

    /// Records that no programs of a previous agent are left in front of these.
    pub(super) fn end_take_over(&self) -> Result<(), DatapathError> {
        self.change(|facts| {
            Ok(config::Config {
                forwarding: match facts.forwarding.get() {
                    Forwarding::TakingOver => Forwarding::Off.into(),
                    _ => facts.forwarding,
                },
                ..facts
            })
        })
    }

    /// From now on there may be pods whose link has no program: packets with their source addresses come by no hook but egress.
    pub fn expect_unseen(&self) -> Result<(), DatapathError> {
        self.change(|facts| {
            Ok(config::Config {
                unseen_pods: 1,
                ..facts
            })
        })
    }

    /// The active configuration.
    pub(super) fn current(&self) -> Result<config::Config, DatapathError> {
        self.read(&self.places.lock())
    }

    /// Writes the inactive slot, waits a grace period, then activates it. An unchanged configuration is not written.
    pub(super) fn change(
        &self,
        change: impl FnOnce(config::Config) -> Result<config::Config, DatapathError>,
    ) -> Result<(), DatapathError> {
        let mut places = self.places.lock();
        let known = self.read(&places)?;
        let facts = change(known)?;
        if facts == known {
            return Ok(());
        }
        let other = self.in_force() ^ 1;
        readers::wait_for_readers();
        places
            .set(other, facts, 0)
            .map_err(DatapathError::map("write", "config"))?;
        self.arrays.current.store(0, other.into());
        Ok(())
    }

    fn read(
        &self,
        places: &Array<MapData, config::Config>,
    ) -> Result<config::Config, DatapathError> {
        places
            .get(&self.in_force(), 0)
            .map_err(DatapathError::map("read", "config"))
    }

    fn in_force(&self) -> u32 {
        u32::from(self.arrays.current.load(0).unwrap_or(0) & 1 == 1)
    }
}

/// A VIP range in the map's layout.
fn layout(range: &VipRange) -> Result<config::Range, DatapathError> {
    let wrong = |what| DatapathError::Prefix {
        prefix: range.prefix,
        len: range.length,
        what,
    };
    if !(108..=128).contains(&range.length) {
        return Err(wrong("a VIP range: its length is 108 to 128"));
    }
    let addresses = 1_u32 << (128 - range.length);
    if range
        .base
        .checked_add(addresses)
        .is_none_or(|end| end > VIPS_MAX)
    {
        return Err(wrong(
            "a VIP range with this base: its indexes go past 2^20",
        ));
    }
    Ok(config::Range {
        prefix: masked(range.prefix, range.length),
        mask: !(addresses - 1),
        base: range.base,
    })
}

fn masked(address: Ipv6Addr, len: u8) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    (address.to_bits() & mask).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(length: u8, base: u32) -> VipRange {
        VipRange {
            prefix: "fd00:10::7".parse().unwrap(),
            length,
            base,
        }
    }

    #[test]
    fn a_range_is_stored_with_its_network_address() {
        let layout = layout(&range(108, 0)).unwrap();
        assert_eq!(
            layout.prefix,
            "fd00:10::".parse::<Ipv6Addr>().unwrap().octets()
        );
        assert_eq!(layout.mask, 0xfff0_0000);
    }

    #[test]
    fn a_range_that_is_too_large_or_goes_past_the_maps_is_refused() {
        assert!(layout(&range(107, 0)).is_err());
        assert!(layout(&range(129, 0)).is_err());
        assert!(layout(&range(108, 1)).is_err());
        assert!(layout(&range(120, VIPS_MAX - 256)).is_ok());
        assert!(layout(&range(120, u32::MAX)).is_err());
    }
}
