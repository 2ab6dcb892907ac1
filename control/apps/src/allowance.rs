//! The limits of pods as one app's plan sees them, and what the plan did with them.

use crate::admission::{Admission, Held, Scope};
use crate::record::AppRecord;

/// An app's share of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    /// The most pods of an app; 0: no limit.
    per_app: u32,
    /// The number of its pods that count towards those of its tenant.
    counted: usize,
    /// It waits for its turn.
    lacks: bool,
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

    /// Takes the missing pods, as far as the limits allow; records the limit that the app meets.
    pub(crate) fn admit(&mut self, missing: usize, admission: &Admission) -> usize {
        let (taken, share) = if missing > 0 || self.allowance.lacks {
            let (taken, share) = admission.take_pods(&self.key.namespace, self.vip, missing);
            (taken, Some(share))
        } else {
            (0, None)
        };
        self.allowance.counted += taken;
        self.allowance.lacks = taken < missing;
        let most = Held {
            by: Scope::App,
            limit: self.allowance.per_app,
        };
        self.held = if taken < missing {
            share
        } else {
            let more =
                self.want > 0 && usize::try_from(self.want).is_ok_and(|want| want > self.wanted());
            more.then_some(most)
        };
        taken
    }

    /// Reads the limits before a plan, and counts the pods that have gone or appeared since the last one.
    pub(crate) fn bound(&mut self, admission: &Admission) {
        self.allowance.per_app = admission.pods_per_app();
        let now = self.members.len();
        let before = std::mem::replace(&mut self.allowance.counted, now);
        if before != now {
            admission.pods_counted(&self.key.namespace, before, now);
        }
    }

    /// The record's pods no longer count towards those of its tenant, until the next plan.
    pub(crate) fn unbound(&mut self, admission: &Admission) {
        let counted = std::mem::take(&mut self.allowance.counted);
        self.allowance.lacks = false;
        admission.forget_pods(&self.key.namespace, self.vip, counted);
    }
}
