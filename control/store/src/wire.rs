//! Key-value pairs and events as encoded messages: a response or an event is encoded by copying
//! their bytes, and a page of them shares one buffer.

mod chunk;
mod fields;
mod page;
mod pairs;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType, decode_varint, encode_key, encode_varint},
};

pub use fields::Fields;
pub(crate) use fields::{HEAD_BYTES_MAX, TAIL_BYTES_MAX};
pub(crate) use page::{EventParts, PageBuffer};
pub use pairs::Pairs;
pub(crate) use pairs::PairsBuffer;

/// Numbers of the fields of `mvccpb.Event`.
const TYPE: u32 = 1;
const KV: u32 = 2;
const PREV_KV: u32 = 3;

/// An encoded `mvccpb.KeyValue`: a key at one revision. [`Fields::decode`] reads it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct KeyValue(Bytes);

/// An encoded `mvccpb.Event`: a put or a deletion of one key.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Event(Bytes);

impl KeyValue {
    /// The encoded bytes.
    pub fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// The decoded fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields::decode(&self.0)
    }
}

impl Event {
    /// The encoded bytes.
    pub fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// Whether the event is the deletion of a key.
    pub fn is_delete(&self) -> bool {
        // A put has the type 0, which is not encoded.
        self.0.first() == Some(&0x08)
    }

    /// The key after the event; a deletion has only the key and its revision.
    pub fn kv(&self) -> Fields<'_> {
        Fields::decode(self.part(KV).unwrap_or_default())
    }

    /// The message of [`Event::kv`].
    pub fn kv_message(&self) -> KeyValue {
        KeyValue(self.0.slice_ref(self.part(KV).unwrap_or_default()))
    }

    /// The key before the event, if the event has it.
    pub fn prev_kv(&self) -> Option<Fields<'_>> {
        self.part(PREV_KV).map(Fields::decode)
    }

    fn part(&self, number: u32) -> Option<&[u8]> {
        fields::parts(&self.0)
            .find(|part| part.number == number)
            .map(|part| part.bytes)
    }
}

/// Appends one field of a message that is decoded, as it was encoded. No field of these messages
/// has another wire type than these two; such an unknown field is skipped.
fn merge_raw(
    encoded: &mut Bytes,
    (tag, wire_type): (u32, WireType),
    buf: &mut impl Buf,
    ctx: DecodeContext,
) -> Result<(), DecodeError> {
    let mut out = BytesMut::from(std::mem::take(encoded));
    match wire_type {
        WireType::Varint => {
            encode_key(tag, wire_type, &mut out);
            encode_varint(decode_varint(buf)?, &mut out);
        }
        WireType::LengthDelimited => {
            let mut bytes = Bytes::new();
            encoding::bytes::merge(wire_type, &mut bytes, buf, ctx)?;
            encoding::bytes::encode(tag, &bytes, &mut out);
        }
        _ => encoding::skip_field(wire_type, tag, buf, ctx)?,
    }
    *encoded = out.freeze();
    Ok(())
}

/// Appends the fields of a pair: the key, then the encoded ones behind it.
fn encode_kv(out: &mut impl BufMut, key: &[u8], rest: &[u8]) {
    fields::encode_key_field(out, key);
    out.put_slice(rest);
}

macro_rules! raw_message {
    ($($name:ident),*) => {$(
        impl Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                buf.put_slice(&self.0);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                merge_raw(&mut self.0, (tag, wire_type), buf, ctx)
            }

            fn encoded_len(&self) -> usize {
                self.0.len()
            }

            fn clear(&mut self) {
                self.0.clear();
            }
        }
    )*};
}

raw_message!(KeyValue, Event);

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("delete", &self.is_delete())
            .field("kv", &self.kv())
            .field("prev_kv", &self.prev_kv())
            .finish()
    }
}
