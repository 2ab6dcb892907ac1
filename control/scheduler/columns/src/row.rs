//! A node's row in the columns.

use crate::segment::Place;
use crate::state::State;

/// What the index knows of the node of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) state: State,
    pub(crate) evenness: f64,
    pub(crate) kind: u32,
    pub(crate) segment: u32,
    pub(crate) place: Place,
}

impl Row {
    pub(crate) const fn empty() -> Self {
        Self {
            state: State::nothing(),
            evenness: 0.0,
            kind: 0,
            segment: 0,
            place: Place::Nowhere,
        }
    }
}
