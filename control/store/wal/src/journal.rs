//! The journal: appends records in order, and reports when they are as durable as asked.

use std::{
    fmt,
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

use crate::{
    Durability, Failure, SnapshotWriter, Ticket,
    error::FileError,
    files::Files,
    frame::CONTROL_KINDS,
    group::{Batch, Entry, Group, State, Step},
    segment::{Identity, snapshot_mark},
    threads::{Signal, Threads},
    writer::Writer,
};

/// The kind of the record with which a run ends in order: the last mark, 8 bytes, little endian.
pub(crate) const CLOSED_KIND: u8 = CONTROL_KINDS + 1;

/// A function that is called after the frontier moved, without locks held, from any thread.
pub type Observer = Box<dyn Fn() + Send + Sync>;

/// The state that the journal and its threads share.
pub(crate) struct Core {
    pub(crate) group: Group<Mutex<State>>,
    pub(crate) flush: Signal,
    pub(crate) sync: Signal,
    writer: Mutex<Writer>,
    /// Locked by the thread that syncs: a later sync would report segments that an earlier one has
    /// not synced yet.
    syncing: Mutex<()>,
    files: Arc<dyn Files>,
    visible: AtomicU64,
    observer: Observer,
}

/// The sync that written records need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Sync,
    /// Of one record, which nothing else waits for.
    LoneSync,
}

impl Due {
    fn of(batch: &Batch, sealed: bool) -> Self {
        match (batch.sync, batch.alone) {
            (true, true) if !sealed => Self::LoneSync,
            (false, _) if !sealed => Self::Nothing,
            _ => Self::Sync,
        }
    }
}

/// Whether the current task may block its thread: the runtime moves its other tasks to another one.
fn may_block() -> bool {
    let runtime = Handle::try_current();
    runtime.is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("visible", &self.visible)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Writes the queued records, and has them synced if they need it; the caller leads.
    pub(crate) fn write(&self) {
        if self.write_queued() != Due::Nothing {
            self.sync.request();
        }
    }

    /// As [`Core::write`], from a task: it syncs a lone record itself, since to wake a thread, and
    /// to be woken by it, takes about as long as a sync of a fast disk.
    fn write_in_task(&self) {
        match self.write_queued() {
            Due::Nothing => {}
            Due::LoneSync if may_block() => task::block_in_place(|| self.sync_now()),
            Due::LoneSync | Due::Sync => self.sync.request(),
        }
    }

    /// Writes the queued records; the caller leads.
    fn write_queued(&self) -> Due {
        let mut writer = self.writer.lock();
        // A record or a segment may be incomplete: what is written behind it would be a gap.
        if self.group.failure().is_some() {
            return Due::Nothing;
        }
        let batch = self.group.take();
        let due = match writer.write(&batch) {
            Ok(sealed) => {
                drop(writer);
                let due = Due::of(&batch, sealed);
                self.group.wrote(batch);
                due
            }
            Err(error) => {
                self.group.fail(error);
                Due::Nothing
            }
        };
        self.publish();
        due
    }

    /// Syncs what is written.
    pub(crate) fn sync_now(&self) {
        let syncing = self.syncing.lock();
        let work = self.writer.lock().sync_work();
        let done = work.run(self.files.as_ref());
        drop(syncing);
        match done {
            Ok(()) => self.group.synced(work.end),
            Err(error) => self.group.fail(error),
        }
        if work.seals() {
            self.group.state_synced();
            self.flush.request();
        }
        self.publish();
    }

    /// Cuts what is reserved behind the last record, and syncs that.
    fn release(&self) -> Result<(), Failure> {
        let released = self.writer.lock().release();
        if let Err(error) = released {
            self.group.fail(error);
        }
        self.sync_now();
        self.group.failure().map_or(Ok(()), Err)
    }

    /// Publishes the frontier, and calls the observer if it moved.
    fn publish(&self) {
        let visible = self.group.visible();
        if self.visible.fetch_max(visible, Ordering::AcqRel) < visible {
            (self.observer)();
        }
    }
}

/// A journal that is open for appends. Dropping it leaves the directory as after a crash of the
/// process, unless [`Journal::close`] was called before.
#[derive(Debug)]
pub struct Journal {
    core: Arc<Core>,
    _threads: Threads,
    identity: Identity,
}

impl Journal {
    pub(crate) fn start(
        (files, identity): (Arc<dyn Files>, Identity),
        state: State,
        writer: Writer,
        observer: Observer,
    ) -> Result<Self, FileError> {
        let group = Group::new(Mutex::new(state));
        let core = Arc::new(Core {
            visible: AtomicU64::new(group.visible()),
            group,
            flush: Signal::default(),
            sync: Signal::default(),
            writer: Mutex::new(writer),
            syncing: Mutex::default(),
            files,
            observer,
        });
        let threads =
            Threads::start(&core).map_err(FileError::of("start the threads of", "the journal"))?;
        Ok(Self {
            core,
            _threads: threads,
            identity,
        })
    }

    /// The identity of the data.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The highest mark of which every record up to it is as durable as asked.
    pub fn visible(&self) -> u64 {
        self.core.visible.load(Ordering::Acquire)
    }

