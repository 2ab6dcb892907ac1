//! The pairs of a range response, encoded as the elements of its field `kvs`: a long list is sent
//! from the chunks that it was read into, without another copy.

use bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::{
    Fields, HEAD_BYTES_MAX, KeyValue, TAIL_BYTES_MAX,
    chunk::{self, CHUNK_BYTES},
    encode_kv, fields,
};

/// Number of the field `kvs` of `etcdserverpb.RangeResponse`.
const KVS: u32 = 2;

/// The first buffer fits a pair or two; each further one is larger by the factor, until it is a
/// chunk: few parts of a long list are small frames of the transport.
const FIRST_BYTES: usize = 1 << 10;
const GROWTH: usize = 8;
const _: () = assert!(FIRST_BYTES * GROWTH < CHUNK_BYTES);

/// Encoded pairs, in order.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    chunks: Vec<Bytes>,
    len: usize,
}

impl Pairs {
    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all pairs, with the tags and lengths of the field.
    pub fn encoded_len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// The encoded bytes, in order; no pair is in two chunks.
    pub(crate) fn into_chunks(self) -> Vec<Bytes> {
        self.chunks
    }

    /// The pairs one by one; each keeps its chunk alive.
    pub fn messages(&self) -> impl Iterator<Item = KeyValue> {
        self.chunks.iter().flat_map(messages)
    }
}

fn messages(chunk: &Bytes) -> impl Iterator<Item = KeyValue> {
    fields::parts(chunk).map(|part| KeyValue(chunk.slice_ref(part.bytes)))
}

/// Takes pairs, and encodes each.
#[derive(Debug, Default)]
pub(crate) struct PairsBuffer {
    chunks: Vec<Vec<u8>>,
    /// Size of the last chunk, but for one pair that needs more.
    chunk_bytes: usize,
    len: usize,
    bytes: u64,
}

impl PairsBuffer {
    /// Number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the pairs, in a field each.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a pair of a key and the encoded fields behind it.
    pub(crate) fn push(&mut self, key: &[u8], rest: &[u8]) {
        let pair_len = fields::key_encoded_len(key) + rest.len();
        let field_len = 1 + encoded_len_varint(pair_len as u64) + pair_len;
        self.bytes += field_len as u64;
        let chunk = self.chunk_with(field_len);
        encode_key(KVS, WireType::LengthDelimited, chunk);
        encode_varint(pair_len as u64, chunk);
        encode_kv(chunk, key, rest);
        self.len += 1;
    }

    /// Appends a pair, with or without its value.
    pub(crate) fn push_message(&mut self, pair: &KeyValue, key_only: bool) {
        if key_only {
            self.push_key_only(pair.fields().key, pair.encoded());
        } else {
            self.push(&[], pair.encoded());
        }
    }

    /// Appends a pair without its value.
    pub(crate) fn push_key_only(&mut self, key: &[u8], rest: &[u8]) {
        let kept = Fields {
            value: &[],
            ..Fields::decode(rest)
        };
        let mut fields = [0; HEAD_BYTES_MAX + TAIL_BYTES_MAX];
        let mut space = &mut fields[..];
        kept.encode_head(&mut space);
        kept.encode_tail(&mut space);
        let free = space.remaining_mut();
        self.push(key, &fields[..fields.len() - free]);
    }

    /// Takes the pairs that were appended so far.
    pub(crate) fn take(&mut self) -> Pairs {
        let Self { chunks, len, .. } = std::mem::take(self);
        Pairs {
            chunks: chunks.into_iter().map(chunk::freeze).collect(),
            len,
        }
    }

    /// The last chunk, if it has this much space, or a new one.
    fn chunk_with(&mut self, len: usize) -> &mut Vec<u8> {
        let last = self.chunks.last();
        if last.is_none_or(|last| last.capacity() - last.len() < len) {
            self.chunk_bytes = (self.chunk_bytes * GROWTH).clamp(FIRST_BYTES, CHUNK_BYTES);
            let bytes = self.chunk_bytes.max(len);
            self.chunks.push(if bytes == CHUNK_BYTES {
                chunk::take()
            } else {
                Vec::with_capacity(bytes)
            });
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }
}
