//! A buffer that many encoded events share, so that a page of them costs few allocations.

use bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::{Event, KV, KeyValue, PREV_KV, TYPE, encode_kv, fields};

/// The first buffer; each further one of a page is twice as large, up to the last size.
const FIRST_BYTES: usize = 1 << 10;
const LAST_BYTES: usize = 64 << 10;
const _: () = assert!(FIRST_BYTES < LAST_BYTES);

/// The parts of an event. `kv` and `prev` are the encoded fields behind the key.
pub(crate) struct EventParts<'a> {
    pub(crate) deleted: bool,
    pub(crate) key: &'a [u8],
    pub(crate) kv: &'a [u8],
    pub(crate) prev: Option<&'a [u8]>,
}

/// Takes the events of a page. An event keeps the buffer that it is in alive.
#[derive(Debug, Default)]
pub(crate) struct PageBuffer {
    buffer: BytesMut,
    size: usize,
}

impl PageBuffer {
    /// Encodes an event.
    pub(crate) fn event(&mut self, parts: &EventParts<'_>) -> Event {
        let prev_len = parts.prev.map_or(0, |prev| part_len(parts.key, prev));
        self.reserve(TYPE_BYTES + part_len(parts.key, parts.kv) + prev_len);
        if parts.deleted {
            prost::encoding::int32::encode(TYPE, &1, &mut self.buffer);
        }
        encode_part(&mut self.buffer, KV, (parts.key, parts.kv));
        if let Some(prev) = parts.prev {
            encode_part(&mut self.buffer, PREV_KV, (parts.key, prev));
        }
        Event(self.buffer.split().freeze())
    }

    fn reserve(&mut self, len: usize) {
        if self.buffer.capacity() < len {
            self.size = (self.size * 2).clamp(FIRST_BYTES, LAST_BYTES);
            self.buffer = BytesMut::with_capacity(len.max(self.size));
        }
    }
}

impl KeyValue {
    /// Encodes a pair of a key and the encoded fields behind it, in a buffer of its own.
    pub(crate) fn encode(key: &[u8], rest: &[u8]) -> Self {
        let mut out = Vec::with_capacity(fields::key_encoded_len(key) + rest.len());
        encode_kv(&mut out, key, rest);
        Self(out.into())
    }
}

impl Event {
    /// The event without the key before it: of an event of [`PageBuffer::event`] the first bytes.
    pub(crate) fn without_prev(&self) -> Self {
        let kv_len = self.part(KV).unwrap_or_default().len();
        let type_len = if self.is_delete() { TYPE_BYTES } else { 0 };
        let len = type_len + 1 + encoded_len_varint(kv_len as u64) + kv_len;
        Self(self.0.slice(..len))
    }
}

/// Bytes of the field `type` of a deletion.
const TYPE_BYTES: usize = 2;

/// Bytes of a pair inside an event.
fn part_len(key: &[u8], rest: &[u8]) -> usize {
    let len = fields::key_encoded_len(key) + rest.len();
    1 + encoded_len_varint(len as u64) + len
}

fn encode_part(out: &mut impl BufMut, number: u32, (key, rest): (&[u8], &[u8])) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint((fields::key_encoded_len(key) + rest.len()) as u64, out);
    encode_kv(out, key, rest);
}
