//! Group commit: records are queued in order, and one of the waiting tasks writes all that are
//! queued. No timer is involved: a task that finds no writer becomes the writer.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use tracing::error;

use crate::{
    Durability, Failure, Ticket,
    error::FileError,
    frame::{self, Position},
    frontier::{Frontier, Need},
};

/// Queued bytes above which a `buffered` record is acknowledged only after it is written; bounds the
/// memory if the disk is slower than the writers.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;

/// A larger buffer is freed after its bytes are written.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// Marks by which the ceiling rises. After a crash the marks continue above the ceiling.
pub(crate) const CEILING_STEP: u64 = 1 << 20;

/// The kind of a record of the ceiling: 8 bytes, little endian.
pub(crate) const CEILING_KIND: u8 = frame::CONTROL_KINDS;

/// The kind of a record of the position up to which the log was synced: 8 bytes, little endian.
pub(crate) const SYNCED_KIND: u8 = frame::CONTROL_KINDS + 2;

/// A lock around a value. Tests model-check the group commit with another one than production's.
pub(crate) trait Lock<T> {
    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.lock())
    }
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: u8,
    pub(crate) mark: u64,
    pub(crate) durability: Durability,
}

/// The step of a task that waits for a ticket.
#[derive(Debug)]
pub(crate) enum Step {
    /// The ticket is reached.
    Committed,
    /// The task must write the queued records.
    Lead,
    /// The journal failed.
    Failed(Failure),
}

/// Queued records, taken by a leader.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// The position after the last record.
    pub(crate) end: Position,
    /// The checksum of the last record of the log.
    pub(crate) last_crc: u32,
    /// The mark of the last record of the log.
    pub(crate) mark: u64,
    /// No acknowledged mark is above it.
    pub(crate) ceiling: u64,
    /// Whether a record waits for a sync.
    pub(crate) sync: bool,
    /// Whether one record is not acknowledged, and no more.
    pub(crate) alone: bool,
}

/// Queue, waiting tasks and frontier.
#[derive(Debug)]
pub(crate) struct State {
    cluster: u64,
    bytes: Vec<u8>,
    spare: Vec<u8>,
    end: Position,
    last_crc: u32,
    mark: u64,
    sync: bool,
    leading: bool,
    frontier: Frontier,
    /// The synced position that the log states.
    stated: Position,
    waiting: BTreeMap<Ticket, Waker>,
    failure: Option<Failure>,
}

/// Where the log starts: the end of the log before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) cluster: u64,
    pub(crate) position: Position,
    pub(crate) last_crc: u32,
    pub(crate) mark: u64,
    pub(crate) ceiling: u64,
}

impl State {
    pub(crate) fn new(start: Start) -> Self {
        Self {
            cluster: start.cluster,
            bytes: Vec::new(),
            spare: Vec::new(),
            end: start.position,
            last_crc: start.last_crc,
            mark: start.mark,
            sync: false,
            leading: false,
            frontier: Frontier::new(start.mark, start.position, start.ceiling),
            stated: 0,
            waiting: BTreeMap::new(),
            failure: None,
        }
    }

    fn take(&mut self) -> Batch {
        if !self.bytes.is_empty() {
            self.state_synced();
        }
        let spare = std::mem::take(&mut self.spare);
        Batch {
            bytes: std::mem::replace(&mut self.bytes, spare),
            end: self.end,
            last_crc: self.last_crc,
            mark: self.mark,
            ceiling: self.frontier.ceiling(),
            sync: std::mem::take(&mut self.sync),
            alone: self.frontier.pending_len() == 1,
        }
    }

    fn encode(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let (before, at) = (self.bytes.len(), (self.cluster, self.end));
        match frame::encode(&mut self.bytes, at, kind, fill) {
            Some(crc) => {
                self.last_crc = crc;
                self.end += (self.bytes.len() - before) as u64;
            }
            None => self.failure = Some(Failure::new(too_long())),
        }
    }

    /// Queues a record; nothing is queued after a failure.
    fn append(&mut self, entry: Entry, fill: impl FnOnce(&mut Vec<u8>)) -> Option<(Ticket, bool)> {
        if self.failure.is_some() {
            return None;
        }
        self.mark = self.mark.max(entry.mark);
        let was_empty = self.bytes.is_empty();
        let raised = self.raise_ceiling();
        if entry.durability > Durability::None {
            self.encode(entry.kind, fill);
        }
        if self.failure.is_some() {
            return None;
        }
        let need = self.need(entry.durability);
        self.sync |= matches!(need, Need::Synced(_));
        let unattended = raised || (was_empty && entry.durability == Durability::Buffered);
        Some((self.frontier.push(entry.mark, need), unattended))
    }

    /// Raises the ceiling long before the marks reach it, so that no record waits for it.
    fn raise_ceiling(&mut self) -> bool {
        if self.mark + CEILING_STEP / 2 <= self.frontier.ceiling() {
            return false;
        }
        let ceiling = self.mark + CEILING_STEP;
        self.encode(CEILING_KIND, |out| {
            out.extend_from_slice(&ceiling.to_le_bytes());
        });
        self.sync = true;
        self.frontier.raise(self.end, ceiling);
        true
    }

