//! The places of a listener's open connections. Clients without a certificate have at most half of them, and those of one source a part of
//! that: neither idle ones nor one host keep the others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Access;

/// The part of all places that clients without a certificate may take, and that those of one source may.
const OTHERS: usize = 2;
const OF_SOURCE: usize = 8;

/// The places of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
    of_source: usize,
    sources: BySource,
}

/// The places of each source that has any, or waits for one.
type BySource = Arc<Mutex<BTreeMap<IpAddr, Weak<Semaphore>>>>;

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    /// Of a client without a certificate.
    _source: Option<OfSource>,
}

impl Places {
    /// This many places, at least one.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let part = |divisor: usize| (max / divisor).max(1);
        Self {
            all: Arc::new(Semaphore::new(max)),
            others: Arc::new(Semaphore::new(part(OTHERS))),
            of_source: part(OF_SOURCE),
            sources: BySource::default(),
        }
    }

    /// Waits for a place for a client of this source.
    pub(crate) async fn take(&self, access: &Access, source: IpAddr) -> Place {
        if access.is_known() {
            return self.any().await;
        }
        let source = OfSource::take(self, source).await;
        let other = acquire(&self.others).await;
        Place {
            _source: Some(source),
            _permits: [other, acquire(&self.all).await],
        }
    }

    /// Waits for a place.
    pub(crate) async fn any(&self) -> Place {
        Place {
            _source: None,
            _permits: [None, acquire(&self.all).await],
        }
    }
}

/// None is impossible: no semaphore is closed.
async fn acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.ok()
}

/// One of the places of a source.
#[derive(Debug)]
struct OfSource {
    permit: Option<OwnedSemaphorePermit>,
    semaphore: Arc<Semaphore>,
    source: IpAddr,
    sources: BySource,
}

impl OfSource {
    async fn take(places: &Places, source: IpAddr) -> Self {
        let semaphore = {
            let mut sources = places.sources.lock();
            let known = sources.get(&source).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let semaphore = Arc::new(Semaphore::new(places.of_source));
                sources.insert(source, Arc::downgrade(&semaphore));
                semaphore
            })
        };
        // Made before the wait: it may be cancelled.
        let mut place = Self {
            permit: None,
            semaphore,
            source,
            sources: Arc::clone(&places.sources),
        };
        place.permit = acquire(&place.semaphore).await;
        place
    }
}

impl Drop for OfSource {
    fn drop(&mut self) {
        // It has a reference to the semaphore, too.
        self.permit.take();
        let mut sources = self.sources.lock();
        if Arc::strong_count(&self.semaphore) == 1 {
            sources.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn other(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, number))
    }

    #[test]
    fn clients_without_a_certificate_leave_half_of_the_places_and_those_of_one_source_most() {
        let places = Places::new(16);
        let take = |access: Access, source| places.take(&access, source).now_or_never();
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.push(take(Access::Anonymous, ONE).unwrap());
        }
        assert!(take(Access::Anonymous, ONE).is_none());
        for number in 0..6 {
            taken.push(take(Access::PlainText, other(number)).unwrap());
        }
        assert!(take(Access::Anonymous, other(7)).is_none());
        for _ in 0..8 {
            taken.push(take(Access::Trusted, ONE).unwrap());
        }
        assert!(take(Access::Trusted, ONE).is_none());
        drop(taken);
        assert!(places.sources.lock().is_empty());
        assert!(take(Access::Anonymous, ONE).is_some());
    }
}
