//! Chunks of encoded pairs, used again after they are sent: the memory of one is neither returned to
//! the kernel nor cleared by it between two lists.

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of a chunk: some frames of the transport.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Free chunks that are kept: 8 MiB, about two lists of 10,000 keys.
const FREE_MAX: usize = 128;

static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// The bytes of a sent chunk, which is free when the last slice of it is dropped.
struct Sent(Vec<u8>);

/// An empty chunk with the capacity of [`CHUNK_BYTES`].
pub(super) fn take() -> Vec<u8> {
    let free = FREE.lock().pop();
    free.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
}

/// The bytes of a chunk of any capacity; those of [`take`] are used again.
pub(super) fn freeze(chunk: Vec<u8>) -> Bytes {
    if chunk.capacity() == CHUNK_BYTES {
        Bytes::from_owner(Sent(chunk))
    } else {
        Bytes::from(chunk)
    }
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut chunk = std::mem::take(&mut self.0);
        chunk.clear();
        let mut free = FREE.lock();
        if free.len() < FREE_MAX {
            free.push(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_keeps_its_bytes_while_a_slice_of_it_exists() {
        let mut chunk = take();
        chunk.extend_from_slice(b"abc");
        let bytes = freeze(chunk);
        let slice = bytes.slice(1..);
        drop(bytes);
        let mut other = take();
        assert!(other.is_empty() && other.capacity() >= CHUNK_BYTES);
        other.extend_from_slice(b"xyz");
        assert_eq!(slice, "bc");
    }
}