    /// The failure that ended acknowledgements, if there was one.
    pub fn failure(&self) -> Option<Failure> {
        self.core.group.failure()
    }

    /// Queues a record, which `fill` appends to a buffer of at most 4 GiB. Callers order their calls
    /// by marks with a lock of their own. `kind` lies between 1 and [`CONTROL_KINDS`]. In mode `none`
    /// nothing is written: the call gives the mark its place in the order.
    pub fn append(
        &self,
        (kind, mark): (u8, u64),
        durability: Durability,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Ticket {
        debug_assert!(
            (1..CONTROL_KINDS).contains(&kind),
            "kind {kind} is reserved"
        );
        let entry = Entry {
            kind,
            mark,
            durability,
        };
        let (ticket, unattended) = self.core.group.append(entry, fill);
        if unattended {
            self.core.flush.request();
        }
        ticket
    }

    /// Returns when the record is acknowledged: it and all before it are as durable as asked. At most
    /// one call for each ticket, after the caller's lock is released. Cancel safe: a cancelled call
    /// still has the record written.
    pub async fn committed(&self, ticket: Ticket) -> Result<(), Failure> {
        let mut commit = Commit {
            core: &self.core,
            ticket,
            leads: false,
            done: false,
        };
        loop {
            match poll_fn(|context| commit.poll(context)).await {
                Step::Committed => {
                    self.core.publish();
                    return Ok(());
                }
                Step::Failed(failure) => return Err(failure),
                Step::Lead => {
                    // The tasks that are ready to run append their records before this one writes.
                    task::yield_now().await;
                    commit.lead();
                }
            }
        }
    }

    /// Blocks until all records are written and synced.
    pub fn flush(&self) -> Result<(), Failure> {
        self.core.write();
        self.core.sync_now();
        self.failure().map_or(Ok(()), Err)
    }

    /// Blocks until all records are written and synced, and marks the end of the run. A record that is
    /// appended later takes that mark back.
    pub fn close(&self) -> Result<(), Failure> {
        // The last records are stated as synced beside the mark.
        self.flush()?;
        let last = self.core.group.last_mark();
        let entry = Entry {
            kind: CLOSED_KIND,
            mark: last,
            durability: Durability::Fsync,
        };
        self.core
            .group
            .append(entry, |out| out.extend_from_slice(&last.to_le_bytes()));
        self.flush()?;
        self.core.release()
    }

    /// Bytes of the segments that only have records with marks up to `mark`.
    pub fn removable_bytes(&self, mark: u64) -> u64 {
        let writer = self.core.writer.lock();
        writer.removable(mark).map(|segment| segment.bytes).sum()
    }

    /// Starts a snapshot of the state at a mark. The caller reads all that is not ordered by marks
    /// after this call: the records after it are replayed on top of the snapshot. Blocks for a sync: a
    /// snapshot never survives a power loss without the segment that continues it.
    pub fn snapshot(&self, mark: u64) -> Result<SnapshotWriter, FileError> {
        let first_needed = self.core.writer.lock().first_needed(mark);
        self.core.sync_now();
        if let Some(failure) = self.failure() {
            let source = io::Error::other(failure.reason());
            return Err(FileError::of("sync", "the journal")(source));
        }
        SnapshotWriter::create(
            Arc::clone(&self.core.files),
            self.identity,
            (mark, first_needed),
        )
    }

    /// Removes the segments and the snapshots that a complete snapshot makes superfluous.
    pub fn remove_before(&self, snapshot: &CompleteSnapshot) -> Result<(), FileError> {
        let files = self.core.files.as_ref();
        let names = files
            .list()
            .map_err(FileError::of("list", "the data directory"))?;
        let older = |name: &&String| snapshot_mark(name).is_some_and(|mark| mark < snapshot.mark);
        // The header of the current segment has the ceiling that a removed one may have.
        self.core.sync_now();
        if self.failure().is_some() {
            return Ok(());
        }
        for name in names.iter().filter(older) {
            files.remove(name).map_err(FileError::of("remove", name))?;
        }
        self.core.writer.lock().remove_before(snapshot.first_needed)
    }
}

/// A snapshot that is on the disk under its name.
#[derive(Debug)]
pub struct CompleteSnapshot {
    /// The mark of its state.
    pub mark: u64,
    /// Bytes of the file.
    pub bytes: u64,
    pub(crate) first_needed: u64,
}

/// One waiting task. If it is dropped while it leads, or while it may have been woken to lead, it
/// writes the queued records then.
struct Commit<'a> {
    core: &'a Core,
    ticket: Ticket,
    leads: bool,
    done: bool,
}

impl Commit<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Step> {
        let step = self.core.group.poll(self.ticket, context);
        match &step {
            Poll::Ready(Step::Lead) => self.leads = true,
            Poll::Ready(_) => self.done = true,
            Poll::Pending => {}
        }
        step
    }

    fn lead(&mut self) {
        self.leads = false;
        self.core.write_in_task();
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.core.group.abandon(self.ticket);
        if self.leads || self.core.group.lead() {
            self.core.write();
        }
    }
}
