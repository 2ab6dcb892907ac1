//! A buffer that many encoded messages share, so that a page of them costs few allocations.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::{Event, Fields, KV, KeyValue, PREV_KV, TYPE, fields};

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

/// Takes the messages of a page. A message keeps the buffer that it is in alive.
#[derive(Debug, Default)]
pub(crate) struct PageBuffer {
    buffer: BytesMut,
    size: usize,
}

impl PageBuffer {
    /// Encodes a pair of a key and the encoded fields behind it.
    pub(crate) fn kv(&mut self, key: &[u8], rest: &[u8]) -> KeyValue {
        self.reserve(fields::key_encoded_len(key) + rest.len());
        encode_kv(&mut self.buffer, key, rest);
        KeyValue(self.split())
    }

    /// Encodes a pair without its value.
    pub(crate) fn key_only(&mut self, key: &[u8], rest: &[u8]) -> KeyValue {
        let kept = Fields {
            value: &[],
            ..Fields::decode(rest)
        };
        self.reserve(fields::key_encoded_len(key) + super::HEAD_BYTES_MAX + super::TAIL_BYTES_MAX);
        fields::encode_key_field(&mut self.buffer, key);
        kept.encode_head(&mut self.buffer);
        kept.encode_tail(&mut self.buffer);
        KeyValue(self.split())
    }

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
        Event(self.split())
    }

    fn reserve(&mut self, len: usize) {
        if self.buffer.capacity() < len {
            self.size = (self.size * 2).clamp(FIRST_BYTES, LAST_BYTES);
            self.buffer = BytesMut::with_capacity(len.max(self.size));
        }
    }

    fn split(&mut self) -> Bytes {
        self.buffer.split().freeze()
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

fn encode_kv(out: &mut impl BufMut, key: &[u8], rest: &[u8]) {
    fields::encode_key_field(out, key);
    out.put_slice(rest);
}
