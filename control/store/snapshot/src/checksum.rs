//! The SHA-256 behind the database of a snapshot, which `etcdctl snapshot save` and `restore` check.

use std::io::{self, Read, Seek, SeekFrom, Write};

use ring::digest::{Context, SHA256};

use crate::ImportError;

/// Bytes of the checksum.
pub const CHECKSUM_BYTES: u64 = 32;

/// Databases consist of pages, whose size is a multiple of this: what is above is the checksum.
const SECTOR_BYTES: u64 = 512;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// An output that computes the checksum of what it passes on.
pub struct Checksummed<W> {
    out: W,
    digest: Context,
}

impl<W> std::fmt::Debug for Checksummed<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checksummed").finish_non_exhaustive()
    }
}

impl<W: Write> Checksummed<W> {
    /// An output in front of `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            digest: Context::new(&SHA256),
        }
    }

    /// Writes the checksum; returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(self.digest.finish().as_ref())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Checksummed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Checks that the file ends with the checksum of everything before.
pub(crate) fn verify<R: Read + Seek>(file: &mut R) -> Result<(), ImportError> {
    let bytes = file.seek(SeekFrom::End(0))?;
    if bytes % SECTOR_BYTES != CHECKSUM_BYTES {
        return Err(ImportError::NoChecksum);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut digest = Context::new(&SHA256);
    let mut rest = bytes - CHECKSUM_BYTES;
    let mut chunk = vec![0; CHUNK_BYTES];
    while rest > 0 {
        let len = usize::try_from(rest).map_or(CHUNK_BYTES, |rest| rest.min(CHUNK_BYTES));
        file.read_exact(&mut chunk[..len])?;
        digest.update(&chunk[..len]);
        rest -= len as u64;
    }
    let mut stored = Vec::new();
    file.read_to_end(&mut stored)?;
    if digest.finish().as_ref() != stored {
        return Err(ImportError::Checksum);
    }
    Ok(())
}
