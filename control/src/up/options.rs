//! The options of `dormouse up`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use dormouse_apps::{Limits, Shares};
use dormouse_cluster::{ServiceRanges, VipRange};
use dormouse_fleet::proto;
use dormouse_nodes::Prefix;
use dormouse_store::durable::DataDir;
use dormouse_store_command::DurabilityFlags;

use crate::activator::Flags;
use crate::flags::period;
use crate::trust::TrustFlags;

/// A role that may run in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Run with `dormouse store`.
    Store,
    /// Run with `dormouse scheduler`.
    Scheduler,
    /// Run with `dormouse activator`.
    Activator,
}

/// The options of `dormouse up`.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Listen address of the control plane, for nodes and clients
    #[arg(long, default_value = "::1", env = "DORMOUSE_ADDRESS")]
    pub address: Ipv6Addr,
    /// Address and limits of the activator.
    #[command(flatten)]
    pub activator: Flags,
    /// Address of the host of the acting prefix, to which nodes send its packets; the default is --address. For an
    /// activator on another host
    #[arg(long, env = "DORMOUSE_ACTING_VIA")]
    pub acting_via: Option<Ipv6Addr>,
    /// Where an activator in another process serves /healthz, its --metrics-listen: nodes without a control plane probe
    /// it; the default is port 9090 of --acting-via
    #[arg(long, env = "DORMOUSE_ACTING_HEALTH")]
    pub acting_health: Option<SocketAddr>,
    /// Prefixes from which VIPs are allocated; at most four, with at most 2^20 addresses in total
    #[arg(
        long = "vip-range",
        default_value = "fd00:10::/108",
        env = "DORMOUSE_VIP_RANGES",
        value_delimiter = ','
    )]
    pub vip_ranges: Vec<String>,
    /// Prefixes from which cluster IPs of Services are given: one, or one of each family, that of Services which name no family
    /// first
    #[arg(
        long = "service-range",
        default_value = "fd00:20::/108",
        env = "DORMOUSE_SERVICE_RANGES",
        value_delimiter = ','
    )]
    pub service_ranges: Vec<String>,
    /// Duration of a node lease: without a heartbeat, a node uses its entries for this long
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_NODE_LEASE")]
    pub node_lease: Duration,
    /// Time that an app stays inactive before its last pod is removed
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_SCALE_TO_ZERO_GRACE")]
    pub scale_to_zero_grace: Duration,
    /// Most pods of one app, whatever its load asks for; 0: no limit
    #[arg(long, default_value_t = Limits::default().pods_per_app, env = "DORMOUSE_PODS_PER_APP")]
    pub pods_per_app: u32,
    /// Most pods of the apps of one namespace; 0: no limit
    #[arg(long, default_value_t = Limits::default().pods.per_tenant, env = "DORMOUSE_PODS_PER_TENANT")]
    pub pods_per_tenant: u32,
    /// Most pods of all apps; 0: no limit
    #[arg(long, default_value_t = Limits::default().pods.in_all, env = "DORMOUSE_PODS_IN_ALL")]
    pub pods_in_all: u32,
    /// Wakes of one namespace's apps per second, further ones wait; 0: no limit
    #[arg(long, default_value_t = Limits::default().wakes.per_tenant, env = "DORMOUSE_WAKES_PER_TENANT")]
    pub wakes_per_tenant: u32,
    /// Wakes of all apps per second, further ones wait; 0: no limit
    #[arg(long, default_value_t = Limits::default().wakes.in_all, env = "DORMOUSE_WAKES_IN_ALL")]
    pub wakes_in_all: u32,
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
    /// File to which each request to the API is appended as a line of JSON, in Kubernetes' audit format (audit.k8s.io/v1, level
    /// Metadata); - is standard output
    #[arg(long, value_name = "FILE", env = "DORMOUSE_AUDIT_LOG")]
    pub audit_log: Option<PathBuf>,
    /// TLS and certificates.
    #[command(flatten)]
    pub trust: TrustFlags,
    /// Durability of the writes.
    #[command(flatten)]
    pub durability: DurabilityFlags,
    /// URL of a store in another process: https://[ADDRESS]:2379, with a certificate of the same authority, or http://[::1]:2379
    #[arg(long, env = "DORMOUSE_STORE")]
    pub store: Option<String>,
    /// URL of a scheduler in another process: https://[ADDRESS]:10259
    #[arg(long, env = "DORMOUSE_SCHEDULER")]
    pub scheduler: Option<String>,
}