    /// Records how far the log is synced: at the next start, bad bytes before that are damage, and
    /// those after it may be the work of a power loss.
    fn state_synced(&mut self) {
        let synced = self.frontier.synced_position();
        if synced > self.stated && self.failure.is_none() {
            self.stated = synced;
            self.encode(SYNCED_KIND, |out| {
                out.extend_from_slice(&synced.to_le_bytes());
            });
        }
    }

    fn need(&self, durability: Durability) -> Need {
        match durability {
            Durability::None => Need::Nothing,
            Durability::Buffered if self.bytes.len() <= UNWRITTEN_BYTES_MAX => Need::Nothing,
            Durability::Buffered | Durability::Os => Need::Written(self.end),
            Durability::Fsync => Need::Synced(self.end),
        }
    }

    /// The tasks to wake: those whose ticket is reached, and one that leads if records are queued.
    fn wakers(&mut self) -> Vec<Waker> {
        if self.failure.is_some() {
            return std::mem::take(&mut self.waiting).into_values().collect();
        }
        let next = Ticket(self.frontier.reached().0 + 1);
        let rest = self.waiting.split_off(&next);
        let mut wake: Vec<Waker> = std::mem::replace(&mut self.waiting, rest)
            .into_values()
            .collect();
        if !self.leading && !self.bytes.is_empty() {
            wake.extend(self.waiting.pop_first().map(|(_, waker)| waker));
        }
        wake
    }
}

fn too_long() -> FileError {
    FileError {
        operation: "encode a record above 4 GiB for",
        file: "the journal".to_owned(),
        source: io::ErrorKind::FileTooLarge.into(),
    }
}

/// The group commit.
#[derive(Debug)]
pub(crate) struct Group<L> {
    state: L,
}

impl<L: Lock<State>> Group<L> {
    pub(crate) fn new(state: L) -> Self {
        Self { state }
    }

    /// The mark of the last acknowledged record.
    pub(crate) fn visible(&self) -> u64 {
        self.state.with(|state| state.frontier.visible())
    }

    /// The mark of the last record.
    pub(crate) fn last_mark(&self) -> u64 {
        self.state.with(|state| state.mark)
    }

    /// The failure that ended acknowledgements.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.state.with(|state| state.failure.clone())
    }

    /// Queues a record; the caller holds the lock by which it orders its marks. Returns the ticket,
    /// and whether records are queued that no task waits for. A record in mode `none` is not written,
    /// it only takes its place in the order.
    pub(crate) fn append(&self, entry: Entry, fill: impl FnOnce(&mut Vec<u8>)) -> (Ticket, bool) {
        let appended = self.state.with(|state| state.append(entry, fill));
        appended.unwrap_or_else(|| {
            // The failure may be this record's: the tasks that wait must learn of it.
            self.change(|_| {});
            (Ticket::NEVER, false)
        })
    }

    /// Polls a ticket; at most one task waits for each.
    pub(crate) fn poll(&self, ticket: Ticket, context: &Context<'_>) -> Poll<Step> {
        self.state.with(|state| {
            if state.frontier.is_reached(ticket) {
                return Poll::Ready(Step::Committed);
            }
            if let Some(failure) = &state.failure {
                return Poll::Ready(Step::Failed(failure.clone()));
            }
            if !state.leading && !state.bytes.is_empty() {
                state.leading = true;
                return Poll::Ready(Step::Lead);
            }
            state.waiting.insert(ticket, context.waker().clone());
            Poll::Pending
        })
    }

    /// The task no longer waits for the ticket. The caller leads next if it can: the task may be the
    /// one that was woken to lead.
    pub(crate) fn abandon(&self, ticket: Ticket) {
        self.state.with(|state| state.waiting.remove(&ticket));
    }

    /// Records now how far the log is synced, although no task writes.
    pub(crate) fn state_synced(&self) {
        self.state.with(State::state_synced);
    }

    /// Whether no record is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.with(|state| state.bytes.is_empty())
    }

    /// Makes the calling thread the leader, if records are queued and there is none.
    pub(crate) fn lead(&self) -> bool {
        self.state.with(|state| {
            let lead = !state.leading && !state.bytes.is_empty() && state.failure.is_none();
            state.leading |= lead;
            lead
        })
    }

    /// The queued records, for the leader to write.
    pub(crate) fn take(&self) -> Batch {
        self.state.with(State::take)
    }

    /// The leader wrote a batch, and leads no more.
    pub(crate) fn wrote(&self, mut batch: Batch) {
        self.change(|state| {
            state.leading = false;
            if state.failure.is_none() {
                state.frontier.wrote(batch.end);
            }
            if batch.bytes.capacity() <= SPARE_BYTES_MAX {
                batch.bytes.clear();
                state.spare = batch.bytes;
            }
        });
    }

    /// The log is synced up to the position.
    pub(crate) fn synced(&self, position: Position) {
        self.change(|state| {
            if state.failure.is_none() {
                state.frontier.synced(position);
            }
        });
    }

    /// A write or a sync failed: the first failure ends all acknowledgements.
    pub(crate) fn fail(&self, error: FileError) {
        let failure = Failure::new(error);
        if self.failure().is_none() {
            error!(
                reason = failure.reason(),
                "the journal failed: writes are refused until the cause is removed and the server restarted"
            );
        }
        self.change(|state| {
            state.failure.get_or_insert(failure);
            state.bytes = Vec::new();
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wake = self.state.with(|state| {
            change(state);
            state.wakers()
        });
        wake.into_iter().for_each(Waker::wake);
    }
}
