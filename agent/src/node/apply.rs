//! Applies one message of control: settings, entries, a grace period, the lease, then pods.

use std::net::Ipv6Addr;

use dormouse_fleet::Boottime;
use dormouse_fleet::backend::UnpackError;
use dormouse_fleet::node::Step;
use dormouse_fleet::proto::{Activator, Entry, NodeConfig, entry::Mode};

use dormouse_agent_datapath as datapath;
use dormouse_agent_datapath::{DatapathError, SharedDatapath, VipRange};
use ipnet::Ipv6Net;
use tokio::task::JoinHandle;
use tracing::warn;

use super::Node;

/// Why a message of control cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The data path refused it.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    /// The entry's list of backends is malformed.
    #[error("entry of VIP index {vip}")]
    Backends {
        /// Index of the VIP.
        vip: u32,
        /// The defect.
        #[source]
        source: UnpackError,
    },
    /// A prefix in the node's settings cannot be parsed.
    #[error("control's settings name {0:?}, which is not an IPv6 prefix")]
    Prefix(String),
    /// An activator's next hop cannot be parsed.
    #[error("control's settings name the next hop {0:?}, which is not an IPv6 address")]
    NextHop(String),
    /// A route to an activator cannot be set.
    #[error("failed to route {prefix} via {via}")]
    Route {
        /// The acting prefix.
        prefix: String,
        /// Its next hop.
        via: Ipv6Addr,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// A number of an entry is out of range.
    #[error("entry of VIP index {vip}: {what} {value} is out of range")]
    Range {
        /// Index of the VIP.
        vip: u32,
        /// The field.
        what: &'static str,
        /// The received value.
        value: u32,
    },
}

/// A message that waits until no program uses the words that it replaced.
pub struct Graced {
    wait: JoinHandle<()>,
    pub(super) step: Step,
}

impl Graced {
    /// Starts the grace period on a thread of its own; the loop continues meanwhile.
    pub(super) fn begin(datapath: &SharedDatapath, step: Step) -> Self {
        let grace = datapath.grace_period();
        Self {
            wait: tokio::task::spawn_blocking(move || grace.wait()),
            step,
        }
    }
}

/// Resolves when the grace period is over. Cancel safe.
pub(super) async fn graced(graced: &mut Option<Graced>) {
    match graced {
        // The thread cannot fail; it is only cut off when the agent stops.
        Some(graced) => drop((&mut graced.wait).await),
        None => std::future::pending().await,
    }
}

impl Node {
    /// The first half of a message: settings and entries.
    pub(super) async fn begin(&mut self, step: &Step) -> Result<(), ApplyError> {
        if let Some(config) = &step.config {
            self.configure(config).await?;
        }
        self.publish(&step.entries)
    }

    /// The second half, after the grace period: lease, pods, acknowledgement.
    pub(super) fn finish(&mut self, step: Step) {
        if let Some(until) = step.lease_until {
            self.datapath.apps.grant(until.0);
            self.state.granted();
            self.state.stale(false);
            self.stale.granted(self.fleet.lease(), Boottime::now());
        }
        if let Some(pods) = &mut self.pods {
            if step.run_complete {
                pods.runtime.sync(step.run);
            } else {
                step.run.into_iter().for_each(|spec| pods.runtime.run(spec));
            }
        }
        self.fleet.applied(step.seq);
    }

    async fn configure(&mut self, config: &NodeConfig) -> Result<(), ApplyError> {
        let mut ranges = Vec::new();
        for range in &config.vip_ranges {
            let (prefix, length) = prefix(&range.prefix)?;
            ranges.push(VipRange {
                prefix,
                length,
                base: range.base,
            });
        }
        let health = |activator: &Activator| activator.health.parse().ok();
        let endpoints = config.activators.iter().filter_map(health).collect();
        if let Err(error) = self.activators.set(endpoints) {
            warn!(%error, "failed to write the activators' endpoints for the next agent");
        }
        let mut acting = Vec::new();
        for activator in &config.activators {
            let (address, length) = prefix(&activator.prefix)?;
            if length != 96 {
                return Err(ApplyError::Prefix(activator.prefix.clone()));
            }
            let next_hop = || ApplyError::NextHop(activator.via.clone());
            let via = activator.via.parse().map_err(|_malformed| next_hop())?;
            self.routes
                .lead(address, length, via)
                .await
                .map_err(|source| ApplyError::Route {
                    prefix: activator.prefix.clone(),
                    via,
                    source,
                })?;
            acting.push(datapath::Activator {
                prefix: address,
                via,
            });
        }
        Ok(self.datapath.facts.configure(&ranges, &acting)?)
    }

    fn publish(&mut self, entries: &[Entry]) -> Result<(), ApplyError> {
        for entry in entries {
            self.datapath.apps.publish(&translate(entry)?)?;
            if entry.gone && !self.gone.add(entry.vip) {
                self.datapath.apps.forget(entry.vip)?;
            }
        }
        Ok(())
    }
}

/// Converts an entry of the protocol to one of the data path.
fn translate(entry: &Entry) -> Result<datapath::Entry, ApplyError> {
    let fail = |source| ApplyError::Backends {
        vip: entry.vip,
        source,
    };
    let backends = dormouse_fleet::Backend::unpack(&entry.backends).map_err(fail)?;
    let range = |what, value| ApplyError::Range {
        vip: entry.vip,
        what,
        value,
    };
    let share = u8::try_from(entry.share).map_err(|_large| range("share", entry.share))?;
    let port = u16::try_from(entry.port).map_err(|_large| range("port", entry.port))?;
    let protocol =
        u8::try_from(entry.protocol).map_err(|_large| range("protocol", entry.protocol))?;
    Ok(datapath::Entry {
        vip: entry.vip,
        mode: match entry.mode() {
            Mode::Proxy => datapath::Mode::Proxy,
            Mode::Serve => datapath::Mode::Serve,
        },
        share,
        backends: backends
            .iter()
            .map(|backend| datapath::Backend {
                address: backend.address(),
                port: backend.port,
                weight: backend.weight,
            })
            .collect(),
        leased: entry.leased,
        asleep: entry.asleep,
        gone: entry.gone,
        port,
        protocol,
    })
}

/// `address/length`.
fn prefix(text: &str) -> Result<(Ipv6Addr, u8), ApplyError> {
    let parsed: Result<Ipv6Net, _> = text.parse();
    let net = parsed.map_err(|_invalid| ApplyError::Prefix(text.to_owned()))?;
    Ok((net.addr(), net.prefix_len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_an_address_and_a_length() {
        assert_eq!(
            prefix("fd00:10::/108").unwrap(),
            ("fd00:10::".parse().unwrap(), 108)
        );
        for bad in ["", "fd00::", "fd00::/129", "10.0.0.0/8", "fd00::/x"] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn torn_backends_are_refused_with_their_vip() {
        let entry = Entry {
            vip: 7,
            backends: vec![0; 23],
            ..Entry::default()
        };
        let error = translate(&entry).unwrap_err();
        assert!(error.to_string().contains("VIP index 7"));
        let entry = Entry {
            vip: 8,
            port: 70_000,
            ..Entry::default()
        };
        assert!(
            translate(&entry)
                .unwrap_err()
                .to_string()
                .contains("port 70000")
        );
    }
}
