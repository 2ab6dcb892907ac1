//! `dormouse activator`: the activator in a process of its own.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use dormouse_activator::Config;
use dormouse_activator::link::Attachment;
use dormouse_store::server::raise_descriptor_limit;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::descriptors::{self, ACTIVATOR_PARTS};
use crate::flags::{acting_prefix, period};
use crate::listen::listen;
use crate::metrics;
use crate::role::JoinFlags;
use crate::up::ACTIVATOR_PORT;

/// The IPv6 routes of the network namespace, a line each.
const ROUTES: &str = "/proc/net/ipv6_route";
/// The flag of a route to addresses of the host itself (RTF_LOCAL, linux/ipv6_route.h).
const LOCAL: u32 = 0x8000_0000;

/// The activator's address and limits.
#[derive(Args, Debug, Clone)]
pub struct Flags {
    /// The acting prefix, a /96 that the activator listens on for apps in proxy mode. It must be local to this host:
    /// ip -6 route add local PREFIX dev lo
    #[arg(long, value_parser = acting_prefix, env = "DORMOUSE_ACTING_PREFIX")]
    pub acting_prefix: Ipv6Addr,
    /// Time for which requests of a sleeping app wait for the control plane's answer; then they are answered 503
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_WAKE_TIMEOUT")]
    pub wake_timeout: Duration,
    /// Time for requests in flight to end at shutdown
    #[arg(long, default_value = "30s", value_parser = period, env = "DORMOUSE_DRAIN_TIMEOUT")]
    pub drain_timeout: Duration,
    /// Limit of parked requests, all apps together; further ones are answered 503
    #[arg(long, default_value_t = 100_000, env = "DORMOUSE_PARKED_MAX")]
    pub parked_max: usize,
    /// Limit of the memory of parked requests in bytes, all apps together
    #[arg(long, default_value_t = 1 << 30, env = "DORMOUSE_PARKED_BYTES_MAX")]
    pub parked_bytes_max: usize,
    /// Limit of open client connections, all apps together; fewer if the limit of file descriptors is low
    #[arg(long, default_value_t = 120_000, env = "DORMOUSE_CONNECTIONS_MAX")]
    pub connections_max: usize,
    /// Limit of the memory of open client connections in bytes, all apps together, besides that of parked requests
    #[arg(long, default_value_t = 1 << 30, env = "DORMOUSE_CONNECTION_BYTES_MAX")]
    pub connection_bytes_max: usize,
}

impl Flags {
    /// Checks that the acting prefix is local to this host.
    pub fn check_local(&self) -> Result<()> {
        let prefix = self.acting_prefix;
        // Without the list, nothing is known about the prefix.
        let routes = std::fs::read_to_string(ROUTES).ok();
        ensure!(
            routes.is_none_or(|routes| is_local(&routes, prefix)),
            "--acting-prefix {prefix}/96 is not local to this host: connections to sleeping apps would not arrive; run: ip -6 route add local {prefix}/96 dev lo"
        );
        Ok(())
    }

    /// The activator's configuration.
    pub fn config(&self) -> Config {
        Config {
            wake_timeout: self.wake_timeout,
            drain_timeout: self.drain_timeout,
            parked_max: self.parked_max,
            parked_bytes_max: self.parked_bytes_max,
            connections_max: self.connections_max,
            connection_bytes_max: self.connection_bytes_max,
            ..Config::new(self.acting_prefix)
        }
    }
}

/// Whether one of the routes makes this /96 local: destination, its length, and the flags in the ninth column, all in hexadecimal.
fn is_local(routes: &str, prefix: Ipv6Addr) -> bool {
    routes.lines().any(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let [destination, length, _, _, _, _, _, _, flags, ..] = columns[..] else {
            return false;
        };
        let (Ok(destination), Ok(length), Ok(flags)) = (
            u128::from_str_radix(destination, 16),
            u32::from_str_radix(length, 16),
            u32::from_str_radix(flags, 16),
        ) else {
            return false;
        };
        let host = u128::MAX.checked_shr(length).unwrap_or(0);
        flags & LOCAL != 0 && length <= 96 && prefix.to_bits() & !host == destination
    })
}

