//! Leader election by a Lease, as client-go has it: of several schedulers with one Lease, one decides.

use std::time::{Duration, Instant};

use dormouse_cluster::client::chain;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use crate::shards::leases::{LeaseError, Leases};

/// A candidate for a Lease.
pub(crate) struct Candidate {
    leases: Leases,
    name: String,
    identity: String,
    /// Time without a renewal after which others may take the Lease; kube-scheduler's `--leader-elect-lease-duration`.
    duration: Duration,
    /// The number of leaders until now.
    term: u64,
    /// The Lease as it was last seen to change, and when.
    observed: Option<(LeaseSpec, Instant)>,
}

/// What is to be done about a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Another one holds it.
    Wait,
    /// This one holds it.
    Renew,
    /// It is free.
    Take,
}

/// Who holds the Lease after an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    Mine,
    Others,
    /// It was written meanwhile.
    Conflict,
}

impl Candidate {
    pub(crate) fn new(leases: Leases, name: &str, identity: &str, duration: Duration) -> Self {
        Self {
            leases,
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration,
            term: 0,
            observed: None,
        }
    }

    /// The number of leaders until now, with this one.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// Time without a successful renewal after which the leader ends; kube-scheduler's `--leader-elect-renew-deadline`, of 10 s
    /// with a Lease of 15 s.
    fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Pause between attempts; kube-scheduler's `--leader-elect-retry-period`, of 2 s with a Lease of 15 s.
    fn retry_period(&self) -> Duration {
        self.duration * 2 / 15
    }

    /// Time for one attempt: two fit into the deadline.
    fn attempt_timeout(&self) -> Duration {
        self.duration * 4 / 15
    }

    /// Waits until this one holds the Lease. Returns when the attempt began that took it.
    pub(crate) async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            let attempt = tokio::time::timeout(self.attempt_timeout(), self.attempt()).await;
            match attempt {
                Ok(Ok(Held::Mine)) => {
                    tracing::info!(
                        lease = self.name,
                        identity = self.identity,
                        "this scheduler leads"
                    );
                    return began;
                }
                Ok(Ok(Held::Others | Held::Conflict)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, error = %chain(&error), "cannot take the Lease, retrying");
                }
                Err(_elapsed) => {
                    tracing::warn!(lease = self.name, "no answer about the Lease, retrying");
                }
            }
            tokio::time::sleep(self.retry_period()).await;
        }
    }

    /// Renews the Lease, which was written after `renewed`, until that has failed for its deadline, or another one
    /// holds it. A renewal counts from the time at which it was begun: others count from its write.
    pub(crate) async fn hold(&mut self, mut renewed: Instant) {
        while renewed.elapsed() < self.renew_deadline() {
            tokio::time::sleep(self.retry_period()).await;
            let began = Instant::now();
            let left = self.renew_deadline().saturating_sub(renewed.elapsed());
            let attempt =
                tokio::time::timeout(left.min(self.attempt_timeout()), self.attempt()).await;
            match attempt {
                Ok(Ok(Held::Mine)) => renewed = began,
                Ok(Ok(Held::Others)) => return,
                // Another client wrote to the object, which is read again.
                Ok(Ok(Held::Conflict)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, error = %chain(&error), "cannot renew the Lease, retrying");
                }
                Err(_elapsed) => {
                    tracing::warn!(lease = self.name, "no answer about the Lease, retrying");
                }
            }
        }
    }

    /// Creates, takes or renews the Lease.
    async fn attempt(&mut self) -> Result<Held, LeaseError> {
        let now = Timestamp::now();
        let Some(mut lease) = self.leases.get(&self.name).await? else {
            self.term = 1;
            let created = self.leases.create(&self.lease(now)).await;
            return written(created);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let observed_for = self.observe(&spec);
        let step = step(&spec, observed_for, &self.identity);
        if step == Step::Wait {
            return Ok(Held::Others);
        }
        let mut new = self.spec(now);
        if step == Step::Renew {
            new.acquire_time = spec.acquire_time;
        }
        let is_other = i32::from(step == Step::Take);
        let transitions = spec.lease_transitions.unwrap_or(0) + is_other;
        new.lease_transitions = Some(transitions);
        self.term = u64::try_from(transitions).unwrap_or(0) + 1;
        lease.spec = Some(new);
        let replaced = self.leases.replace(&lease).await;
        written(replaced)
    }

    /// The time for which the Lease is known not to have changed, by this machine's clock.
    fn observe(&mut self, spec: &LeaseSpec) -> Duration {
        match &self.observed {
            Some((seen, at)) if seen == spec => at.elapsed(),
            _ => {
                self.observed = Some((spec.clone(), Instant::now()));
                Duration::ZERO
            }
        }
    }

    fn lease(&self, now: Timestamp) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.leases.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                lease_transitions: Some(0),
                ..self.spec(now)
            }),
        }
    }

    fn spec(&self, now: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }
    }
}

/// What to do about a Lease that has not changed for a time.
fn step(spec: &LeaseSpec, observed_for: Duration, identity: &str) -> Step {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if holder == identity {
        Step::Renew
    } else if holder.is_empty() || observed_for >= duration {
        Step::Take
    } else {
        Step::Wait
    }
}

/// Whether a write came before those of others.
fn written(written: Result<(), LeaseError>) -> Result<Held, LeaseError> {
    match written {
        Ok(()) => Ok(Held::Mine),
        Err(LeaseError::Conflict(_)) => Ok(Held::Conflict),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_another_is_taken_once_it_was_not_renewed_for_its_duration() {
        let spec = |holder: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        let after = |holder, seconds| step(&spec(holder), Duration::from_secs(seconds), "me");
        assert_eq!(after("me", 99), Step::Renew);
        assert_eq!(after("other", 14), Step::Wait);
        assert_eq!(after("other", 15), Step::Take);
        assert_eq!(after("", 0), Step::Take);
    }
}
