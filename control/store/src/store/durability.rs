//! The store on a data directory: recovery at the start, and the commit of each write.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock, Weak};

use dormouse_wal::{
    Config, Failure, Identity, Observer, OpenError, Recovered, Recovery,
    files::{Directory, Files},
};

use super::{Limits, Shared, State, Store, random};
use crate::{
    Error,
    auth::{self, AuthError, Change},
    durable::{
        DataDir, Journal, Policy, Restored, Written, boot, kind, policy_text, put_auth, put_lost,
        put_members, put_run,
    },
    keyspace::{Keyspace, Revision},
    metrics::Disk,
    proto::etcdserverpb::{Member, ResponseHeader},
};

/// Set once the store exists: the journal is started before.
type Slot = Arc<OnceLock<Weak<Shared>>>;

impl Store {
    /// An empty store in memory at a revision, whose history up to it is compacted: watches and reads
    /// from before a restart are refused.
    pub fn starting_at(limits: Limits, revision: Revision) -> Self {
        let state = State::new(Keyspace::starting_at(revision, limits.quota_bytes));
        Self::of(Shared::new(limits, state))
    }

    /// The store of a data directory: recovers its state, or creates it. Blocks for reads and syncs.
    pub fn open(limits: Limits, data: &DataDir) -> Result<Self, OpenError> {
        let directory = Directory::open(&data.path)?;
        Self::open_files(limits, Arc::new(directory), data.policy.clone())
    }

    fn open_files(
        limits: Limits,
        files: Arc<dyn Files>,
        policy: Policy,
    ) -> Result<Self, OpenError> {
        let disk = Disk::default();
        let recovery = Recovery::open(disk.measure(files), config(&limits))?;
        let snapshot = recovery.snapshot_mark().map(u64::cast_signed);
        let mut restored = Restored::new(snapshot, limits.quota_bytes);
        let recovered = recovery.replay(&mut |records| restored.apply(records))?;
        restored.finish(recovered.previous_run(), recovered.mark_bound());
        let store = Self::start(limits, restored, (recovered, policy))?;
        store.shared.metrics.measure_disk(disk);
        Ok(store)
    }

    /// Starts a run with a state and the journal that continues it.
    pub(super) fn start(
        limits: Limits,
        mut restored: Restored,
        (recovered, policy): (Recovered, Policy),
    ) -> Result<Self, OpenError> {
        let slot = Slot::default();
        let mark = restored.keyspace.current().cast_unsigned();
        let log = recovered.start(mark, observer(Arc::clone(&slot)))?;
        let mixed = std::mem::take(&mut restored.mixed);
        let journal = Journal::new(log, policy, mixed);
        let store = Self::of(Shared::restored(limits, restored, journal));
        // The slot is empty: it was created above.
        let _ = slot.set(Arc::downgrade(&store.shared));
        store.begin_run()?;
        Ok(store)
    }

    /// Records the policy of this run and the losses of the ones before, synced: without them the
    /// next start would not know what a loss of later records may hide.
    fn begin_run(&self) -> Result<(), Failure> {
        let Some(journal) = &self.shared.journal else {
            return Ok(());
        };
        let revision = self.revision();
        journal.note((kind::RUN, revision), |out| {
            put_run(out, revision, &policy_text(journal.policy()));
        });
        for (prefix, floor) in self.shared.lost.floors() {
            journal.note((kind::LOST, revision), |out| {
                put_lost(out, floor, [prefix]);
            });
        }
        journal.flush()
    }

    /// The reason for which the journal failed, if it did. The store then refuses writes, and reads
    /// return what was acknowledged.
    pub fn journal_failure(&self) -> Option<String> {
        let failure = self.shared.journal.as_ref()?.failure()?;
        Some(failure.reason())
    }

    /// Ends the run of a store on a data directory in order. Blocks for a sync; without it the next
    /// start treats the end as a crash.
    pub fn close(&self) -> Result<(), Error> {
        match &self.shared.journal {
            Some(journal) => journal.close().or(Err(Error::JournalFailed)),
            None => Ok(()),
        }
    }

    /// Refuses writes once the journal failed: they could never be acknowledged.
    pub(super) fn check_journal(&self) -> Result<(), Error> {
        match &self.shared.journal {
            Some(journal) if journal.failure().is_some() => Err(self.refuse_write()),
            _ => Ok(()),
        }
    }

    /// The error of a write that is not acknowledged, counted.
    fn refuse_write(&self) -> Error {
        self.shared.metrics.writes_failed.inc();
        Error::JournalFailed
    }

    /// Waits until a write is as durable as its mode asks, and visible; returns the header of its
    /// response. A write without effect waits, too: its response may show what is not visible yet.
    pub(super) async fn answer(&self, written: Written) -> Result<ResponseHeader, Error> {
        self.settle(written).await?;
        Ok(self.header(written.revision))
    }

    /// Waits until a write is as durable as its mode asks, and visible.
    pub(crate) async fn settle(&self, written: Written) -> Result<(), Error> {
        if let (Some(journal), Some(ticket)) = (&self.shared.journal, written.ticket) {
            let committed = journal.committed(ticket).await;
            committed.map_err(|_failure| self.refuse_write())?;
            self.shared.frontier.advance(journal.visible());
        } else {
            self.shared.frontier.reached(written.revision).await;
        }
        Ok(())
    }

    /// Records a change without keys; the caller holds the lock of the state.
    pub(super) fn record(
        &self,
        (kind, state): (u8, &State),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Written {
        let revision = state.keyspace.current();
        let journal = self.shared.journal.as_ref();
        let ticket = journal.map(|journal| journal.change((kind, revision), fill));
        Written { revision, ticket }
    }

    /// Changes users and roles; returns when the change is as durable as the default mode asks.
    pub(crate) async fn change_auth(
        &self,
        operation: impl FnOnce(&auth::State) -> Result<Vec<Change>, AuthError>,
    ) -> Result<Result<(), AuthError>, Error> {
        self.check_journal()?;
        let mut ticket = None;
        let changed = self.shared.auth.change(operation, |state| {
            let journal = self.shared.journal.as_ref();
            let revision = self.revision();
            ticket = journal
                .map(|journal| journal.change((kind::AUTH, revision), |out| put_auth(out, state)));
        });
        let revision = self.revision();
        self.settle(Written { revision, ticket }).await?;
        Ok(changed)
    }

    /// The members that clients changed.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.shared.members.lock().clone()
    }

    /// Records the members that clients changed. The caller orders the changes by a lock of its own.
    pub(crate) fn record_members(&self, members: Vec<Member>) -> Result<Written, Error> {
        self.check_journal()?;
        let revision = self.revision();
        let journal = self.shared.journal.as_ref();
        let ticket = journal.map(|journal| {
            journal.change((kind::MEMBERS, revision), |out| put_members(out, &members))
        });
        *self.shared.members.lock() = members;
        Ok(Written { revision, ticket })
    }
}

/// The configuration of a journal; its identity counts for a new directory only.
pub(super) fn config(limits: &Limits) -> Config {
    Config {
        identity: Identity {
            cluster: random(),
            member: random(),
        },
        segment_bytes: limits.journal_segment_bytes,
        boot: boot(),
    }
}

/// Moves the visible revision and wakes the watchers when the journal's frontier moved.
fn observer(slot: Slot) -> Observer {
    Box::new(move || {
        let Some(shared) = slot.get().and_then(Weak::upgrade) else {
            return;
        };
        if let Some(journal) = &shared.journal {
            shared.frontier.advance(journal.visible());
        }
        Store { shared }.publish();
    })
}
