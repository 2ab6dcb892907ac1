//! Frames: `length u32 | crc32c u32 | kind u8 | payload`, little endian. The length counts the payload.
//!
//! The checksum covers length, kind, payload, and the identity of the cluster and the position of the
//! frame in the log. So a frame that was copied or moved, such as one inside a value, is never valid.

/// Bytes of a frame before its payload.
pub const OVERHEAD_BYTES: usize = 9;

/// The number of the first byte of a frame in the log, counted over all segments without their
/// headers.
pub type Position = u64;

/// Kinds from this number on belong to the journal; the caller's kinds lie from 1 to below it.
pub const CONTROL_KINDS: u8 = 128;

/// A frame whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind; never 0, so that a file full of zeros has no valid frame.
    pub kind: u8,
    /// The payload.
    pub payload: &'a [u8],
    /// The checksum.
    pub crc: u32,
}

impl Frame<'_> {
    /// Bytes of the encoded frame.
    pub fn encoded_len(&self) -> usize {
        OVERHEAD_BYTES + self.payload.len()
    }
}

/// The checksum of a frame.
pub(crate) fn checksum(cluster: u64, position: Position, length: u32, rest: &[u8]) -> u32 {
    let mut seed = [0; 20];
    seed[..8].copy_from_slice(&cluster.to_le_bytes());
    seed[8..16].copy_from_slice(&position.to_le_bytes());
    seed[16..].copy_from_slice(&length.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&seed), rest)
}

/// Appends a frame whose payload `fill` appends; returns its checksum, or nothing, with `out`
/// unchanged, if the payload is above 4 GiB.
pub fn encode(
    out: &mut Vec<u8>,
    (cluster, position): (u64, Position),
    kind: u8,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Option<u32> {
    let start = out.len();
    out.extend_from_slice(&[0; OVERHEAD_BYTES]);
    out[start + OVERHEAD_BYTES - 1] = kind;
    fill(out);
    let Ok(length) = u32::try_from(out.len() - start - OVERHEAD_BYTES) else {
        out.truncate(start);
        return None;
    };
    let crc = checksum(
        cluster,
        position,
        length,
        &out[start + OVERHEAD_BYTES - 1..],
    );
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    Some(crc)
}

/// The length and the checksum of a frame's first bytes.
pub(crate) fn prefix(bytes: &[u8]) -> Option<(u32, u32)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, _) = rest.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*length), u32::from_le_bytes(*crc)))
}

/// The frame at the start of `bytes`, if it is complete, and the bytes that its checksum covers; the
/// checksum is not compared.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (length, crc) = prefix(bytes)?;
    let end = OVERHEAD_BYTES.checked_add(usize::try_from(length).ok()?)?;
    let rest = bytes.get(OVERHEAD_BYTES - 1..end)?;
    let (&kind, payload) = rest.split_first()?;
    Some((Frame { kind, payload, crc }, rest))
}

/// The frame at the start of `bytes`, if it is complete and its checksum is right.
pub fn decode(bytes: &[u8], cluster: u64, position: Position) -> Option<Frame<'_>> {
    let (length, _) = prefix(bytes)?;
    let (frame, rest) = parse(bytes)?;
    let valid = frame.kind != 0 && checksum(cluster, position, length, rest) == frame.crc;
    valid.then_some(frame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(cluster: u64, position: Position, kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, (cluster, position), kind, |out| {
            out.extend_from_slice(payload);
        })
        .unwrap();
        out
    }

    proptest! {
        #[test]
        fn a_frame_is_decoded_as_encoded_and_only_at_its_position(
            cluster: u64, position: u64, kind in 1u8.., payload: Vec<u8>,
        ) {
            let mut bytes = encoded(cluster, position, kind, &payload);
            bytes.extend_from_slice(b"later");
            let frame = decode(&bytes, cluster, position).unwrap();
            prop_assert_eq!((frame.kind, frame.payload), (kind, payload.as_slice()));
            prop_assert_eq!(decode(&bytes, cluster, position ^ 1), None);
            prop_assert_eq!(decode(&bytes, cluster ^ 1, position), None);
        }

        #[test]
        fn a_frame_with_a_flipped_bit_is_refused(payload: Vec<u8>, flip: prop::sample::Index) {
            let mut bytes = encoded(7, 11, 1, &payload);
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&bytes, 7, 11), None);
        }

        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes, 0, 0);
        }
    }

    #[test]
    fn zeros_are_no_frame() {
        assert_eq!(decode(&[0; 64], 0, 0), None);
    }
}
