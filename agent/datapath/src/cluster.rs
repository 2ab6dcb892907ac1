//! The cluster's configuration that decisions read, in the layout of the `config` map; pure.

use std::net::IpAddr;

use dormouse_agent_services::{Family, Node};
use dormouse_ebpf::config::{Config, Net, Range, SERVICE_RANGES_MAX};
use dormouse_ebpf::service::VIPS_MAX;

use super::error::DatapathError;
use super::services::layout::{end, net};

/// The configuration of the node and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    pub(super) node: Node,
    pub(super) apps: bool,
}

impl ClusterFacts {
    /// The configuration for Services. Slots for apps are reserved: control may assign ranges of them later.
    pub fn new(node: &Node) -> Self {
        Self {
            node: node.clone(),
            apps: true,
        }
    }

    /// There will be no apps: large service ranges may use their slots.
    #[must_use]
    pub fn without_apps(self) -> Self {
        Self {
            apps: false,
            ..self
        }
    }

    /// The same with changed properties of the node.
    #[must_use]
    pub fn with_node(self, node: &Node) -> Self {
        Self {
            node: node.clone(),
            ..self
        }
    }

    /// The first index that service ranges may use.
    pub(super) fn low(&self, config: &Config) -> u32 {
        if self.apps {
            VIPS_MAX
        } else {
            apps_end(config)
        }
    }
}

/// Fills the node's addresses and ranges, and the base indexes of the service ranges, into the configuration.
pub(super) fn fill(
    config: &mut Config,
    node: &Node,
    direct: &[Range],
) -> Result<(), DatapathError> {
    if node.service_ranges.len() > SERVICE_RANGES_MAX {
        return Err(DatapathError::Full {
            what: "service ranges",
            max: SERVICE_RANGES_MAX,
        });
    }
    config.services = [Range::default(); SERVICE_RANGES_MAX];
    config.service_ranges = [Net::default(); SERVICE_RANGES_MAX];
    for (place, range) in config.services.iter_mut().zip(direct) {
        *place = *range;
    }
    for (place, range) in config.service_ranges.iter_mut().zip(&node.service_ranges) {
        *place = net(range);
    }
    config.services_len = u32::try_from(direct.len()).unwrap_or(0);
    config.pods = pods(node);
    if let Some(IpAddr::V6(address)) = node.primary(Family::V6) {
        config.node_address = address.octets();
    }
    config.node_address4 = match node.primary(Family::V4) {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        _ => [0; 16],
    };
    config.masquerade_all = node.masquerade_all.into();
    refuse_overlap(config)
}

/// The pod ranges, by family.
pub(super) fn pods(node: &Node) -> [Net; 2] {
    Family::ALL.map(|family| node.pod_range(family).map(net).unwrap_or_default())
}

/// Refuses ranges of apps and Services that overlap in the `svc` map.
pub(super) fn refuse_overlap(config: &Config) -> Result<(), DatapathError> {
    let apps = config.ranges.iter().take(config.ranges_len as usize);
    let services = || config.services.iter().take(config.services_len as usize);
    for app in apps {
        let clash = services().find(|range| range.base < end(app) && app.base < end(range));
        if let Some(range) = clash {
            return Err(DatapathError::Overlap {
                range: text(app),
                base: app.base,
                services: text(range),
            });
        }
    }
    Ok(())
}

/// The service ranges with their base indexes.
pub(super) fn direct(config: &Config) -> &[Range] {
    let len = config.services_len as usize;
    &config.services[..len.min(SERVICE_RANGES_MAX)]
}

/// The end of the indexes that the apps' ranges use.
fn apps_end(config: &Config) -> u32 {
    let apps = config.ranges.iter().take(config.ranges_len as usize);
    apps.map(end).max().unwrap_or(0)
}

fn text(range: &Range) -> String {
    let address = IpAddr::from(range.prefix).to_canonical();
    let bits = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{}", bits - range.mask.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_refused_by_name() {
        let range = |prefix: &str, mask, base| Range {
            prefix: match prefix.parse().unwrap() {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            },
            mask,
            base,
        };
        let mut config = Config {
            ranges_len: 1,
            services_len: 1,
            ..Config::default()
        };
        config.ranges[0] = range("fd00:10::", 0xfff0_0000, 0);
        config.services[0] = range("10.96.0.0", 0xfff8_0000, 1 << 19);
        let error = refuse_overlap(&config).unwrap_err().to_string();
        assert!(
            error.contains("fd00:10::/108") && error.contains("10.96.0.0/13"),
            "{error}"
        );
        config.ranges[0].mask = 0xfff8_0000;
        assert!(refuse_overlap(&config).is_ok());
        assert_eq!(apps_end(&config), 1 << 19);
    }
}
