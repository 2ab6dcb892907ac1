//! The part of the order of nodes that an attempt looks at.

use std::ops::Range;

use crate::class::REJECTED;
use crate::search::Lens;
use crate::tree::at;

/// Neighbours in the order of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole segment.
    Whole(usize),
    /// The feasible nodes of a part of a segment.
    Part(Vec<u32>),
}

/// The nodes that an attempt looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) pieces: Vec<Piece>,
    /// The number of nodes.
    pub(crate) judged: usize,
}

/// Where to look.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) order: &'a [u32],
    pub(crate) segment_len: usize,
    pub(crate) start: usize,
    /// The number of feasible nodes after which no more are looked for.
    pub(crate) limit: u64,
}

impl Window {
    /// All nodes.
    pub(crate) fn all(nodes_len: usize, segments_len: usize) -> Self {
        Self {
            pieces: (0..segments_len).map(Piece::Whole).collect(),
            judged: nodes_len,
        }
    }

    /// From the start on all around, up to the feasible node after the last one that is needed.
    pub(crate) fn of(around: Around<'_>, lens: &Lens<'_>) -> Self {
        let nodes_len = around.order.len();
        let is_plain = lens.apart_len_max() == 0;
        let mut window = Self::default();
        let (mut position, mut found) = (around.start % nodes_len, 0);
        while window.judged < nodes_len {
            let segment = position / around.segment_len;
            let first = segment * around.segment_len;
            let end = (first + around.segment_len).min(nodes_len);
            let len = (end - position).min(nodes_len - window.judged);
            let is_whole = is_plain && position == first && len == end - first;
            let fitting = is_whole.then(|| feasible_len(lens, segment));
            if let Some(fitting) = fitting.filter(|len| found + len <= around.limit) {
                found += fitting;
                window.judged += len;
                window.pieces.push(Piece::Whole(segment));
            } else {
                let part = position..position + len;
                let (looked_at, feasible) = self::part(around, lens, part, found);
                window.judged += looked_at;
                found += u64::try_from(feasible.len()).unwrap_or(u64::MAX);
                window.pieces.push(Piece::Part(feasible));
                if looked_at < len {
                    break;
                }
            }
            position = (position + len) % nodes_len;
        }
        window
    }
}

/// The number of feasible nodes of a segment.
pub(crate) fn feasible_len(lens: &Lens<'_>, segment: usize) -> u64 {
    let segment = &lens.segments[segment];
    let fitting = segment.fitting(&lens.demand);
    let fitting = fitting.filter(|(kind, _)| lens.bonus[at(*kind)] != REJECTED);
    let odd = segment.odd.iter().filter(|slot| lens.is_feasible(**slot));
    let odd = u64::try_from(odd.count()).unwrap_or(u64::MAX);
    fitting.map(|(_, len)| len).sum::<u64>() + odd
}

/// The number of nodes up to the feasible one that is one too many, and those that are feasible.
fn part(around: Around<'_>, lens: &Lens<'_>, part: Range<usize>, found: u64) -> (usize, Vec<u32>) {
    let wanted = usize::try_from(around.limit - found).unwrap_or(usize::MAX);
    let mut feasible = Vec::new();
    for (index, slot) in around.order[part.clone()].iter().enumerate() {
        if lens.is_feasible(*slot) {
            if feasible.len() == wanted {
                return (index, feasible);
            }
            feasible.push(*slot);
        }
    }
    (part.len(), feasible)
}
