//! Lease requests of the store, and the task that revokes expired leases.

use super::{State, Store, random};
use crate::{
    Error,
    auth::Caller,
    durable::{Cause, Written, kind, put_number},
    keyspace::Revision,
    lease::{Expired, LeaseId, LeaseList, Leases, TimeToLive, Uptime},
    quota,
};

impl Store {
    fn now(&self) -> Uptime {
        self.shared.started.elapsed()
    }

    /// Grants a lease (ID 0: the store chooses one); returns its ID and its TTL in seconds.
    pub async fn lease_grant(
        &self,
        id: LeaseId,
        ttl_s: i64,
    ) -> Result<(LeaseId, i64, Revision), Error> {
        self.admit(quota::LEASE_BYTES)?;
        let (id, ttl_s, written) = self.grant(id, ttl_s)?;
        self.settle(written).await?;
        Ok((id, ttl_s, self.revision()))
    }

    fn grant(&self, id: LeaseId, ttl_s: i64) -> Result<(LeaseId, i64, Written), Error> {
        self.check_journal()?;
        let now = self.now();
        let mut state = self.shared.state.write();
        state.alarms.check_growth()?;
        let id = if id == 0 {
            unused_lease(&state.leases)
        } else {
            id
        };
        let ttl_s = state.leases.grant(id, ttl_s, now)?;
        self.update_gauges(&state);
        self.shared.leases_changed.notify_one();
        self.shared.metrics.leases_granted.inc();
        let written = self.record((kind::GRANT, &state), |out| {
            put_number(out, id);
            put_number(out, ttl_s);
        });
        Ok((id, ttl_s, written))
    }

    /// Revokes a lease and deletes its keys in one revision; returns that revision.
    pub async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, Error> {
        self.lease_revoke_as(None, id).await
    }

    /// Revokes a lease for a client, as [`Store::put_as`] puts a key.
    pub(crate) async fn lease_revoke_as(
        &self,
        caller: Option<&Caller>,
        id: LeaseId,
    ) -> Result<Revision, Error> {
        let ((), written) = self.write(|state| {
            state.alarms.check_write()?;
            let _unchanged = self.permit(caller, state, |check| check.lease_revoke(id))?;
            revoke(state, id)
        })?;
        self.shared.metrics.leases_revoked.inc();
        self.settle(written).await?;
        Ok(written.revision)
    }

    /// Resets the expiry of a lease; returns its TTL in seconds, 0 if there is no such lease.
    pub fn lease_renew(&self, id: LeaseId) -> (i64, Revision) {
        let now = self.now();
        let mut state = self.shared.state.write();
        let renewed = state.leases.renew(id, now);
        if renewed.is_ok() {
            self.shared.metrics.leases_renewed.inc();
        }
        (renewed.unwrap_or(0), self.revision())
    }

    /// The TTL and the attached keys of a lease, if it exists.
    pub fn lease_time_to_live(&self, id: LeaseId) -> (Option<TimeToLive>, Revision) {
        let now = self.now();
        let state = self.shared.state.read();
        (state.leases.time_to_live(id, now).ok(), self.revision())
    }

    /// The IDs of all leases, ordered by expiry. Cancel safe.
    pub async fn leases(&self) -> (Vec<LeaseId>, Revision) {
        let mut list = LeaseList::default();
        while !list.slice(&self.shared.state.read().leases) {
            // Other tasks run between two slices.
            tokio::task::yield_now().await;
        }
        (list.by_expiry(), self.revision())
    }

    /// A list of all leases. Blocks.
    pub(super) fn list_leases(&self) -> LeaseList {
        let mut list = LeaseList::default();
        while !list.slice(&self.shared.state.read().leases) {}
        list
    }

    /// Revokes leases when they expire; never returns. Cancel safe.
    pub(crate) async fn expire_leases(&self) {
        loop {
            let changed = self.shared.leases_changed.notified();
            match self.next_expiry() {
                None => changed.await,
                Some(expiry) => {
                    let due = tokio::time::sleep_until(self.shared.started + expiry);
                    tokio::select! {
                        () = due => self.expire_due().await,
                        () = changed => {}
                    }
                }
            }
        }
    }

    /// The next expiry of a lease; none while the alarm CORRUPT refuses writes.
    fn next_expiry(&self) -> Option<Uptime> {
        let state = self.shared.state.read();
        let frozen = state.alarms.is_corrupt();
        state.leases.next_expiry().filter(|_| !frozen)
    }

    async fn expire_due(&self) {
        let now = self.now();
        // The lock is taken for each lease, and the thread is released, so that requests run between
        // two revocations.
        while let Ok((expired, written)) = self.expire_next(now) {
            if self.settle(written).await.is_err() || expired == Expired::Nothing {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn expire_next(&self, now: Uptime) -> Result<(Expired, Written), Error> {
        self.write(|state| {
            let expired = state.leases.expired(now);
            match expired {
                Expired::Lease(id) => {
                    revoke(state, id)?;
                    self.shared.metrics.leases_revoked.inc();
                    self.shared.metrics.leases_expired.inc();
                    Ok(expired)
                }
                Expired::Unknown | Expired::Nothing => Ok(expired),
            }
        })
    }
}

fn revoke(state: &mut State, id: LeaseId) -> Result<(), Error> {
    let keys = state.leases.revoke(id)?;
    state.cause = Cause::Revocation(id);
    let mut write = state.keyspace.write();
    write.delete_keys(&keys);
    write.commit();
    Ok(())
}

fn unused_lease(leases: &Leases) -> LeaseId {
    loop {
        let id = LeaseId::try_from(random() >> 1).unwrap_or(LeaseId::MAX);
        if id != 0 && !leases.contains(id) {
            return id;
        }
    }
}
