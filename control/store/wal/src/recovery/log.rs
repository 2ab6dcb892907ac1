//! The log of a directory: its segments in order, up to the first bytes that are no record.

use std::{array::TryFromSliceError, thread};

use super::{
    Config, Record, Visitor,
    ahead::{Ahead, Segment},
    batch::Batch,
    inventory::{self, Inventory},
    judge::{Damage, Torn, proven, stated, synced_position},
};
use crate::{
    OpenError,
    error::FileError,
    files::Files,
    frame::{Frame, Position},
    group::CEILING_KIND,
    journal::CLOSED_KIND,
    scan::{Frames, Tail},
    segment::{FileType, HEADER_BYTES, Header, Place},
    writer::{End, Listed},
};

/// The content of the segments that are read.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) end: End,
    pub(super) listed: Vec<Listed>,
    pub(super) closed: Option<u64>,
    /// The boot in which the last segment was created.
    pub(super) boot: Option<u64>,
    pub(super) torn: Option<Torn>,
    place: Place,
    /// The highest position that is stated as synced.
    synced: Position,
}

impl Log {
    pub(super) fn new() -> Self {
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
            place: Place::Unstated,
            synced: 0,
        }
    }

    /// Reads the segments. Bytes that are no record end the log if they are the work of a write or of
    /// a sync that did not complete; otherwise they are refused.
    pub(super) fn replay(
        &mut self,
        files: &dyn Files,
        (config, inventory): (&Config, &Inventory),
        visit: Visitor<'_>,
    ) -> Result<(), OpenError> {
        let read = self.read(files, (config, inventory), visit)?;
        if let Some(damage) = read {
            return self.judge(files, config, damage);
        }
        let Some(error) = inventory.missing() else {
            return Ok(());
        };
        let later = inventory.stranded().to_vec();
        let damage = self.lacks(error);
        self.judge(files, config, Damage { later, ..damage })
    }

    /// Reads the segments; returns the damage at which reading ended early.
    fn read(
        &mut self,
        files: &dyn Files,
        (config, inventory): (&Config, &Inventory),
        visit: Visitor<'_>,
    ) -> Result<Option<Damage>, OpenError> {
        let segments = inventory.segments();
        thread::scope(|scope| {
            let ahead = Ahead::start(scope, files, (config.identity.cluster, segments));
            let ahead =
                ahead.map_err(FileError::of("start the thread that reads", "the journal"))?;
            for index in 0.. {
                let Some(segment) = ahead.next() else { break };
                let segment = segment?;
                if let Some(damage) = self.segment(&segment, config, visit)? {
                    let kept = index + usize::from(damage.cut.is_some());
                    let later = [&segments[kept..], inventory.stranded()].concat();
                    return Ok(Some(Damage { later, ..damage }));
                }
                ahead.reuse(segment);
            }
            Ok(None)
        })
    }

    /// Damage at the end of what is read: the next segment is missing or not usable.
    fn lacks(&self, error: OpenError) -> Damage {
        Damage {
            position: self.end.position,
            cut: None,
            tail: Tail::Clean,
            later: Vec::new(),
            error,
        }
    }

    /// Reads a segment; returns the damage at which reading ended early.
    fn segment(
        &mut self,
        segment: &Segment,
        config: &Config,
        visit: Visitor<'_>,
    ) -> Result<Option<Damage>, OpenError> {
        let Segment {
            sequence,
            name,
            bytes,
            checked,
        } = segment;
        let header = match Header::decode(bytes, FileType::Segment, name) {
            Ok(header) => header,
            Err(error @ OpenError::Damaged { .. }) => return Ok(Some(self.lacks(error))),
            Err(error) => return Err(error),
        };
        inventory::check_identity(header.identity, config.identity, name)?;
        if let Some(error) = self.gap(&header, (*sequence, name))? {
            return Ok(Some(self.lacks(error)));
        }
        self.enter(&header);
        let mut frames = Frames::new(
            &bytes[HEADER_BYTES..],
            config.identity.cluster,
            header.position,
        )
        .checked_to(*checked);
        let mut offset = HEADER_BYTES as u64;
        let mut batch = Batch::of(name);
        while let Some(frame) = frames.next() {
            self.end.last_crc = frame.crc;
            let record = self.control(frame).map_err(|source| OpenError::Record {
                file: name.clone(),
                offset,
                source: source.into(),
            })?;
            if let Some(record) = record {
                batch.add((record, offset), visit)?;
            }
            offset = (HEADER_BYTES + frames.offset()) as u64;
        }
        batch.visit(visit)?;
        self.end.sequence = *sequence;
        self.end.position = header.position + frames.offset() as u64;
        self.listed.push(Listed {
            sequence: *sequence,
            mark: header.mark,
            bytes: offset,
        });
        Ok(self.tail(frames, (name, offset)))
    }

    /// Takes what the header states.
    fn enter(&mut self, header: &Header) {
        self.end.ceiling = self.end.ceiling.max(header.ceiling);
        // A later run, or a later record of the run that was closed.
        (self.boot, self.closed) = (Some(header.boot), None);
        self.place = header.place;
        if header.place == Place::First {
            self.synced = header.position;
        }
    }

    /// A segment continues the one before it; the first that is read continues one that is removed.
    /// Returns the error if the end of the segment before is missing.
    fn gap(
        &mut self,
        header: &Header,
        (sequence, name): (u64, &str),
    ) -> Result<Option<OpenError>, OpenError> {
        let first = self.listed.is_empty();
        if first {
            self.end.last_crc = header.previous;
            self.end.position = header.position;
        }
        let error = OpenError::NotContinued(name.to_owned());
        if header.sequence != sequence || header.position < self.end.position {
            return Err(error);
        }
        if header.position > self.end.position {
            return Ok(Some(error));
        }
        if header.previous != self.end.last_crc {
            return Err(error);
        }
        Ok(None)
    }

    /// Takes what a record of the journal itself states; returns a record of the caller.
    fn control<'a>(&mut self, frame: Frame<'a>) -> Result<Option<Record<'a>>, TryFromSliceError> {
        if let Some(synced) = synced_position(&frame) {
            self.synced = self.synced.max(synced);
            return Ok(None);
        }
        let Frame { kind, payload, .. } = frame;
        self.closed = None;
        match kind {
            CEILING_KIND => self.end.ceiling = self.end.ceiling.max(number(payload)?),
            CLOSED_KIND => self.closed = Some(number(payload)?),
            _ => {
                return Ok(Some(Record {
                    in_snapshot: false,
                    kind,
                    payload,
                }));
            }
        }
        Ok(None)
    }

    /// The damage at the end of a segment, if it has bytes that are no record.
    fn tail(&mut self, frames: Frames<'_>, (name, offset): (&str, u64)) -> Option<Damage> {
        let tail = frames.tail();
        let detail = match tail {
            Tail::Clean => return None,
            Tail::Zeros | Tail::Torn => "the records end before the segment does",
            Tail::Damaged => "a record does not match its checksum, and valid records follow",
        };
        self.synced = self.synced.max(stated(frames));
        let file = name.to_owned();
        Some(Damage {
            cut: Some((file.clone(), offset)),
            tail,
            ..self.lacks(OpenError::Damaged {
                file,
                offset,
                detail,
            })
        })
    }

    /// Ends the log at damage, or refuses it.
    fn judge(
        &mut self,
        files: &dyn Files,
        config: &Config,
        damage: Damage,
    ) -> Result<(), OpenError> {
        let unfinished_write =
            matches!(damage.tail, Tail::Zeros | Tail::Torn) && damage.later.is_empty();
        if !unfinished_write && !self.is_power_loss(files, config, &damage)? {
            return Err(damage.error);
        }
        self.torn = Some(damage.accept());
        Ok(())
    }

    /// Whether a power loss explains the damage: it is in the last run, which was in another boot, and
    /// nothing proves that the position was synced.
    fn is_power_loss(
        &self,
        files: &dyn Files,
        config: &Config,
        damage: &Damage,
    ) -> Result<bool, FileError> {
        let same_boot = config.boot != 0 && self.boot == Some(config.boot);
        if same_boot || self.place == Place::Unstated {
            return Ok(false);
        }
        let mut synced = self.synced;
        for &sequence in &damage.later {
            let Segment { name, bytes, .. } = Segment::read(files, sequence, Vec::new())?;
            synced = synced.max(proven(&bytes, config, (&name, damage.position)));
        }
        Ok(synced <= damage.position)
    }
}

fn number(payload: &[u8]) -> Result<u64, TryFromSliceError> {
    payload.try_into().map(u64::from_le_bytes)
}
