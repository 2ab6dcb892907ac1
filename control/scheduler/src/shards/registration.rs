//! The Lease of a member: it has the member's address, and its renewals show that the member runs.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_cluster::client::chain;
use dormouse_scheduler_shard::Member;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::leases::{LeaseError, Leases};
use super::{Reach, peers};

/// The label with the name of the scheduler's own Lease.
const SCHEDULER: &str = "dormouse.dev/scheduler";
/// The label with the role.
const ROLE: &str = "dormouse.dev/scheduler-role";
/// The annotation with the address.
const ADDRESS: &str = "dormouse.dev/address";
/// The annotation with the incarnation.
const INCARNATION: &str = "dormouse.dev/incarnation";
/// Attempts to write a Lease to which others write.
const ATTEMPTS_MAX: u32 = 16;

/// The role of a member that is not the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has nodes.
    Shard,
    /// It passes questions on and merges answers.
    Relay,
}

impl Role {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::Relay => "relay",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let both = [Self::Shard, Self::Relay];
        both.into_iter().find(|role| role.name() == name)
    }
}

/// An error that ends a member.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A member of this name runs.
    #[error(
        "another {role} is registered as {name} and responds at {address}: give each its own --name",
        role = role.name()
    )]
    Taken {
        /// The role.
        role: Role,
        /// The name of the Lease.
        name: String,
        /// Where the other one listens.
        address: String,
    },
    /// Another process has registered by this name since.
    #[error(
        "the Lease {name} is held by another {role} now: this one ends, give each its own --name",
        role = role.name()
    )]
    Lost {
        /// The role.
        role: Role,
        /// The name of the Lease.
        name: String,
    },
    /// The Lease could not be written.
    #[error("cannot register as {name}")]
    Write {
        /// The name of the Lease.
        name: String,
        /// The reason.
        #[source]
        source: Box<LeaseError>,
    },
}

/// A member by its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) member: Member,
    pub(crate) role: Role,
    /// The time after a renewal for which the member is there.
    pub(crate) duration: Duration,
    renewed_at: Timestamp,
}

impl Registered {
    /// The member that registers.
    pub(crate) fn new(member: Member, role: Role, duration: Duration) -> Self {
        Self {
            member,
            role,
            duration,
            renewed_at: Timestamp::now(),
        }
    }

