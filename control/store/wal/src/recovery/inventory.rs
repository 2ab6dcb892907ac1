//! The files of a data directory: which are needed, which are left over, and which are missing.

use std::io::Read;

use crate::{
    OpenError,
    error::FileError,
    files::Files,
    segment::{
        FileType, HEADER_BYTES, Header, Identity, segment_name, segment_sequence, snapshot_mark,
        snapshot_name,
    },
    snapshot::{SnapshotReader, TEMPORARY},
};

/// The listed files.
#[derive(Debug)]
pub(super) struct Inventory {
    /// The numbers of the needed segments, ascending.
    segments: Vec<u64>,
    /// The newest snapshot, opened; taken when it is replayed.
    reader: Option<SnapshotReader>,
    /// The header of the newest snapshot.
    snapshot: Option<Header>,
    /// The last segment, if its header is incomplete: its creation was interrupted.
    torn_segment: Option<String>,
    /// The segments after the first missing one, ascending.
    stranded: Vec<u64>,
    /// Files that nothing needs: incomplete and older snapshots, segments before the snapshot.
    obsolete: Vec<String>,
}

impl Inventory {
    pub(super) fn read(files: &dyn Files) -> Result<Self, OpenError> {
        let names = files
            .list()
            .map_err(FileError::of("list", "the data directory"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|n| segment_sequence(n)).collect();
        segments.sort_unstable();
        let mut marks: Vec<u64> = names.iter().filter_map(|n| snapshot_mark(n)).collect();
        marks.sort_unstable();
        let newest = marks.pop();
        let mut obsolete: Vec<String> = marks.into_iter().map(snapshot_name).collect();
        obsolete.extend(names.into_iter().filter(|name| is_temporary(name)));
        let reader = newest
            .map(|mark| SnapshotReader::open(files, &snapshot_name(mark)))
            .transpose()?;
        let snapshot = reader.as_ref().map(|reader| *reader.header());
        let torn_segment = pop_torn(files, &mut segments)?;
        Ok(Self {
            segments,
            reader,
            snapshot,
            torn_segment,
            stranded: Vec::new(),
            obsolete,
        })
    }

    /// The numbers of the segments to replay.
    pub(super) fn segments(&self) -> &[u64] {
        &self.segments
    }

    /// The segments after the first missing one.
    pub(super) fn stranded(&self) -> &[u64] {
        &self.stranded
    }

    /// The error that names the first missing segment, if one between others is missing.
    pub(super) fn missing(&self) -> Option<OpenError> {
        let last = self.segments.last().filter(|_| !self.stranded.is_empty());
        last.map(|last| OpenError::Missing(segment_name(last + 1)))
    }

    /// The header of the snapshot.
    pub(super) fn snapshot(&self) -> Option<&Header> {
        self.snapshot.as_ref()
    }

    pub(super) fn take_snapshot(&mut self) -> Option<SnapshotReader> {
        self.reader.take()
    }

    /// The identity of the files; `None` if there are none.
    pub(super) fn identity(&self, files: &dyn Files) -> Result<Option<Identity>, OpenError> {
        let first = match self.segments.first() {
            Some(&first) => {
                let name = segment_name(first);
                let start = read_start(files, &name)?;
                let identity = Header::decode(&start, FileType::Segment, &name)?.identity;
                Some((identity, name))
            }
            None => None,
        };
        let snapshot = self.snapshot.as_ref().map(|header| header.identity);
        if let (Some((found, name)), Some(expected)) = (&first, snapshot) {
            check_identity(*found, expected, name)?;
        }
        Ok(snapshot.or(first.map(|(identity, _)| identity)))
    }

    /// Checks that the first needed segment is there, and lists those before the snapshot as left over
    /// and those after a gap as stranded.
    pub(super) fn check(&mut self) -> Result<(), OpenError> {
        let snapshot_needs = self.snapshot.as_ref().map(|header| header.sequence);
        let first = snapshot_needs.unwrap_or(1);
        let obsolete = self.segments.partition_point(|&sequence| sequence < first);
        let obsolete = self.segments.drain(..obsolete);
        self.obsolete.extend(obsolete.map(segment_name));
        let in_order = self.segments.iter().zip(first..);
        let present = in_order.take_while(|(found, expected)| **found == *expected);
        self.stranded = self.segments.split_off(present.count());
        let needed = snapshot_needs.is_some() || !self.stranded.is_empty();
        if self.segments.is_empty() && needed {
            return Err(OpenError::Missing(segment_name(first)));
        }
        Ok(())
    }

    /// Removes the segment whose creation was interrupted.
    pub(super) fn remove_torn_segment(&self, files: &dyn Files) -> Result<(), FileError> {
        self.torn_segment
            .iter()
            .try_for_each(|name| remove(files, name))
    }

    /// Removes the files that nothing needs.
    pub(super) fn remove_obsolete(&self, files: &dyn Files) -> Result<(), FileError> {
        self.obsolete
            .iter()
            .try_for_each(|name| remove(files, name))
    }
}

fn remove(files: &dyn Files, name: &str) -> Result<(), FileError> {
    files.remove(name).map_err(FileError::of("remove", name))
}

fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY)
        .is_some_and(|name| snapshot_mark(name).is_some())
}

/// The last segment is taken off if it has no complete header and nothing after it.
fn pop_torn(files: &dyn Files, segments: &mut Vec<u64>) -> Result<Option<String>, OpenError> {
    let Some(&last) = segments.last() else {
        return Ok(None);
    };
    let name = segment_name(last);
    let start = read_start(files, &name)?;
    let torn = match Header::decode(&start, FileType::Segment, &name) {
        Err(OpenError::Damaged { .. }) => start.len() <= HEADER_BYTES,
        _ => false,
    };
    Ok(torn.then(|| {
        segments.pop();
        name
    }))
}

/// The first bytes of a file, one more than a header has if there are more.
fn read_start(files: &dyn Files, name: &str) -> Result<Vec<u8>, FileError> {
    let mut start = Vec::new();
    files
        .read(name)
        .and_then(|input| input.take(HEADER_BYTES as u64 + 1).read_to_end(&mut start))
        .map_err(FileError::of("read", name))?;
    Ok(start)
}

/// Checks that a file belongs to the cluster.
pub(super) fn check_identity(
    found: Identity,
    expected: Identity,
    name: &str,
) -> Result<(), OpenError> {
    if found == expected {
        return Ok(());
    }
    Err(OpenError::OtherCluster {
        file: name.to_owned(),
        found: found.cluster,
        expected: expected.cluster,
    })
}
