//! Probes: frequent at first, so that a wake waits for the app and not for its next probe.

mod attempt;

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::sockets::Listener;
use super::spec::{Check, Probe};
pub(super) use attempt::Failed;
use attempt::attempt;

/// Pauses between two probes of a starting pod: the first ones, and those of pods that start slowly.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// A starting pod is probed again after this part of the time that it has taken so far: the probes add little to any start, and their
/// number grows with its logarithm.
const PAUSE_PART: u32 = 8;
/// A start that takes longer has a reason that is reported.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval at which a longer start is examined for its reason.
const EXAMINE_PERIOD: Duration = Duration::from_secs(1);

/// Why a pod is not ready, for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unready {
    /// In CamelCase.
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Differs when the pod is not ready for another reason, and not when only a response's body differs.
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Closed(Vec<Listener>),
    Silent,
    Status(String),
}

/// A pod that starts.
pub(super) struct Starting<'a> {
    pub(super) probe: &'a Probe,
    pub(super) address: Ipv6Addr,
    pub(super) since: Instant,
    /// The reason that was reported last.
    pub(super) known: Option<&'a Unready>,
}

impl Starting<'_> {
    /// Resolves when the pod is ready, or with the reason if it takes long and the reason is another one than is known. Cancel safe.
    pub(super) async fn ready(&self, listeners: impl Fn() -> Vec<Listener>) -> Result<(), Unready> {
        let delay = self
            .probe
            .initial_delay
            .saturating_sub(self.since.elapsed());
        tokio::time::sleep(delay).await;
        let began = Instant::now();
        let mut examined = self.since + PATIENCE.max(self.probe.initial_delay);
        while let Err(failed) = attempt(self.probe, self.address).await {
            let now = Instant::now();
            if now >= examined {
                examined = now + EXAMINE_PERIOD;
                let unready = Unready::new(&self.probe.check, self.address, failed, listeners());
                if self.known.is_none_or(|known| known.kind != unready.kind) {
                    return Err(unready);
                }
            }
            let pause = began.elapsed() / PAUSE_PART;
            tokio::time::sleep(pause.clamp(PAUSES.0, PAUSES.1)).await;
        }
        Ok(())
    }
}

/// Resolves when a pod has failed its probe as often in a row as the probe allows. Cancel safe.
pub(super) async fn failing(
    probe: &Probe,
    address: Ipv6Addr,
    listeners: impl Fn() -> Vec<Listener>,
) -> Unready {
    let mut failures = 0;
    loop {
        tokio::time::sleep(probe.period).await;
        match attempt(probe, address).await {
            Ok(()) => failures = 0,
            Err(failed) => {
                failures += 1;
                if failures >= probe.failures_max {
                    return Unready::new(&probe.check, address, failed, listeners());
                }
            }
        }
    }
}

impl Unready {
    fn new(check: &Check, address: Ipv6Addr, failed: Failed, mut listeners: Vec<Listener>) -> Self {
        listeners.sort_unstable();
        listeners.dedup();
        let port = check.port().unwrap_or_default();
        let request = match check {
            Check::Get { path, .. } => format!("GET {path} on port {port}"),
            Check::Connect(_) | Check::None => format!("port {port}"),
        };
        match failed {
            Failed::Closed => Self {
                reason: "NotListening",
                message: closed(port, address, &listeners),
                kind: Kind::Closed(listeners),
            },
            Failed::Silent(limit) => Self {
                reason: "NoResponse",
                message: format!("{request} is accepted and not answered within {limit:?}"),
                kind: Kind::Silent,
            },
            Failed::Status { status, body } => {
                let body = Some(body).filter(|body| !body.is_empty());
                let body = body.map_or_else(String::new, |body| format!(": {body}"));
                Self {
                    reason: "ProbeFailed",
                    message: format!("{request} is answered {status}{body}"),
                    kind: Kind::Status(status),
                }
            }
        }
    }
}

/// Why nothing accepts connections on a pod's port, by the sockets on which its processes listen.
fn closed(port: u16, address: Ipv6Addr, listeners: &[Listener]) -> String {
    let here: Vec<_> = listeners
        .iter()
        .filter(|known| known.port == port)
        .collect();
    if let Some(known) = here.first() {
        return match known.address {
            _ if here.iter().any(|known| known.accepts(address)) => {
                format!("port {port} does not accept connections")
            }
            IpAddr::V4(v4) if !v4.is_loopback() => {
                format!(
                    "the process listens on port {port} of IPv4 only, at {v4}: it must listen on [::]"
                )
            }
            other => {
                format!(
                    "the process listens on port {port} of {other} only: it must listen on [::]"
                )
            }
        };
    }
    let mut ports: Vec<String> = listeners
        .iter()
        .map(|known| known.port.to_string())
        .collect();
    ports.dedup();
    if ports.is_empty() {
        format!("nothing listens on port {port}")
    } else {
        format!(
            "nothing listens on port {port}; the process listens on {}",
            ports.join(", ")
        )
    }
}

#[cfg(test)]
mod tests;
