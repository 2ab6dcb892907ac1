//! The node's configuration in the maps: ranges, activators, addresses, pods.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use aya::maps::{Array, HashMap, MapData};
use dormouse_agent_services::Node;
use dormouse_ebpf::config::{self, ACTIVATORS_MAX, Forwarding, RANGES_MAX};
use dormouse_ebpf::maps::Pod;
use dormouse_ebpf::service::VIPS_MAX;

use super::arrays::Arrays;
use super::entry::{Activator, PodEntry, VipRange, pod_keys};
use super::error::DatapathError;
use super::load::Loaded;
use super::{Config, cluster};
use dormouse_agent_sys::{netns, readers};

/// Writes the agent's settings, and keeps the ranges and activators that control sent to a previous agent.
pub(super) fn keep(
    loaded: &mut Loaded,
    arrays: &Arrays,
    config: &Config,
) -> Result<config::Config, DatapathError> {
    let old = current(loaded, arrays)?;
    let (prefix, len) = config.node_prefix;
    if len != 96 {
        return Err(DatapathError::Prefix {
            prefix,
            len,
            what: "a node prefix: that is a /96",
        });
    }
    let (uplink, uplink_mac) = interface(&config.uplink)?;
    let facts = config::Config {
        node_prefix: masked(prefix, 96),
        node_address: config.node_address.octets(),
        uplink,
        uplink_mac,
        netns: netns::cookie().map_err(DatapathError::map("fill", "config"))?,
        ..old
    };
    put(loaded, arrays, &facts)?;
    Ok(facts)
}

/// Writes ranges and activators, as control sent them.
pub(super) fn configure(
    loaded: &mut Loaded,
    arrays: &Arrays,
    config: &Config,
    (ranges, acting): (&[VipRange], &[Activator]),
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
    let mut facts = current(loaded, arrays)?;
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
    (facts.uplink, facts.uplink_mac) = interface(&config.uplink)?;
    put(loaded, arrays, &facts)
}

/// Updates the uplink's ifindex and link-layer address.
pub(super) fn refresh_uplink(
    loaded: &mut Loaded,
    arrays: &Arrays,
    name: &str,
) -> Result<(), DatapathError> {
    let (uplink, uplink_mac) = interface(name)?;
    change(loaded, arrays, |facts| config::Config {
        uplink,
        uplink_mac,
        ..facts
    })
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

/// The active configuration.
pub(super) fn current(loaded: &Loaded, arrays: &Arrays) -> Result<config::Config, DatapathError> {
    let slots: Array<_, config::Config> =
        Array::try_from(loaded.map("config")?).map_err(DatapathError::map("open", "config"))?;
    slots
        .get(&slot(arrays), 0)
        .map_err(DatapathError::map("read", "config"))
}

/// Writes the inactive slot of the double-buffered configuration, waits a grace period, then activates it. An unchanged
/// configuration is not written.
pub(super) fn put(
    loaded: &mut Loaded,
    arrays: &Arrays,
    facts: &config::Config,
) -> Result<(), DatapathError> {
    if current(loaded, arrays)? == *facts {
        return Ok(());
    }
    let mut slots: Array<_, config::Config> =
        Array::try_from(loaded.map_mut("config")?).map_err(DatapathError::map("open", "config"))?;
    let other = slot(arrays) ^ 1;
    readers::wait_for_readers();
    slots
        .set(other, facts, 0)
        .map_err(DatapathError::map("write", "config"))?;
    arrays.current.store(0, other.into());
    Ok(())
}

fn change(
    loaded: &mut Loaded,
    arrays: &Arrays,
    change: impl FnOnce(config::Config) -> config::Config,
) -> Result<(), DatapathError> {
    let facts = change(current(loaded, arrays)?);
    put(loaded, arrays, &facts)
}

fn slot(arrays: &Arrays) -> u32 {
    u32::from(arrays.current.load(0).unwrap_or(0) & 1 == 1)
}

/// ifindex and link-layer address of an interface of this network namespace.
pub(super) fn interface(name: &str) -> Result<(u32, [u8; 6]), DatapathError> {
    let absent = || DatapathError::Uplink {
        name: name.to_owned(),
    };
    let mut addresses = nix::ifaddrs::getifaddrs().map_err(|_unreadable| absent())?;
    addresses
        .find_map(|interface| {
            let link = interface.address?.as_link_addr().copied()?;
            let ifindex = u32::try_from(link.ifindex()).ok()?;
            (interface.interface_name == name).then_some((ifindex, link.addr()?))
        })
        .ok_or_else(absent)
}

fn masked(address: Ipv6Addr, len: u8) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    (address.to_bits() & mask).to_be_bytes()
}

