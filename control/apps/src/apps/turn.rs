//! One call of [`super::Apps::apply`]: its time, and the actions decided so far.

use dormouse_fleet::Boottime;

use crate::action::Action;

/// The time and the actions of one call.
pub(super) struct Turn {
    pub(super) now: Boottime,
    pub(super) actions: Vec<Action>,
}

impl Turn {
    pub(super) fn new(now: Boottime) -> Self {
        Self {
            now,
            actions: Vec::new(),
        }
    }
}