/// What `dormouse activator --help` says first.
pub const ABOUT: &str = "Run only the activator: it parks requests of sleeping apps, asks the control plane to wake them, and \
    forwards requests of apps in proxy mode.\n\n\
    The control plane is started with `dormouse up --without activator`, and with the same acting prefix. The activator gets \
    the routes of awake apps from it, and asks for those of sleeping ones when they are requested. While the control plane is \
    away, awake apps are served with the last routes; requests of sleeping apps are parked within the limits and answered 503 \
    with Retry-After after the wake timeout. If the activator is restarted, the requests that it had parked are lost and \
    nothing else.";

/// An example for `dormouse activator --help`.
pub const EXAMPLE: &str = "Example:\n  \
    ip -6 route add local 2001:db8:a1::/96 dev lo\n  \
    dormouse activator --join LINE --acting-prefix 2001:db8:a1::/96\n\n\
    The line is printed by `dormouse token create --role activator`.";

/// The options of `dormouse activator`.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// URL of the control plane's port for activators; by default port 7444 of the host at which this has joined, or http://[::1]:7444
    #[arg(long, env = "DORMOUSE_CONTROL")]
    pub control: Option<String>,
    /// Its certificate.
    #[command(flatten)]
    pub join: JoinFlags,
    /// Address and limits.
    #[command(flatten)]
    pub flags: Flags,
    /// Name of this activator, one of a kind; the default is the acting prefix
    #[arg(long, env = "DORMOUSE_ACTIVATOR_NAME")]
    pub name: Option<String>,
    /// Listen address of the metrics and of /healthz. With a certificate it has TLS; without one, other hosts get /healthz only
    #[arg(long, default_value = "[::1]:9090", env = "DORMOUSE_METRICS_LISTEN")]
    pub metrics_listen: SocketAddr,
}

/// Runs only the activator until `drain` is cancelled and its requests have ended.
pub async fn run(options: Options, drain: CancellationToken) -> Result<()> {
    options.flags.check_local()?;
    let member = options.join.open("activator", &drain).await?;
    let control = member.url(options.control.as_deref(), ACTIVATOR_PORT);
    let target = member.peers.target(&control)?;
    let metrics_incoming = member.metrics(listen(options.metrics_listen, "metrics").await?);
    let mut config = options.flags.config();
    let part = descriptors::part(raise_descriptor_limit(), ACTIVATOR_PARTS);
    descriptors::limit_activator(&mut config, part);
    let (handle, reports) = dormouse_activator::new(config);
    let mut registry = Registry::default();
    handle.register(&mut registry);
    let name = options
        .name
        .unwrap_or_else(|| format!("{}/96", options.flags.acting_prefix));
    info!(name, control, "activator is up");
    let attachment = Attachment::new(handle.clone(), reports, name);
    // Until the requests have ended: while parked ones drain, their apps still wake.
    let drained = CancellationToken::new();
    let serving = async {
        dormouse_activator::run(handle.clone(), drain).await;
        drained.cancel();
        anyhow::Ok(())
    };
    let metered = async {
        let (pages, health) = (metrics::of_role(registry), Some(handle.clone()));
        metrics::serve(metrics_incoming, pages, health, drained.clone())
            .await
            .context("metrics failed")
    };
    let attached = async {
        Box::pin(attachment.dial(target, drained.clone())).await;
        Ok(())
    };
    tokio::try_join!(serving, metered, attached).map(|_ended| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_local_if_a_local_route_covers_it() {
        let none = "00000000000000000000000000000000";
        let route = |destination: &str, length: &str, flags: &str| {
            format!(
                "{destination} {length} {none} 00 {none} 00000400 00000001 00000000 {flags}       lo\n"
            )
        };
        let prefix = "2001:db8:a1::".parse().unwrap();
        let own = "20010db800a100000000000000000000";
        for (destination, length, flags, want) in [
            (own, "60", "80200001", true),
            ("20010db8000000000000000000000000", "20", "80000001", true),
            (own, "60", "00000001", false),
            (own, "80", "80200001", false),
            ("20010db800a200000000000000000000", "60", "80200001", false),
        ] {
            let routes = format!("short line\n{}", route(destination, length, flags));
            assert_eq!(
                is_local(&routes, prefix),
                want,
                "{destination}/{length} {flags}"
            );
        }
        assert!(!is_local("", prefix));
    }
}
