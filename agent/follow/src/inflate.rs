//! A response body, decompressed as it arrives.

use std::io::{self, Write};
use std::mem;

use flate2::write::GzDecoder;

/// A body that may be compressed.
#[derive(Debug)]
pub(crate) enum Inflate {
    /// As it is.
    Plain,
    /// Compressed by gzip.
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Inflate {
    /// A body, compressed by gzip or not.
    pub(crate) fn new(gzip: bool) -> Self {
        if gzip {
            Self::Gzip(Box::new(GzDecoder::new(Vec::new())))
        } else {
            Self::Plain
        }
    }

    /// Passes on all that is known by these bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8], next: impl FnOnce(&[u8])) -> io::Result<()> {
        match self {
            Self::Plain => next(bytes),
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                next(&mem::take(decoder.get_mut()));
            }
        }
        Ok(())
    }
}
