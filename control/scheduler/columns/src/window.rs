//! The part of the order of nodes that an attempt looks at.

use std::ops::Range;

use crate::class::REJECTED;
use crate::lens::Lens;
use crate::number::{at, count, wide};

/// The share of a segment below which its nodes are looked at one by one.
const SHARE_MIN: usize = 16;

/// Neighbours in the order of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole segment.
    Whole(usize),
    /// The positions of a part of a segment.
    Range(usize, Range<u32>),
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
pub(crate) struct Around {
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
    pub(crate) fn of(around: Around, lens: &Lens<'_>) -> Self {
        let nodes_len = lens.order.len();
        let is_plain = lens.barred.is_some() || lens.apart_len_max() == 0;
        let mut window = Self::default();
        let (mut position, mut found) = (around.start % nodes_len, 0);
        while window.judged < nodes_len {
            let segment = position / lens.segment_len;
            let all = lens.positions_of(segment);
            let len = (all.end - position).min(nodes_len - window.judged);
            let part = position..position + len;
            let wanted = around.limit - found;
            let is_whole = is_plain && part == all;
            let whole = is_whole.then(|| feasible_len(lens, segment));
            let whole = whole.filter(|feasible| *feasible <= wanted);
            let needed = len.min(usize::try_from(wanted).unwrap_or(usize::MAX));
            let (piece, judged, feasible) = if let Some(feasible) = whole {
                (Piece::Whole(segment), len, feasible)
            } else if is_plain && needed * SHARE_MIN >= lens.segment_len {
                range(lens, segment, part, wanted)
            } else {
                listed(lens, part, wanted)
            };
            window.pieces.push(piece);
            window.judged += judged;
            found += feasible;
            if judged < len {
                break;
            }
            position = (position + len) % nodes_len;
        }
        window
    }
}

/// The part of a segment up to the feasible node that is one too many.
fn range(lens: &Lens<'_>, segment: usize, part: Range<usize>, wanted: u64) -> (Piece, usize, u64) {
    let (judged, feasible) = if !fits_all(lens, segment) {
        walk(lens, &part, wanted, |_| {})
    } else if let Some(barred) = &lens.barred {
        barred.up_to(part.clone(), wanted)
    } else {
        let judged = usize::try_from(wanted).unwrap_or(usize::MAX);
        let judged = judged.min(part.len());
        (judged, wide(judged))
    };
    let end = part.start + judged;
    let positions = count(part.start)..count(end);
    (Piece::Range(segment, positions), judged, feasible)
}

/// The same with a list of the feasible nodes.
fn listed(lens: &Lens<'_>, part: Range<usize>, wanted: u64) -> (Piece, usize, u64) {
    let mut list = Vec::new();
    let (judged, feasible) = walk(lens, &part, wanted, |slot| list.push(slot));
    (Piece::Part(list), judged, feasible)
}

/// The number of nodes up to the feasible one that is one too many, and of those that are feasible.
fn walk(
    lens: &Lens<'_>,
    part: &Range<usize>,
    wanted: u64,
    mut note: impl FnMut(u32),
) -> (usize, u64) {
    let mut feasible = 0;
    for (index, slot) in lens.order[part.clone()].iter().enumerate() {
        if lens.is_feasible(*slot) {
            if feasible == wanted {
                return (index, feasible);
            }
            feasible += 1;
            note(*slot);
        }
    }
    (part.len(), feasible)
}

/// The number of feasible nodes of a segment.
fn feasible_len(lens: &Lens<'_>, segment: usize) -> u64 {
    let all = lens.positions_of(segment);
    let barred = lens.barred.as_ref();
    let barred = barred.into_iter().flat_map(|set| set.within(all.clone()));
    if fits_all(lens, segment) {
        return wide(all.len() - barred.count());
    }
    let barred = barred.filter(|position| lens.fits_by_amounts(lens.order[*position]));
    let segment = &lens.segments[segment];
    let fitting = segment.fitting(&lens.demand);
    let fitting = fitting.filter(|(kind, _)| lens.bonus[at(*kind)] != REJECTED);
    let odd = segment.odd.iter().filter(|slot| lens.is_feasible(**slot));
    fitting.map(|(_, len)| len).sum::<u64>() + wide(odd.count()) - wide(barred.count())
}

/// Whether all nodes of a segment are known to be feasible, unless pods keep the pod away.
fn fits_all(lens: &Lens<'_>, segment: usize) -> bool {
    let segment = &lens.segments[segment];
    segment.odd.is_empty()
        && segment.families.iter().all(|family| {
            lens.bonus[at(family.kind)] != REJECTED && family.tree.fits_all(&lens.demand)
        })
}
