//! The flags of `run` about wakes: the number that one source may cause, and the sources without a limit.

use anyhow::{Result, ensure};
use dormouse_agent_datapath::{TRUSTED_MAX, WAKE_BURST_MAX, WakeLimits};
use dormouse_agent_services::Prefix;

/// The flags about wakes.
#[derive(Clone, Debug, clap::Args)]
pub struct WakeOptions {
    /// Sleeping apps that one source may wake per minute (a /64 or an IPv4 address outside, a pod, the node itself); 0: no limit
    #[arg(long, env = "DORMOUSE_WAKES_PER_MINUTE", default_value_t = 60)]
    pub wakes_per_minute: u32,
    /// Sleeping apps that one source may wake at once
    #[arg(
        long,
        env = "DORMOUSE_WAKE_BURST",
        default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(WAKE_BURST_MAX))
    )]
    pub wake_burst: u32,
    /// Range of sources that may wake any number of apps, such as reverse proxies: hosts outside, or pods; up to 8
    #[arg(
        long = "trusted-proxy",
        env = "DORMOUSE_TRUSTED_PROXIES",
        value_delimiter = ','
    )]
    pub trusted_proxies: Vec<String>,
}

impl WakeOptions {
    /// The limits, checked.
    pub(crate) fn limits(&self) -> Result<WakeLimits> {
        let given = self.trusted_proxies.iter().filter(|text| !text.is_empty());
        let trusted: Vec<Prefix> = given.map(|text| prefix(text)).collect::<Result<_>>()?;
        ensure!(
            trusted.len() <= TRUSTED_MAX,
            "--trusted-proxy: {} ranges were given, {TRUSTED_MAX} are possible",
            trusted.len()
        );
        Ok(WakeLimits {
            per_minute: self.wakes_per_minute,
            burst: self.wake_burst,
            trusted,
        })
    }
}

/// A range, or a single address.
fn prefix(text: &str) -> Result<Prefix> {
    let prefix = Prefix::parse_or_single(text).ok_or_else(|| {
        anyhow::anyhow!("--trusted-proxy {text}: write a range like 2001:db8:7::/64, or an address")
    })?;
    ensure!(
        prefix.length() > 0,
        "--trusted-proxy {text}: all sources; --wakes-per-minute 0 turns the limit off"
    );
    Ok(prefix)
}