impl Options {
    /// Fails if other hosts would reach ports of plain text.
    pub(super) fn check_plain_text(&self) -> Result<()> {
        ensure!(
            !self.trust.insecure || self.address.is_loopback(),
            "--insecure makes each client an administrator, and other hosts reach {}: remove --insecure, and nodes join with `dormouse token \
             create`; or listen on this host only, with --address ::1",
            self.address
        );
        Ok(())
    }

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

    /// The ranges of cluster IPs, which have none of these VIPs.
    pub(super) fn service_ranges(&self, vips: &[VipRange]) -> Result<ServiceRanges> {
        ServiceRanges::parse(&self.service_ranges, vips).context("--service-range")
    }

    /// The networks of cluster IPs, which have been checked.
    pub(super) fn service_networks(&self) -> Vec<Prefix> {
        let texts = self.service_ranges.iter();
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    /// The addresses of control and of the activator's host, which no pod has.
    pub(super) fn own_addresses(&self) -> Vec<IpAddr> {
        let own = [Some(self.address), self.acting_via];
        own.into_iter().flatten().map(IpAddr::V6).collect()
    }

    pub(super) fn node_config(&self, ranges: &[VipRange], cluster: String) -> proto::NodeConfig {
        let vip_ranges = ranges
            .iter()
            .map(|range| proto::VipRange {
                prefix: range.to_string(),
                base: range.base(),
            })
            .collect();
        let via = self.acting_via.unwrap_or(self.address);
        let health = SocketAddr::new(via.into(), super::METRICS_PORT);
        let health = self.acting_health.unwrap_or(health);
        let scheme = if self.trust.insecure { "" } else { "https://" };
        let activator = proto::Activator {
            prefix: format!("{}/96", self.activator.acting_prefix),
            via: via.to_string(),
            health: format!("{scheme}{health}"),
        };
        proto::NodeConfig {
            vip_ranges,
            activators: vec![activator],
            cluster,
        }
    }

    /// The limits of wakes and pods.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            wakes: Shares {
                per_tenant: self.wakes_per_tenant,
                in_all: self.wakes_in_all,
            },
            pods_per_app: self.pods_per_app,
            pods: Shares {
                per_tenant: self.pods_per_tenant,
                in_all: self.pods_in_all,
            },
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
        let scheme = if self.trust.insecure { "http" } else { "https" };
        format!("{scheme}://{}", self.at(port))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn check(flags: &[&str]) -> Result<()> {
        let own = ["up", "--acting-prefix", "2001:db8:a::/96"];
        let command = Command::try_parse_from(own.iter().chain(flags))?;
        command.options.check_plain_text()
    }

    #[test]
    fn plain_text_is_for_this_host_only() {
        for flags in [
            &[][..],
            &["--address", "2001:db8::c"],
            &["--insecure"],
            &["--insecure", "--address", "::1"],
        ] {
            check(flags).unwrap();
        }
        for address in ["2001:db8::c", "::", "fe80::1"] {
            let error = check(&["--insecure", "--address", address]).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(address) && error.contains("--address ::1"),
                "{error}"
            );
        }
    }

    #[test]
    fn plain_text_has_no_certificates() {
        for more in [
            &["--tls-san", "control"][..],
            &["--certificate-life", "1h"],
            &["--ca-cert", "a", "--ca-key", "b"],
        ] {
            assert!(
                check(&[&["--insecure"], more].concat()).is_err(),
                "{more:?}"
            );
            check(more).unwrap();
        }
        assert!(check(&["--tls"]).is_err());
    }
}
