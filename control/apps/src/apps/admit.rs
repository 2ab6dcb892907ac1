//! What waits for a limit, and when it goes on: wakes at the rates of their tenants, pods as others go.

use dormouse_fleet::Boottime;

use super::Apps;
use super::turn::Turn;
use crate::admission;
#[cfg(doc)]
use crate::event::Event;

impl Apps {
    /// An app is wanted: wakes it if it is asleep, as soon as the rates allow it.
    pub(super) fn wake(&mut self, vip: u32, turn: &mut Turn) {
        let Some(tenant) = self.sleeping_tenant(vip) else {
            return;
        };
        if !self.waiting.want(&tenant, vip) {
            return;
        }
        self.admit(turn);
        if let Some(scope) = self.waiting.waits_for(vip) {
            self.metrics.delayed(scope);
            if self.waiting.announce(&tenant, turn.now) {
                turn.actions.push(admission::wakes_limited(tenant, scope));
            }
        }
    }

    /// Wakes the apps whose turn it is.
    pub(super) fn admit(&mut self, turn: &mut Turn) {
        while let Some(vip) = self.waiting.admit(turn.now) {
            self.wake_now(vip, turn);
        }
        self.metrics.waiting(self.waiting.len());
    }

    /// The time of the next [`Event::Admission`]; none while no wake waits.
    pub(crate) fn admission_due(&self) -> Option<Boottime> {
        self.waiting.due()
    }

    /// Plans the apps that wait for pods, while there is room.
    pub(super) fn take_turns(&mut self, turn: &mut Turn) {
        while let Some(vip) = self.bounds.turn() {
            self.plan_bounded(vip, true, turn);
        }
    }

    /// Wakes an app whose turn it is.
    pub(super) fn wake_now(&mut self, vip: u32, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return self.read_to_wake(vip, turn);
        };
        if record.wake(turn.now) {
            tracing::info!(app = %record.key, "waking");
            self.wakes.over(vip);
            self.wakes.begin(vip, record.key.clone(), turn.now);
            self.plan(vip, turn);
        }
    }
}
