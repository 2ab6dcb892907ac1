//! The places of a listener's open connections. Clients without a certificate have at most half of them, those of one source a part of
//! that, and so has a node or a user: neither idle ones nor one host or certificate, perhaps a stolen one, keep the others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Access;

/// The part of all places that clients without a certificate may take, and that those of one source may, or those with one certificate's name.
const OTHERS: usize = 2;
const OF_ONE: usize = 8;
/// Most places of one name: an agent has three connections, a client of the API one or two.
const OF_NAME_MAX: usize = 64;

/// The places of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
    of_one: usize,
    holders: Holders,
}

/// Whose places are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// Clients without a certificate.
    Source(IpAddr),
    /// A node or a user, by the name in its certificate.
    Name(String),
}

/// The places of each holder that has any, or waits for one.
type Holders = Arc<Mutex<BTreeMap<Holder, Weak<Semaphore>>>>;

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    /// None: an administrator, or a role of the control plane.
    _holder: Option<OfHolder>,
}

impl Places {
    /// This many places, at least one.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let part = |divisor: usize| (max / divisor).max(1);
        Self {
            all: Arc::new(Semaphore::new(max)),
            others: Arc::new(Semaphore::new(part(OTHERS))),
            of_one: part(OF_ONE),
            holders: Holders::default(),
        }
    }

    /// Waits for a place for a client of this source.
    pub(crate) async fn take(&self, access: &Access, source: IpAddr) -> Place {
        let (holder, of_one) = match access {
            Access::Trusted => return self.any().await,
            Access::Certificate(_) if access.administers(SystemTime::now()) => {
                return self.any().await;
            }
            Access::Certificate(client) => (
                Holder::Name(client.identity.to_string()),
                self.of_one.min(OF_NAME_MAX),
            ),
            Access::PlainText | Access::Anonymous => (Holder::Source(source), self.of_one),
        };
        let is_other = matches!(holder, Holder::Source(_));
        let holder = OfHolder::take(&self.holders, holder, of_one).await;
        let other = if is_other {
            acquire(&self.others).await
        } else {
            None
        };
        Place {
            _holder: Some(holder),
            _permits: [other, acquire(&self.all).await],
        }
    }

    /// Waits for a place.
    pub(crate) async fn any(&self) -> Place {
        Place {
            _holder: None,
            _permits: [None, acquire(&self.all).await],
        }
    }
}

/// None is impossible: no semaphore is closed.
async fn acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.ok()
}

/// One of the places of a holder.
#[derive(Debug)]
struct OfHolder {
    permit: Option<OwnedSemaphorePermit>,
    semaphore: Option<Arc<Semaphore>>,
    holder: Holder,
    holders: Holders,
}

impl OfHolder {
    async fn take(holders: &Holders, holder: Holder, max: usize) -> Self {
        let semaphore = {
            let mut known = holders.lock();
            let found = known.get(&holder).and_then(Weak::upgrade);
            found.unwrap_or_else(|| {
                let semaphore = Arc::new(Semaphore::new(max));
                known.insert(holder.clone(), Arc::downgrade(&semaphore));
                semaphore
            })
        };
        // Made before the wait: it may be cancelled.
        let mut place = Self {
            permit: None,
            semaphore: Some(Arc::clone(&semaphore)),
            holder,
            holders: Arc::clone(holders),
        };
        place.permit = acquire(&semaphore).await;
        place
    }
}

impl Drop for OfHolder {
    fn drop(&mut self) {
        // Both refer to the semaphore. Under the lock, so that the last one of several removes the entry.
        let mut holders = self.holders.lock();
        self.permit.take();
        self.semaphore.take();
        let is_last = |of: &Weak<Semaphore>| of.strong_count() == 0;
        if holders.get(&self.holder).is_some_and(is_last) {
            holders.remove(&self.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use dormouse_trust::{Client, Identity, Validity};
    use futures::FutureExt;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn other(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, number))
    }

    fn certificate(identity: Identity) -> Access {
        let validity = Validity::issued(SystemTime::now(), Duration::from_hours(1), None);
        Access::Certificate(Arc::new(Client { identity, validity }))
    }

    #[test]
    fn one_name_leaves_most_of_the_places_to_other_certificates() {
        let places = Places::new(16);
        let take = |access: &Access| places.take(access, ONE).now_or_never();
        let [a, b] = ["a", "b"].map(|name| certificate(Identity::node(name).unwrap()));
        let _taken = [take(&a).unwrap(), take(&a).unwrap()];
        assert!(take(&a).is_none());
        assert!(take(&b).is_some());
        let role = certificate(Identity::control("scheduler").unwrap());
        let taken: Vec<_> = (0..14).map(|_| take(&role).unwrap()).collect();
        assert!(take(&role).is_none());
        drop(taken);
        let many = Places::new(8 * OF_NAME_MAX + 8);
        let take = || many.take(&a, ONE).now_or_never();
        let taken: Vec<_> = (0..OF_NAME_MAX).map(|_| take().unwrap()).collect();
        assert!(take().is_none());
        drop(taken);
        assert!(many.holders.lock().is_empty());
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
        assert!(places.holders.lock().is_empty());
        assert!(take(Access::Anonymous, ONE).is_some());
    }
}
