//! Recovery: reads the newest snapshot and the segments after it, checks that nothing is missing, and
//! starts the journal after them.

mod inventory;

use std::{io::Read, sync::Arc};

use crate::{
    Journal, Observer, OpenError,
    error::FileError,
    files::Files,
    frame::Frame,
    group::{CEILING_KIND, CEILING_STEP, Start, State},
    journal::CLOSED_KIND,
    scan::{Frames, Tail},
    segment::{FileType, HEADER_BYTES, Header, Identity, segment_name},
    snapshot::SnapshotReader,
    writer::{End, Listed, Settings, Writer},
};
use inventory::Inventory;

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

/// The function that takes the records; an error ends the recovery.
pub type Visitor<'a> =
    &'a mut dyn FnMut(Record<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

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

/// What the segments say, in the order in which they are read.
#[derive(Debug)]
struct Log {
    end: End,
    listed: Vec<Listed>,
    closed: Option<u64>,
    boot: Option<u64>,
    torn: Option<(String, u64)>,
    /// The bytes of the last segment: the next one takes their memory, which costs less than new
    /// memory.
    buffer: Vec<u8>,
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

    /// Reads all records in order, the snapshot's first. Its memory is one segment.
    pub fn replay(mut self, visit: Visitor<'_>) -> Result<Recovered, OpenError> {
        if let Some(mut snapshot) = self.inventory.take_snapshot() {
            replay_snapshot(&mut snapshot, visit)?;
        }
        let mut log = Log::new();
        for &sequence in self.inventory.segments() {
            let last = Some(&sequence) == self.inventory.segments().last();
            log.replay(self.files.as_ref(), &self.config, (sequence, last), visit)?;
        }
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
        visit(record).map_err(|source| OpenError::Record {
            file: file.clone(),
            offset,
            source,
        })?;
    }
}

impl Log {
    fn new() -> Self {
        Self {
            end: End {
                sequence: 0,
                position: 0,
                last_crc: 0,
                mark: 0,
                ceiling: 0,
            },
            listed: Vec::new(),
            closed: None,
            boot: None,
            torn: None,
            buffer: Vec::new(),
        }
    }

    fn replay(
        &mut self,
        files: &dyn Files,
        config: &Config,
        (sequence, last): (u64, bool),
        visit: Visitor<'_>,
    ) -> Result<(), OpenError> {
        let name = segment_name(sequence);
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        files
            .read(&name)
            .and_then(|mut input| input.read_to_end(&mut bytes))
            .map_err(FileError::of("read", &name))?;
        let header = Header::decode(&bytes, FileType::Segment, &name)?;
        self.check_header(&header, (sequence, &name))?;
        inventory::check_identity(header.identity, config.identity, &name)?;
        self.end.ceiling = self.end.ceiling.max(header.ceiling);
        // A later run, or a later record of the run that was closed.
        (self.boot, self.closed) = (Some(header.boot), None);
        let mut frames = Frames::new(
            &bytes[HEADER_BYTES..],
            config.identity.cluster,
            header.position,
        );
        let mut offset = HEADER_BYTES as u64;
        while let Some(frame) = frames.next() {
            self.end.last_crc = frame.crc;
            self.record(frame, visit)
                .map_err(|source| OpenError::Record {
                    file: name.clone(),
                    offset,
                    source,
                })?;
            offset = (HEADER_BYTES + frames.offset()) as u64;
        }
        self.end.sequence = sequence;
        self.end.position = header.position + frames.offset() as u64;
        self.listed.push(Listed {
            sequence,
            mark: header.mark,
            bytes: offset,
        });
        let tail = frames.tail();
        self.buffer = bytes;
        self.judge(tail, (&name, offset), last)
    }

    /// A segment continues the one before it; the first that is read continues one that is removed.
    fn check_header(
        &mut self,
        header: &Header,
        (sequence, name): (u64, &str),
    ) -> Result<(), OpenError> {
        let first = self.listed.is_empty();
        if first {
            self.end.last_crc = header.previous;
            self.end.position = header.position;
        }
        let continues = header.sequence == sequence
            && header.position == self.end.position
            && header.previous == self.end.last_crc;
        if continues {
            return Ok(());
        }
        Err(OpenError::NotContinued(name.to_owned()))
    }

    fn record(
        &mut self,
        Frame { kind, payload, .. }: Frame<'_>,
        visit: Visitor<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.closed = None;
        match kind {
            CEILING_KIND => self.end.ceiling = self.end.ceiling.max(number(payload)?),
            CLOSED_KIND => self.closed = Some(number(payload)?),
            _ => {
                return visit(Record {
                    in_snapshot: false,
                    kind,
                    payload,
                });
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        tail: Tail,
        (name, offset): (&str, u64),
        last: bool,
    ) -> Result<(), OpenError> {
        let detail = match tail {
            Tail::Clean => return Ok(()),
            Tail::Torn(_) if last => {
                self.torn = Some((name.to_owned(), offset));
                return Ok(());
            }
            Tail::Torn(_) => "the records end before the segment does",
            Tail::Damaged(_) => "a record does not match its checksum, and valid records follow",
        };
        Err(OpenError::Damaged {
            file: name.to_owned(),
            offset,
            detail,
        })
    }
}

fn number(payload: &[u8]) -> Result<u64, std::array::TryFromSliceError> {
    payload.try_into().map(u64::from_le_bytes)
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

    /// Starts the journal in a new segment, after `mark`. The file and the offset of a torn tail,
    /// which is cut off here, are in [`Recovered::torn_tail`]. Blocks for syncs.
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

    /// The name of the segment whose tail is torn, and the offset of the tail.
    pub fn torn_tail(&self) -> Option<(&str, u64)> {
        self.log
            .torn
            .as_ref()
            .map(|(name, at)| (name.as_str(), *at))
    }

    /// Cuts the torn tail and syncs all segments: a later sync of a new segment implies the old ones.
    fn settle_files(&self) -> Result<(), FileError> {
        let files = self.files.as_ref();
        self.inventory.remove_torn_segment(files)?;
        if let Some((name, length)) = &self.log.torn {
            files
                .truncate(name, *length)
                .map_err(FileError::of("truncate", name))?;
        }
        for segment in &self.log.listed {
            let name = segment_name(segment.sequence);
            files.sync(&name).map_err(FileError::of("sync", &name))?;
        }
        Ok(())
    }
}