/// Adds a pod's row; `seen`: the program on its link sees its egress packets.
pub(super) fn add_pod(
    loaded: &mut Loaded,
    pod: &PodEntry,
    seen: bool,
) -> Result<(), DatapathError> {
    let row = Pod {
        ifindex: pod.ifindex,
        mac: pod.mac,
        seen: seen.into(),
        direct: (seen && pod.direct).into(),
    };
    let mut pods = pod_map(loaded)?;
    for address in pod_keys(pod.address, pod.address4) {
        pods.insert(address.octets(), row, 0)
            .map_err(DatapathError::map("insert into", "pod"))?;
    }
    Ok(())
}

/// Sets whether the programs answer neighbour solicitations for pods.
pub(super) fn answer(
    loaded: &mut Loaded,
    arrays: &Arrays,
    answers: bool,
) -> Result<(), DatapathError> {
    change(loaded, arrays, |facts| config::Config {
        quiet: u8::from(!answers),
        ..facts
    })
}

/// Sets the bridge that packets between pods are forwarded through directly, and the pod ranges.
pub(super) fn forward_by(
    loaded: &mut Loaded,
    arrays: &Arrays,
    forwarder: Option<u32>,
    node: &Node,
) -> Result<(), DatapathError> {
    change(loaded, arrays, |facts| config::Config {
        forwarding: forwarder.map_or(Forwarding::Off, Forwarding::By).into(),
        // On a node without Services, nothing else sets the cluster's ranges.
        pods: cluster::pods(node),
        ..facts
    })
}

/// Records that no programs of a previous agent are left in front of these.
pub(super) fn end_take_over(loaded: &mut Loaded, arrays: &Arrays) -> Result<(), DatapathError> {
    change(loaded, arrays, |facts| config::Config {
        forwarding: match facts.forwarding.get() {
            Forwarding::TakingOver => Forwarding::Off.into(),
            _ => facts.forwarding,
        },
        ..facts
    })
}

/// From now on, a packet with a pod's source address may come from a pod whose link has no program.
pub(super) fn expect_unseen(loaded: &mut Loaded, arrays: &Arrays) -> Result<(), DatapathError> {
    change(loaded, arrays, |facts| config::Config {
        unseen_pods: 1,
        ..facts
    })
}

/// Removes an address of a pod.
pub(super) fn remove_pod(loaded: &mut Loaded, address: Ipv6Addr) -> Result<(), DatapathError> {
    match pod_map(loaded)?.remove(&address.octets()) {
        Ok(()) | Err(aya::maps::MapError::KeyNotFound) => Ok(()),
        Err(aya::maps::MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        Err(error) => Err(DatapathError::map("remove from", "pod")(error)),
    }
}

/// ifindexes of the host sides of all pods' links.
pub(super) fn interfaces(loaded: &Loaded) -> Result<Vec<u32>, DatapathError> {
    let pods = table(loaded)?;
    pods.iter()
        .map(|pod| {
            pod.map(|(_, pod)| pod.ifindex)
                .map_err(DatapathError::map("read", "pod"))
        })
        .collect()
}

fn table(loaded: &Loaded) -> Result<HashMap<&MapData, [u8; 16], Pod>, DatapathError> {
    HashMap::try_from(loaded.map("pod")?).map_err(DatapathError::map("open", "pod"))
}

/// The addresses in the pod table; IPv4 is mapped.
pub(super) fn pods(loaded: &Loaded) -> Result<BTreeSet<Ipv6Addr>, DatapathError> {
    table(loaded)?
        .keys()
        .map(|key| {
            key.map(Ipv6Addr::from)
                .map_err(DatapathError::map("read", "pod"))
        })
        .collect()
}

fn pod_map(loaded: &mut Loaded) -> Result<HashMap<&mut MapData, [u8; 16], Pod>, DatapathError> {
    HashMap::try_from(loaded.map_mut("pod")?).map_err(DatapathError::map("open", "pod"))
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
