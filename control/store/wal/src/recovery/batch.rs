//! Records that are visited together: what their visitor waits for, it waits for once.

use super::{Record, Visitor};
use crate::OpenError;

/// Records and bytes of payload after which a batch is visited: both fit the processor's caches.
const RECORDS_MAX: usize = 64;
const PAYLOAD_BYTES_MAX: usize = 32 << 10;

/// Successive records of a file.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    file: &'a str,
    records: Vec<Record<'a>>,
    offsets: Vec<u64>,
    payload_bytes: usize,
}

impl<'a> Batch<'a> {
    /// An empty batch of a file.
    pub(super) fn of(file: &'a str) -> Self {
        Self {
            file,
            records: Vec::new(),
            offsets: Vec::new(),
            payload_bytes: 0,
        }
    }

    /// Adds the record at an offset in the file; one that fills the batch is visited with it.
    pub(super) fn add(
        &mut self,
        (record, offset): (Record<'a>, u64),
        visit: Visitor<'_>,
    ) -> Result<(), OpenError> {
        self.payload_bytes += record.payload.len();
        self.records.push(record);
        self.offsets.push(offset);
        if self.records.len() < RECORDS_MAX && self.payload_bytes < PAYLOAD_BYTES_MAX {
            return Ok(());
        }
        self.visit(visit)
    }

    /// Visits the records, after which the batch is empty.
    pub(super) fn visit(&mut self, visit: Visitor<'_>) -> Result<(), OpenError> {
        if self.records.is_empty() {
            return Ok(());
        }
        visit(&self.records).map_err(|refused| OpenError::Record {
            file: self.file.to_owned(),
            offset: self.offsets[refused.index],
            source: refused.source,
        })?;
        self.records.clear();
        self.offsets.clear();
        self.payload_bytes = 0;
        Ok(())
    }
}
