//! The options of `dormouse up`.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use dormouse_cluster::{Period, VipRange};
use dormouse_fleet::proto;
use dormouse_store::durable::DataDir;
use dormouse_store_command::DurabilityFlags;

/// A role that may run in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Run with `dormouse store`.
    Store,
    /// Run with `dormouse scheduler`.
    Scheduler,
}

/// The options of `dormouse up`.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Listen address of the control plane, for nodes and clients
    #[arg(long, default_value = "::1", env = "DORMOUSE_ADDRESS")]
    pub address: Ipv6Addr,
    /// The acting prefix, a /96 that the activator listens on for apps in proxy mode. It must be local to this host:
    /// ip -6 route add local PREFIX dev lo
    #[arg(long, value_parser = acting_prefix, env = "DORMOUSE_ACTING_PREFIX")]
    pub acting_prefix: Ipv6Addr,
    /// Prefixes from which VIPs are allocated; at most four, with at most 2^20 addresses in total
    #[arg(
        long = "vip-range",
        default_value = "fd00:10::/108",
        env = "DORMOUSE_VIP_RANGES",
        value_delimiter = ','
    )]
    pub vip_ranges: Vec<String>,
    /// Duration of a node lease: without a heartbeat, a node uses its entries for this long
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_NODE_LEASE")]
    pub node_lease: Duration,
    /// Time that an app stays inactive before its last pod is removed
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_SCALE_TO_ZERO_GRACE")]
    pub scale_to_zero_grace: Duration,
    /// Roles that run in another process
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<Role>,
    /// Directory that keeps the state of the control plane
    #[arg(
        long,
        default_value = "/var/lib/dormouse/control",
        env = "DORMOUSE_DATA_DIR"
    )]
    pub data_dir: PathBuf,
    /// Durability of the writes.
    #[command(flatten)]
    pub durability: DurabilityFlags,
    /// URL of a store in another process: http://[ADDRESS]:2379
    #[arg(long, env = "DORMOUSE_STORE")]
    pub store: Option<String>,
    /// URL of a scheduler in another process: http://[ADDRESS]:10259
    #[arg(long, env = "DORMOUSE_SCHEDULER")]
    pub scheduler: Option<String>,
}

fn period(text: &str) -> Result<Duration, String> {
    text.parse::<Period>()
        .map(|period| period.get())
        .map_err(|error| error.to_string())
}

fn acting_prefix(text: &str) -> Result<Ipv6Addr, String> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let address: Ipv6Addr = address.parse().ok()?;
        (length == "96" && address.segments()[6..] == [0, 0]).then_some(address)
    });
    parsed.ok_or_else(|| format!("`{text}` is not a /96, such as 2001:db8:a1::/96"))
}

impl Options {
    pub(super) fn ranges(&self) -> Result<Vec<VipRange>> {
        let mut base = 0;
        let mut ranges = Vec::new();
        for text in &self.vip_ranges {
            let range: VipRange = text
                .parse()
                .with_context(|| format!("`{text}` is not a VIP range"))?;
            // The indexes of a range begin after those of the range before it.
            let range = VipRange::new(range.prefix(), range.prefix_len(), base)?;
            base += range.size();
            ranges.push(range);
        }
        Ok(ranges)
    }

    pub(super) fn node_config(&self, ranges: &[VipRange]) -> proto::NodeConfig {
        let vip_ranges = ranges
            .iter()
            .map(|range| proto::VipRange {
                prefix: range.to_string(),
                base: range.base(),
            })
            .collect();
        let activator = proto::Activator {
            prefix: format!("{}/96", self.acting_prefix),
            via: self.address.to_string(),
            health: self.at(super::METRICS_PORT).to_string(),
        };
        proto::NodeConfig {
            vip_ranges,
            activators: vec![activator],
        }
    }

    /// The data directory of the store.
    pub(super) fn data(&self) -> DataDir {
        DataDir {
            path: self.data_dir.clone(),
            policy: self.durability.policy(),
        }
    }

    pub(super) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address.into(), port)
    }

    pub(super) fn url(&self, port: u16) -> String {
        format!("http://{}", self.at(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acting_prefix_must_be_a_96_without_host_bits() {
        assert!(acting_prefix("2001:db8:a1::/96").is_ok());
        for wrong in [
            "2001:db8:a1::",
            "2001:db8:a1::/64",
            "2001:db8:a1::1/96",
            "apps/96",
        ] {
            assert!(
                acting_prefix(wrong).expect_err(wrong).contains("/96"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_malformed_duration_is_refused() {
        assert_eq!(period("1s"), Ok(Duration::from_secs(1)));
        assert!(period("soon").is_err());
    }
}
