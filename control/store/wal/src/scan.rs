//! The frames of one segment in order, and the judgement of its end: clean, torn or damaged.

use crate::frame::{self, Frame, Position};

/// The end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The last frame ends where the file ends.
    Clean,
    /// Only zeros follow: space that was reserved, or blocks that were not written.
    Zeros,
    /// There is no further valid frame: a write that did not complete.
    Torn,
    /// There is no valid frame next, but a later one: not the work of a torn write.
    Damaged,
}

/// The frames of a segment, read in order.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Frames in front of this offset are known to be valid.
    checked: usize,
    cluster: u64,
    position: Position,
}

impl<'a> Frames<'a> {
    /// The frames of a segment's bytes after its header; `position` is that of the first.
    pub(crate) fn new(bytes: &'a [u8], cluster: u64, position: Position) -> Self {
        Self {
            bytes,
            offset: 0,
            checked: 0,
            cluster,
            position,
        }
    }

    /// The same frames, of which those in front of an offset were found valid before: their checksums
    /// are not computed again.
    pub(crate) fn checked_to(self, checked: usize) -> Self {
        Self { checked, ..self }
    }

    /// Bytes from the first frame to the next one to read.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The judgement of the bytes that are not read: meaningful when there is no further frame.
    pub(crate) fn tail(&self) -> Tail {
        let rest = self.bytes.len() - self.offset;
        if rest == 0 {
            return Tail::Clean;
        }
        if self.bytes[self.offset..].iter().all(|byte| *byte == 0) {
            return Tail::Zeros;
        }
        let later = (1..rest).any(|skipped| self.frame_at(skipped).is_some());
        if later { Tail::Damaged } else { Tail::Torn }
    }

    /// All valid frames that are not read, also those after bytes that are no frame.
    pub(crate) fn all(mut self) -> impl Iterator<Item = Frame<'a>> {
        std::iter::from_fn(move || {
            let rest = self.bytes.len().saturating_sub(self.offset);
            let skipped = (0..rest).find(|&skipped| self.frame_at(skipped).is_some())?;
            self.offset += skipped;
            self.position += skipped as u64;
            self.next()
        })
    }

    fn frame_at(&self, skipped: usize) -> Option<Frame<'a>> {
        let bytes = self.bytes.get(self.offset + skipped..)?;
        frame::decode(bytes, self.cluster, self.position + skipped as u64)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let frame = if self.offset < self.checked {
            frame::parse(&self.bytes[self.offset..]).map(|(frame, _)| frame)
        } else {
            self.frame_at(0)
        }?;
        self.offset += frame.encoded_len();
        self.position += frame.encoded_len() as u64;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u64 = 5;
    const START: Position = 1_000;

    /// Three frames, and the offsets at which they end.
    fn three() -> (Vec<u8>, [usize; 3]) {
        let mut bytes = Vec::new();
        let ends = [&b"first"[..], b"", b"third frame"].map(|payload| {
            let position = START + bytes.len() as u64;
            frame::encode(&mut bytes, (CLUSTER, position), 1, |out| {
                out.extend_from_slice(payload);
            })
            .unwrap();
            bytes.len()
        });
        (bytes, ends)
    }

    /// The number of frames, the offset of their end, and the judgement of it.
    fn scan(bytes: &[u8]) -> (usize, usize, Tail) {
        let mut frames = Frames::new(bytes, CLUSTER, START);
        let count = frames.by_ref().count();
        (count, frames.offset(), frames.tail())
    }

    #[test]
    fn a_segment_cut_at_any_byte_has_the_frames_before_the_cut() {
        let (bytes, ends) = three();
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            let end = ends[..whole].last().copied().unwrap_or(0);
            let tail = match &bytes[end..cut] {
                [] => Tail::Clean,
                // The length of a frame without a payload.
                rest if rest.iter().all(|byte| *byte == 0) => Tail::Zeros,
                _ => Tail::Torn,
            };
            assert_eq!(scan(&bytes[..cut]), (whole, end, tail), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_before_the_last_frame_and_a_torn_write_in_it() {
        let (bytes, ends) = three();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let hit = ends.iter().filter(|&&end| end <= bit / 8).count();
            let start = ends[..hit].last().copied().unwrap_or(0);
            let tail = if hit == 2 { Tail::Torn } else { Tail::Damaged };
            assert_eq!(scan(&flipped), (hit, start, tail), "bit {bit}");
        }
    }

    #[test]
    fn the_frames_after_a_flipped_bit_are_found() {
        let (bytes, ends) = three();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let hit = ends.iter().filter(|&&end| end <= bit / 8).count();
            let mut expected = vec![&b"first"[..], b"", b"third frame"];
            expected.remove(hit);
            let frames = Frames::new(&flipped, CLUSTER, START).all();
            assert!(frames.map(|frame| frame.payload).eq(expected), "bit {bit}");
        }
    }

    #[test]
    fn zeros_at_the_end_are_recognised_and_copies_of_frames_are_a_torn_write() {
        let (bytes, ends) = three();
        let zeros = vec![0; 4_096];
        let torn = [&bytes[..], &zeros].concat();
        for (tail, judgement) in [
            (zeros, Tail::Zeros),
            (torn, Tail::Torn),
            (bytes.clone(), Tail::Torn),
            (vec![0xff; 100], Tail::Torn),
        ] {
            let all = [bytes.clone(), tail].concat();
            assert_eq!(scan(&all), (3, ends[2], judgement));
        }
    }
}
