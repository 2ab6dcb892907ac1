//! Leader election by a Lease, as client-go has it: of several schedulers with one Lease, one decides.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Error};

/// Time without a renewal after which others may take the Lease; kube-scheduler's `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time without a successful renewal after which the leader ends; kube-scheduler's `--leader-elect-renew-deadline`.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between attempts; kube-scheduler's `--leader-elect-retry-period`.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time for one attempt: two fit into [`RENEW_DEADLINE`].
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);

/// A candidate for a Lease.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
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
    pub(crate) fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            observed: None,
        }
    }

    /// Waits until this one holds the Lease. Returns when the attempt began that took it.
    pub(crate) async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt()).await;
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
                    tracing::warn!(lease = self.name, %error, "cannot take the Lease, retrying");
                }
                Err(_elapsed) => {
                    tracing::warn!(lease = self.name, "no answer about the Lease, retrying");
                }
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews the Lease, which was written after `renewed`, until that has failed for [`RENEW_DEADLINE`], or another one
    /// holds it. A renewal counts from the time at which it was begun: others count from its write.
    pub(crate) async fn hold(&mut self, mut renewed: Instant) {
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::time::sleep(RETRY_PERIOD).await;
            let began = Instant::now();
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            let attempt = tokio::time::timeout(left.min(ATTEMPT_TIMEOUT), self.attempt()).await;
            match attempt {
                Ok(Ok(Held::Mine)) => renewed = began,
                Ok(Ok(Held::Others)) => return,
                // Another client wrote to the object, which is read again.
                Ok(Ok(Held::Conflict)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "cannot renew the Lease, retrying");
                }
                Err(_elapsed) => {
                    tracing::warn!(lease = self.name, "no answer about the Lease, retrying");
                }
            }
        }
    }

    /// Creates, takes or renews the Lease.
    async fn attempt(&mut self) -> Result<Held, Error> {
        let (now, params) = (Timestamp::now(), PostParams::default());
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let created = self.leases.create(&params, &self.lease(now)).await;
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
        new.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + is_other);
        lease.spec = Some(new);
        let replaced = self.leases.replace(&self.name, &params, &lease).await;
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
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
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
fn written(written: Result<Lease, Error>) -> Result<Held, Error> {
    match written {
        Ok(_) => Ok(Held::Mine),
        Err(Error::Api(status)) if status.code == 409 => Ok(Held::Conflict),
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
