//! One call of [`super::Apps::apply`]: its time, and what has followed so far.

use dormouse_fleet::Boottime;

use crate::action::Action;

/// The time of one call, and what follows from it.
pub(super) struct Turn {
    pub(super) now: Boottime,
    pub(super) actions: Vec<Action>,
    pub(super) ports_moved: bool,
    pub(super) waits: bool,
    pub(super) admitted: Vec<usize>,
}

/// What follows from one event.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    /// The actions. Those about one VIP come from its shard alone, so they are in order.
    pub actions: Vec<Action>,
    /// The number of apps on a port has changed: activators get the ports of all shards before the actions are executed.
    pub ports_moved: bool,
    /// A wake waits for the rates: it is due at another time.
    pub waits: bool,
    /// Other shards with apps whose turn it is: each gets a [`ShardEvent::Admission`](crate::event::ShardEvent::Admission).
    pub admitted: Vec<usize>,
}

impl Turn {
    pub(super) fn new(now: Boottime) -> Self {
        Self {
            now,
            actions: Vec::new(),
            ports_moved: false,
            waits: false,
            admitted: Vec::new(),
        }
    }

    pub(super) fn effects(self) -> Effects {
        Effects {
            actions: self.actions,
            ports_moved: self.ports_moved,
            waits: self.waits,
            admitted: self.admitted,
        }
    }
}
