//! The store's leases: requests, and the clock that ends them.

use super::{State, Store, random};
use crate::{
    Error,
    keyspace::{Event, KeyRange, Revision},
    lease::{LeaseId, Leases, Remaining, Since},
};

impl Store {
    fn now(&self) -> Since {
        self.shared.started.elapsed()
    }

    /// Makes a lease (number 0: the store chooses) and returns its number and seconds.
    pub fn lease_grant(&self, id: LeaseId, ttl_s: i64) -> Result<(LeaseId, i64, Revision), Error> {
        let now = self.now();
        let mut state = self.shared.state.write();
        self.check_quota(&state)?;
        let id = if id == 0 {
            unused_lease(&state.leases)
        } else {
            id
        };
        let ttl_s = state.leases.grant(id, ttl_s, now)?;
        self.shared.leases_changed.notify_one();
        Ok((id, ttl_s, state.keyspace.current()))
    }

    /// Ends a lease; its keys go in one revision, which is returned.
    pub fn lease_revoke(&self, id: LeaseId) -> Result<Revision, Error> {
        self.write(|state| Ok(((), revoke(state, id)?)))
            .map(|((), header)| header.revision)
    }

    /// Starts a lease's time anew; returns its seconds, 0 if there is none.
    pub fn lease_renew(&self, id: LeaseId) -> (i64, Revision) {
        let now = self.now();
        let mut state = self.shared.state.write();
        let ttl_s = state.leases.renew(id, now).unwrap_or(0);
        (ttl_s, state.keyspace.current())
    }

    /// What is left of a lease, if it exists.
    pub fn lease_remaining(&self, id: LeaseId) -> (Option<Remaining>, Revision) {
        let now = self.now();
        let state = self.shared.state.read();
        (
            state.leases.remaining(id, now).ok(),
            state.keyspace.current(),
        )
    }

    /// All leases, the one that ends first in front.
    pub fn leases(&self) -> (Vec<LeaseId>, Revision) {
        let state = self.shared.state.read();
        (state.leases.by_expiry().collect(), state.keyspace.current())
    }

    /// Ends leases as their time comes, for ever. Dropping it loses nothing.
    pub(crate) async fn expire_leases(&self) {
        loop {
            let next = self.shared.state.read().leases.next_expiry();
            let changed = self.shared.leases_changed.notified();
            match next {
                None => changed.await,
                Some(expiry) => {
                    let due = tokio::time::sleep_until(self.shared.started + expiry);
                    tokio::select! {
                        () = due => self.expire_due(),
                        () = changed => {}
                    }
                }
            }
        }
    }

    fn expire_due(&self) {
        let now = self.now();
        loop {
            // One lock for each lease, so that a crowd of them does not hold up requests.
            let revoked = self.write(|state| match state.leases.expired(now) {
                Some(id) => Ok((true, revoke(state, id)?)),
                None => Ok((false, Vec::new())),
            });
            if !matches!(revoked, Ok((true, _))) {
                return;
            }
        }
    }
}

fn revoke(state: &mut State, id: LeaseId) -> Result<Vec<Event>, Error> {
    let keys = state.leases.revoke(id)?;
    let mut write = state.keyspace.write();
    for key in keys {
        write.delete(&KeyRange::One(key));
    }
    Ok(write.finish())
}

fn unused_lease(leases: &Leases) -> LeaseId {
    loop {
        let id = LeaseId::try_from(random() >> 1).unwrap_or(LeaseId::MAX);
        if id != 0 && !leases.contains(id) {
            return id;
        }
    }
}
