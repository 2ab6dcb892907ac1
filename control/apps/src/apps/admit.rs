//! What waits for a limit, and when it goes on: wakes at the rates of their tenants, pods as others go.

use super::Apps;
use super::turn::Turn;
use crate::action::{Action, Route};
use crate::admission::{self, Scope};
use crate::plan;

impl Apps {
    /// An app is wanted: wakes it if it is asleep, as soon as the rates allow it.
    pub(super) fn wake(&mut self, vip: u32, turn: &mut Turn) {
        let Some(tenant) = self.sleeping_tenant(vip) else {
            return;
        };
        let waits = self.shared.admission.want(&tenant, vip, turn.now);
        self.admit(turn);
        if let Some(waits) = waits {
            turn.waits = true;
            let route = self.waiting_route(vip, waits.scope);
            turn.actions.extend(route);
            self.shared.metrics.delayed(waits.scope);
            if waits.is_announced {
                let event = admission::wakes_limited(tenant, waits.scope);
                turn.actions.push(event);
            }
        }
    }

    /// The route of an app whose wake waits for a limit: its clients get the reason.
    fn waiting_route(&mut self, vip: u32, scope: Scope) -> Option<Action> {
        let problem = Some(admission::waiting_problem(scope));
        if let Some(record) = self.records.get_mut(&vip) {
            let route = Route {
                problem,
                ..plan::route_of(record)?
            };
            // The wake replaces it.
            record.route = Some(route.clone());
            let version = record.published.version;
            let route = Some(route);
            return Some(Action::Route {
                vip,
                version,
                route,
            });
        }
        let version = self.sleep.get(vip)?.revision;
        let route = Route {
            problem,
            ..self.sleep.route(vip)?
        };
        let route = Some(route);
        Some(Action::Route {
            vip,
            version,
            route,
        })
    }

    /// Wakes the apps whose turn it is.
    pub(super) fn admit(&mut self, turn: &mut Turn) {
        let (vips, admitted) = self.shared.admission.wakes(self.shard, turn.now);
        turn.admitted = admitted;
        for vip in vips {
            self.wake_now(vip, turn);
        }
    }

    /// Plans the apps that wait for pods, while there is room.
    pub(super) fn take_turns(&mut self, turn: &mut Turn) {
        loop {
            let (vips, admitted) = self.shared.admission.turns(self.shard);
            turn.admitted = admitted;
            if vips.is_empty() {
                return;
            }
            for vip in vips {
                self.plan(vip, turn);
                self.shared.admission.end_turn(vip);
            }
        }
    }

    /// Wakes an app whose turn it is.
    pub(super) fn wake_now(&mut self, vip: u32, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return self.read_to_wake(vip, turn);
        };
        record.update_settings(&self.shared.settings, turn.now);
        if record.wake(turn.now) {
            tracing::debug!(app = %record.key, "waking");
            let before = self.wakes.over(vip, turn.now, None);
            self.shared.metrics.wake_over(before);
            self.wakes.begin(vip, record.key.clone(), turn.now);
            self.plan(vip, turn);
        }
    }
}