    fn lease(&self, scheduler: &str, namespace: &str) -> Lease {
        let labels = [(SCHEDULER, scheduler), (ROLE, self.role.name())];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let annotations = [
            (ADDRESS.to_owned(), self.member.address.clone()),
            (INCARNATION.to_owned(), self.member.incarnation.to_string()),
        ];
        Lease {
            metadata: ObjectMeta {
                name: Some(self.member.name.clone()),
                namespace: Some(namespace.to_owned()),
                labels: Some(BTreeMap::from(labels)),
                annotations: Some(BTreeMap::from(annotations)),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.member.address.clone()),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                renew_time: Some(MicroTime(self.renewed_at)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// The member of a Lease; `None` if it is not one of a member.
    fn read(lease: &Lease) -> Option<Self> {
        let (meta, spec) = (&lease.metadata, lease.spec.as_ref()?);
        let role = meta.labels.as_ref()?.get(ROLE)?;
        let seconds = u64::try_from(spec.lease_duration_seconds?).ok()?;
        let annotations = meta.annotations.as_ref()?;
        let member = Member {
            name: meta.name.clone()?,
            incarnation: annotations.get(INCARNATION)?.parse().ok()?,
            address: annotations.get(ADDRESS)?.clone(),
        };
        let renewed_at = spec.renew_time.as_ref()?.0;
        Some(Self {
            renewed_at,
            ..Self::new(member, Role::parse(role)?, Duration::from_secs(seconds))
        })
    }
}

/// The name of a member's Lease.
fn lease_name(scheduler: &str, role: Role, name: &str) -> String {
    format!("{scheduler}-{}-{name}", role.name())
}

/// The members of a scheduler, by its Lease's name. A Lease that is not one of a member is left out.
pub(crate) async fn list(leases: &Leases, scheduler: &str) -> Result<Vec<Registered>, LeaseError> {
    let prefix = format!("{scheduler}-");
    let found = leases.list(&prefix, (SCHEDULER, scheduler)).await?;
    Ok(found.iter().filter_map(Registered::read).collect())
}

/// A registration in force.
pub(crate) struct Registration {
    leases: Leases,
    scheduler: String,
    reach: Reach,
    pub(crate) registered: Registered,
}

impl Registration {
    /// Registers a member as the next incarnation of its name; an error if the one before still responds.
    pub(crate) async fn begin(
        leases: Leases,
        scheduler: &str,
        (role, name): (Role, &str),
        (address, reach): (String, Reach),
        duration: Duration,
    ) -> Result<Self, RegistrationError> {
        let now = Timestamp::now().as_millisecond();
        let member = Member {
            name: lease_name(scheduler, role, name),
            // Larger than before also if the Lease was deleted meanwhile.
            incarnation: u64::try_from(now).unwrap_or(0),
            address,
        };
        let mut registration = Self {
            leases,
            scheduler: scheduler.to_owned(),
            reach,
            registered: Registered::new(member, role, duration),
        };
        registration.take().await?;
        Ok(registration)
    }

    async fn take(&mut self) -> Result<(), RegistrationError> {
        let name = self.registered.member.name.clone();
        for _ in 0..ATTEMPTS_MAX {
            let found = self.leases.get(&name).await;
            let found = found.map_err(|error| self.failed(error))?;
            if let Some(before) = found.as_ref().and_then(Registered::read) {
                if peers::responds(&self.reach, &before.member).await {
                    return Err(RegistrationError::Taken {
                        role: before.role,
                        name,
                        address: before.member.address,
                    });
                }
                let own = &mut self.registered.member.incarnation;
                *own = (*own).max(before.member.incarnation + 1);
            }
            match self.write(found).await {
                Err(LeaseError::Conflict(_)) => {}
                written => return written.map_err(|error| self.failed(error)),
            }
        }
        Err(self.failed(LeaseError::Conflict(name)))
    }

    async fn write(&self, found: Option<Lease>) -> Result<(), LeaseError> {
        let mut lease = self
            .registered
            .lease(&self.scheduler, self.leases.namespace());
        match found {
            None => self.leases.create(&lease).await,
            Some(found) => {
                lease.metadata.resource_version = found.metadata.resource_version;
                self.leases.replace(&lease).await
            }
        }
    }

    /// Renews the Lease until another process holds it. While the store does not answer, it is tried again.
    pub(crate) async fn keep(&mut self) -> RegistrationError {
        let (name, role) = (self.registered.member.name.clone(), self.registered.role);
        loop {
            tokio::time::sleep(self.registered.duration / 3).await;
            match self.renew().await {
                Ok(true) => {}
                Ok(false) => return RegistrationError::Lost { role, name },
                Err(error) => {
                    tracing::warn!(lease = name, error = %chain(&error), "cannot renew the Lease, retrying");
                }
            }
        }
    }

    /// Whether it is still this one's.
    async fn renew(&mut self) -> Result<bool, LeaseError> {
        let found = self.leases.get(&self.registered.member.name).await?;
        if !self.is_own(found.as_ref()) {
            return Ok(false);
        }
        self.registered.renewed_at = Timestamp::now();
        match self.write(found).await {
            // The next renewal reads it again.
            Err(LeaseError::Conflict(_)) => Ok(true),
            written => written.map(|()| true),
        }
    }

    fn is_own(&self, found: Option<&Lease>) -> bool {
        let found = found.and_then(Registered::read);
        found.is_none_or(|found| found.member == self.registered.member)
    }

    /// Deletes the Lease: the member leaves at once.
    pub(crate) async fn end(self) {
        let name = &self.registered.member.name;
        let ended = async {
            match self.leases.get(name).await? {
                Some(lease) if self.is_own(Some(&lease)) => self.leases.delete(&lease).await,
                _ => Ok(()),
            }
        };
        if let Err(error) = ended.await {
            tracing::warn!(lease = name, error = %chain(&error), "cannot delete the Lease: it ends by itself");
        }
    }

    fn failed(&self, error: LeaseError) -> RegistrationError {
        RegistrationError::Write {
            name: self.registered.member.name.clone(),
            source: Box::new(error),
        }
    }
}
