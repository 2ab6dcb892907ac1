//! The fields of an encoded `mvccpb.KeyValue`, read and written without a message of its own.

use bytes::BufMut;
use prost::encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint};

/// Numbers of the fields of `mvccpb.KeyValue`.
const KEY: u32 = 1;
const CREATE_REVISION: u32 = 2;
const MOD_REVISION: u32 = 3;
const VERSION: u32 = 4;
const VALUE: u32 = 5;
const LEASE: u32 = 6;

/// Bytes of [`Fields::encode_head`] at most: the tags and varints of four fields.
pub(crate) const HEAD_BYTES_MAX: usize = 4 * (1 + VARINT_BYTES_MAX);
/// Bytes of [`Fields::encode_tail`] at most: one tag and varint.
pub(crate) const TAIL_BYTES_MAX: usize = 1 + VARINT_BYTES_MAX;
const VARINT_BYTES_MAX: usize = 10;

/// The fields of a key-value pair; an absent field is 0 or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The key; empty in the fields of a version, which its cell completes.
    pub key: &'a [u8],
    /// Revision of the first put after the key's last deletion.
    pub create_revision: i64,
    /// Revision of this value.
    pub mod_revision: i64,
    /// Puts since creation, this one included; 0 in a deletion.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// Lease whose expiry deletes the key; 0 is none.
    pub lease: i64,
}

impl<'a> Fields<'a> {
    /// Decodes a message. Unknown fields are skipped; a malformed field ends the message.
    pub fn decode(encoded: &'a [u8]) -> Self {
        let mut fields = Self::default();
        for part in parts(encoded) {
            match part.number {
                KEY => fields.key = part.bytes,
                CREATE_REVISION => fields.create_revision = part.number_value(),
                MOD_REVISION => fields.mod_revision = part.number_value(),
                VERSION => fields.version = part.number_value(),
                VALUE => fields.value = part.bytes,
                LEASE => fields.lease = part.number_value(),
                _ => {}
            }
        }
        fields
    }

    /// Appends the fields between the key and the value's bytes, with the tag and the length of the
    /// value.
    pub(crate) fn encode_head(&self, out: &mut impl BufMut) {
        encode_number(out, CREATE_REVISION, self.create_revision);
        encode_number(out, MOD_REVISION, self.mod_revision);
        encode_number(out, VERSION, self.version);
        if !self.value.is_empty() {
            encode_tag(out, VALUE, WireType::LengthDelimited);
            encode_varint(self.value.len() as u64, out);
        }
    }

    /// Appends the fields behind the value.
    pub(crate) fn encode_tail(&self, out: &mut impl BufMut) {
        encode_number(out, LEASE, self.lease);
    }
}

/// Appends the field `key`.
pub(super) fn encode_key_field(out: &mut impl BufMut, key: &[u8]) {
    if !key.is_empty() {
        encode_tag(out, KEY, WireType::LengthDelimited);
        encode_varint(key.len() as u64, out);
        out.put_slice(key);
    }
}

/// Encoded bytes of the field `key`.
pub(super) fn key_encoded_len(key: &[u8]) -> usize {
    if key.is_empty() {
        return 0;
    }
    1 + encoded_len_varint(key.len() as u64) + key.len()
}

fn encode_number(out: &mut impl BufMut, number: u32, value: i64) {
    if value != 0 {
        encode_tag(out, number, WireType::Varint);
        encode_varint(value.cast_unsigned(), out);
    }
}

fn encode_tag(out: &mut impl BufMut, number: u32, wire_type: WireType) {
    prost::encoding::encode_key(number, wire_type, out);
}

/// One field of an encoded message.
pub(super) struct Part<'a> {
    pub(super) number: u32,
    varint: u64,
    /// The bytes of a length-delimited field.
    pub(super) bytes: &'a [u8],
}

impl Part<'_> {
    fn number_value(&self) -> i64 {
        self.varint.cast_signed()
    }
}

/// The varint and length-delimited fields of a message, in order, up to the first malformed one.
pub(super) fn parts(mut encoded: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let (number, wire_type) = decode_key(&mut encoded).ok()?;
        let varint = decode_varint(&mut encoded).ok()?;
        let (varint, len) = match wire_type {
            WireType::Varint => (varint, 0),
            WireType::LengthDelimited => (0, usize::try_from(varint).ok()?),
            _ => return None,
        };
        let (bytes, rest) = encoded.split_at_checked(len)?;
        encoded = rest;
        Some(Part {
            number,
            varint,
            bytes,
        })
    })
}
