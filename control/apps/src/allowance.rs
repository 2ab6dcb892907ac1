//! The limits of pods as one app's plan sees them, and what the plan did with them.

use crate::admission::{Held, Pods, Scope};
use crate::record::AppRecord;

/// What the limits leave to an app; by default there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The most pods of an app; 0: no limit.
    per_app: u32,
    /// How many pods the app may add now.
    room: usize,
    /// The limit that it meets after those; none: there is none.
    share: Option<Held>,
    /// The number of its pods that count towards those of its tenant.
    counted: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            per_app: 0,
            room: usize::MAX,
            share: None,
            counted: 0,
        }
    }
}

impl AppRecord {
    /// The number of pods that the plan aims at: what the autoscaler wants, at most the limit of an app.
    pub(crate) fn wanted(&self) -> usize {
        let want = self.want.max(0).unsigned_abs();
        let bounded = match self.allowance.per_app {
            0 => want,
            most => want.min(most),
        };
        usize::try_from(bounded).unwrap_or(usize::MAX)
    }

    /// How many of the missing pods may be created; records the limit that the app meets.
    pub(crate) fn admit(&mut self, missing: usize) -> usize {
        let Allowance {
            per_app,
            room,
            share,
            ..
        } = self.allowance;
        let most = Held {
            by: Scope::App,
            limit: per_app,
        };
        self.held = if missing > room {
            share
        } else {
            let more =
                self.want > 0 && usize::try_from(self.want).is_ok_and(|want| want > self.wanted());
            more.then_some(most)
        };
        missing.min(room)
    }

    /// Reads the limits before a plan.
    pub(crate) fn bound(&mut self, pods: &mut Pods, its_turn: bool) {
        self.count(pods);
        let (room, share) = pods.room(&self.key.namespace, its_turn);
        let allowance = &mut self.allowance;
        (allowance.per_app, allowance.room, allowance.share) = (pods.per_app(), room, Some(share));
    }

    /// Counts the pods after a plan; an app that lacks some because of its tenant's limit or of that of all waits for its turn.
    pub(crate) fn bounded(&mut self, pods: &mut Pods) {
        self.count(pods);
        let lacks = self.held.is_some_and(|held| held.by != Scope::App);
        pods.lacks(&self.key.namespace, self.vip, lacks);
    }

    /// The record's pods no longer count towards those of its tenant, until the next plan.
    pub(crate) fn unbound(&mut self, pods: &mut Pods) {
        let counted = std::mem::take(&mut self.allowance.counted);
        pods.counted(&self.key.namespace, counted, 0);
        pods.lacks(&self.key.namespace, self.vip, false);
    }

    fn count(&mut self, pods: &mut Pods) {
        let now = self.members.len();
        let before = std::mem::replace(&mut self.allowance.counted, now);
        pods.counted(&self.key.namespace, before, now);
    }
}
