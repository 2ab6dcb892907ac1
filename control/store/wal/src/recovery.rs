//! Recovery: reads the newest snapshot and the segments after it, checks that nothing is missing, and
//! starts the journal after them.

mod ahead;
mod batch;
mod inventory;
mod judge;
mod log;

use std::sync::Arc;

use crate::{
    Journal, Observer, OpenError,
    error::FileError,
    files::Files,
    frame::Frame,
    group::{CEILING_STEP, Start, State},
    segment::{Identity, segment_name},
    snapshot::SnapshotReader,
    writer::{End, Settings, Writer},
};
use batch::Batch;
use inventory::Inventory;
use log::Log;

/// The settings of a journal.
#[derive(Clone, Debug)]
pub struct Config {
    /// The identity of the data if the directory is empty.
    pub identity: Identity,
    /// Bytes at which a segment is full; a record is never split.
    pub segment_bytes: u64,
    /// A number that differs between boots of the machine; 0 if it is not known.
    pub boot: u64,
}

/// A record of the caller.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Whether the record is part of the snapshot; these come first.
    pub in_snapshot: bool,
    /// The kind.
    pub kind: u8,
    /// The payload.
    pub payload: &'a [u8],
}

/// The end of the run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousRun {
    /// There was none: the directory is new.
    None,
    /// [`Journal::close`] ended it; nothing that was acknowledged is lost.
    Closed,
    /// It ended without a close, in this boot of the machine: everything that was written is there.
    SameBoot,
    /// It ended without a close in another boot: only what was synced is certain.
    OtherBoot,
}

/// A record that the caller cannot take.
#[derive(Debug)]
pub struct Refused {
    /// Its index among the records that were passed with it.
    pub index: usize,
    /// The reason.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The function that takes the records, some at a time; an error ends the recovery.
pub type Visitor<'a> = &'a mut dyn FnMut(&[Record<'_>]) -> Result<(), Refused>;

/// A directory whose files are listed and not read.
#[derive(Debug)]
pub struct Recovery {
    files: Arc<dyn Files>,
    config: Config,
    inventory: Inventory,
}

/// A directory that is read; nothing in it is changed yet.
#[derive(Debug)]
pub struct Recovered {
    files: Arc<dyn Files>,
    config: Config,
    inventory: Inventory,
    log: Log,
}

impl Recovery {
    /// Lists the files of a directory.
    pub fn open(files: Arc<dyn Files>, config: Config) -> Result<Self, OpenError> {
        let mut inventory = Inventory::read(files.as_ref())?;
        let mut config = config;
        config.identity = inventory
            .identity(files.as_ref())?
            .unwrap_or(config.identity);
        inventory.check()?;
        Ok(Self {
            files,
            config,
            inventory,
        })
    }

    /// The identity of the data.
    pub fn identity(&self) -> Identity {
        self.config.identity
    }

    /// The mark of the snapshot, if there is one.
    pub fn snapshot_mark(&self) -> Option<u64> {
        self.inventory.snapshot().map(|header| header.mark)
    }

    /// Reads all records in order, the snapshot's first. Its memory is two segments: a thread reads one
    /// and checks it while the records of the other are visited.
    pub fn replay(mut self, visit: Visitor<'_>) -> Result<Recovered, OpenError> {
        if let Some(mut snapshot) = self.inventory.take_snapshot() {
            replay_snapshot(&mut snapshot, visit)?;
        }
        let mut log = Log::new();
        log.replay(self.files.as_ref(), (&self.config, &self.inventory), visit)?;
        Ok(Recovered {
            files: self.files,
            config: self.config,
            inventory: self.inventory,
            log,
        })
    }
}

fn replay_snapshot(snapshot: &mut SnapshotReader, visit: Visitor<'_>) -> Result<(), OpenError> {
    let file = snapshot.name().to_owned();
    loop {
        let offset = snapshot.offset();
        let Some(Frame { kind, payload, .. }) = snapshot.next()? else {
            return Ok(());
        };
        let record = Record {
            in_snapshot: true,
            kind,
            payload,
        };
        let mut batch = Batch::of(&file);
        batch.add((record, offset), visit)?;
        batch.visit(visit)?;
    }
}

impl Recovered {
    /// The end of the run before.
    pub fn previous_run(&self) -> PreviousRun {
        let Some(boot) = self.log.boot else {
            return PreviousRun::None;
        };
        if self.log.closed.is_some() {
            PreviousRun::Closed
        } else if boot != 0 && boot == self.config.boot {
            PreviousRun::SameBoot
        } else {
            PreviousRun::OtherBoot
        }
    }

    /// A mark that no acknowledged record of the runs before exceeds, written or not.
    pub fn mark_bound(&self) -> u64 {
        self.log.closed.unwrap_or(self.log.end.ceiling)
    }

    /// Starts the journal in a new segment, after `mark`. Here a torn end of the log is cut. Blocks for
    /// syncs.
    pub fn start(self, mark: u64, observer: Observer) -> Result<Journal, OpenError> {
        self.settle_files()?;
        let Self {
            files,
            config,
            inventory,
            log,
        } = self;
        let end = End {
            sequence: log.end.sequence + 1,
            mark,
            ceiling: mark + CEILING_STEP,
            ..log.end
        };
        let state = State::new(Start {
            cluster: config.identity.cluster,
            position: end.position,
            last_crc: end.last_crc,
            mark,
            ceiling: end.ceiling,
        });
        let settings = Settings {
            identity: config.identity,
            boot: config.boot,
            segment_bytes: config.segment_bytes,
        };
        let mut writer = Writer::new(Arc::clone(&files), settings, end, log.listed)?;
        writer.sync_work().run(files.as_ref())?;
        inventory.remove_obsolete(files.as_ref())?;
        let journal = Journal::start((files, config.identity), state, writer, observer)?;
        Ok(journal)
    }

    /// Cuts the torn tail and syncs all segments: a later sync of a new segment implies the old ones.
    fn settle_files(&self) -> Result<(), FileError> {
        let files = self.files.as_ref();
        self.inventory.remove_torn_segment(files)?;
        if let Some(torn) = &self.log.torn {
            torn.cut(files)?;
        }
        for segment in &self.log.listed {
            let name = segment_name(segment.sequence);
            files.sync(&name).map_err(FileError::of("sync", &name))?;
        }
        Ok(())
    }
}
