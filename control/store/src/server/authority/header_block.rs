//! Header blocks of HTTP/2 (HPACK, RFC 7541), as far as the `:authority` header needs: its literal is
//! found without the dynamic table, and replaced by a value of equal length, so that the tables of both
//! sides stay equal.

use httlib_huffman::DecoderSpeed;
use tonic::codegen::http::uri::Authority;

/// Flags of a frame with headers (RFC 9113, section 6.2).
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Bytes of the priority before the header block.
const PRIORITY_BYTES: usize = 5;
/// The index of `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
/// The mark of a string in Huffman's code.
const HUFFMAN: u8 = 0x80;
/// Replaces each byte of a malformed value.
const FILLER: u8 = b'x';
/// An integer of HPACK has at most this many bytes after its prefix; more is refused by h2.
const INTEGER_BYTES_MAX: usize = 4;

/// The payload of a frame with headers, with a valid `:authority`; `None` if it need not change.
pub(super) fn with_valid_authority(flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut block = Cursor {
        bytes: payload,
        at: 0,
    };
    if flags & PADDED != 0 {
        block.skip(1)?;
    }
    if flags & PRIORITY != 0 {
        block.skip(PRIORITY_BYTES)?;
    }
    loop {
        let name = block.next_literal()?;
        let value = block.string()?;
        if name == AUTHORITY {
            return replace(payload, &value);
        }
    }
}

/// The payload with another value, if the value is malformed.
fn replace(payload: &[u8], value: &Text<'_>) -> Option<Vec<u8>> {
    let decoded = value.decode()?;
    if Authority::try_from(decoded.as_slice()).is_ok() {
        return None;
    }
    let mut replaced = payload[..value.start].to_vec();
    push_length(&mut replaced, decoded.len());
    replaced.resize(replaced.len() + decoded.len(), FILLER);
    replaced.extend_from_slice(&payload[value.end..]);
    Some(replaced)
}

/// Appends the length of a string that is not in Huffman's code.
fn push_length(bytes: &mut Vec<u8>, length: usize) {
    let prefix_max = usize::from(HUFFMAN - 1);
    let Some(mut rest) = length.checked_sub(prefix_max) else {
        bytes.extend(u8::try_from(length));
        return;
    };
    bytes.push(HUFFMAN - 1);
    while rest >= 0x80 {
        bytes.extend(u8::try_from(rest % 0x80 + 0x80));
        rest /= 0x80;
    }
    bytes.extend(u8::try_from(rest));
}

/// A string of a header block.
struct Text<'a> {
    /// Where its length starts in the block.
    start: usize,
    /// Where the string ends.
    end: usize,
    huffman: bool,
    encoded: &'a [u8],
}

impl Text<'_> {
    fn decode(&self) -> Option<Vec<u8>> {
        if !self.huffman {
            return Some(self.encoded.to_vec());
        }
        let mut decoded = Vec::new();
        httlib_huffman::decode(self.encoded, &mut decoded, DecoderSpeed::FourBits).ok()?;
        Some(decoded)
    }
}

/// A position in a header block. Its methods return `None` at the end of the block, and at a block
/// that HPACK does not allow, which h2 refuses.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self, count: usize) -> Option<&'a [u8]> {
        let skipped = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(skipped)
    }

    /// Reads up to the value of the next literal (RFC 7541, section 6); returns the index of its name,
    /// 0 for a name that is a string.
    fn next_literal(&mut self) -> Option<usize> {
        loop {
            let first = *self.bytes.get(self.at)?;
            let (prefix_bits, literal) = match first {
                0x80.. => (7, false),
                0x40.. => (6, true),
                0x20.. => (5, false),
                _ => (4, true),
            };
            let index = self.integer(prefix_bits)?;
            if !literal {
                continue;
            }
            if index == 0 {
                self.string()?;
            }
            return Some(index);
        }
    }

    /// Reads an integer with a prefix of so many bits (RFC 7541, section 5.1).
    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        let prefix_max = (1 << prefix_bits) - 1;
        let mut value = usize::from(self.skip(1)?[0]) & prefix_max;
        if value < prefix_max {
            return Some(value);
        }
        for position in 0..INTEGER_BYTES_MAX {
            let byte = usize::from(self.skip(1)?[0]);
            value += (byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn string(&mut self) -> Option<Text<'a>> {
        let start = self.at;
        let huffman = self.bytes.get(start)? & HUFFMAN != 0;
        let length = self.integer(7)?;
        let encoded = self.skip(length)?;
        Some(Text {
            start,
            end: self.at,
            huffman,
            encoded,
        })
    }
}
