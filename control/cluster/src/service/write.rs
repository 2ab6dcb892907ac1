//! The writes of Services, with their addresses and node ports. What is taken is known from the Services themselves: there is no
//! second record that could differ from them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::allocator::{Allocator, Held};
use super::range::ServiceRanges;
use crate::{Client, ClientError, FieldError, Guard, Object};

/// Writes Services. Clones give addresses from one allocator. There must be one for a store: the control plane's client is fenced,
/// so that an earlier one cannot write beside it.
#[derive(Clone)]
pub struct Services {
    client: Client,
    ranges: Arc<ServiceRanges>,
    /// `None` before the first use.
    allocator: Arc<Mutex<Option<Allocator>>>,
}

/// Why a Service is not written.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// An address or a node port cannot be had.
    #[error("the addresses or node ports of the Service cannot be had")]
    Invalid(Vec<FieldError>),
    /// The store failed or refused the write.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Services {
    /// Services with cluster IPs of these ranges.
    pub fn new(client: Client, ranges: ServiceRanges) -> Self {
        Self {
            client,
            ranges: Arc::new(ranges),
            allocator: Arc::default(),
        }
    }

    /// The ranges of cluster IPs.
    pub fn ranges(&self) -> &ServiceRanges {
        &self.ranges
    }

    /// Stores a new Service.
    pub async fn create(&self, service: Service) -> Result<Service, ServiceError> {
        let own = self.clone();
        to_the_end(async move {
            let (service, new) = own.complete(service, None).await?;
            let written = own.client.create(&service).await;
            own.settle(written, new, &Held::default()).await
        })
        .await
    }

    /// Stores a Service in place of `old`, if that is still the newest.
    pub async fn replace(&self, service: Service, old: &Service) -> Result<Service, ServiceError> {
        let (own, old) = (self.clone(), old.clone());
        to_the_end(async move {
            let (service, new) = own.complete(service, Some(&old)).await?;
            let freed = Held::of(&old).without(&Held::of(&service));
            let written = own.client.update(service, &Guard::at(old.revision())).await;
            own.settle(written, new, &freed).await
        })
        .await
    }

    /// Deletes a Service if `guard` holds.
    pub async fn delete(&self, service: &Service, guard: &Guard) -> Result<(), ServiceError> {
        let (own, key, guard) = (self.clone(), service.key(), guard.clone());
        let held = Held::of(service);
        to_the_end(async move {
            own.client.delete::<Service>(&key, &guard).await?;
            if let Some(allocator) = own.allocator.lock().await.as_mut() {
                allocator.release(&held);
            }
            Ok(())
        })
        .await
    }

    /// The Service as it would be stored; nothing is taken for it.
    pub async fn preview(
        &self,
        mut service: Service,
        old: Option<&Service>,
    ) -> Result<Service, ServiceError> {
        let mut allocator = self.allocator().await?;
        let completed = allocator.complete(&mut service, old, &mut || fastrand::u32(..));
        let new = completed.map_err(ServiceError::Invalid)?;
        allocator.release(&new);
        Ok(service)
    }

    /// The Service with its addresses and node ports, and those that were taken for it.
    async fn complete(
        &self,
        mut service: Service,
        old: Option<&Service>,
    ) -> Result<(Service, Held), ServiceError> {
        let mut allocator = self.allocator().await?;
        let completed = allocator.complete(&mut service, old, &mut || fastrand::u32(..));
        let new = completed.map_err(ServiceError::Invalid)?;
        Ok((service, new))
    }

    /// Frees what a write has freed, or what it took in vain. What was taken for a write of unknown outcome stays taken until the
    /// next start.
    async fn settle(
        &self,
        written: Result<Service, ClientError>,
        new: Held,
        freed: &Held,
    ) -> Result<Service, ServiceError> {
        let is_refused = matches!(
            written,
            Err(ClientError::AlreadyExists { .. }
                | ClientError::NotFound { .. }
                | ClientError::Conflict { .. }
                | ClientError::Fenced { .. }
                | ClientError::Malformed { .. })
        );
        let mut allocator = self.allocator().await?;
        if is_refused {
            allocator.release(&new);
        } else if written.is_ok() {
            allocator.release(freed);
        }
        Ok(written?)
    }

    /// The allocator, which is read from the store at its first use.
    async fn allocator(&self) -> Result<MappedMutexGuard<'_, Allocator>, ClientError> {
        let mut allocator = self.allocator.lock().await;
        if allocator.is_none() {
            let mut read = Allocator::new(&self.ranges);
            let stored = self.client.list::<Service>(None).await?;
            stored.items.iter().for_each(|service| read.adopt(service));
            *allocator = Some(read);
        }
        let empty = || Allocator::new(&self.ranges);
        Ok(MutexGuard::map(allocator, |allocator| {
            allocator.get_or_insert_with(empty)
        }))
    }
}

/// Runs a write to its end, also when the client that asked for it goes away: what it takes and frees is to be known.
async fn to_the_end<T: Send + 'static>(
    write: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, ServiceError> {
    match tokio::spawn(write).await {
        Ok(written) => written,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends.
            Err(_cancelled) => Err(ClientError::Timeout {
                after: Duration::ZERO,
            }
            .into()),
        },
    }
}

#[cfg(test)]
mod tests;
