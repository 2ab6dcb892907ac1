//! What is to be in force: the step of a gradual rollout, its rows, and the pods that these need. Pure.

use dormouse_cluster::app::RolloutStatus;
use k8s_openapi::jiff::Timestamp;

use super::needs::{Needs, Target};
use super::split::Row;
use super::{Family, split, steps};
use crate::progress::OVERDUE;

/// What is to be in force.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) rollout: Option<RolloutStatus>,
    pub(super) rows: Vec<Row>,
    pub(super) needs: Needs,
    /// A rollout that was to begin and has no steps, and the pods that its child lacks for them.
    pub(super) ended: Option<(RolloutStatus, String)>,
}

impl Next {
    /// A rollout whose own pods are missing at the deadline fails. One that is to begin has no steps if its child's are.
    pub(super) fn new(family: &Family, now: Timestamp) -> Self {
        let app = &family.app;
        let next = Self::of(family, steps::next(app, family.sleeps(), now), now);
        let step = next.rollout.as_ref().or(steps::ending(app));
        let Some(step) = step.cloned() else {
            return next;
        };
        let overdue = |target| next.needs.overdue(target, family.status(target)?);
        let failure = overdue(Target::Own).map(|overdue| format!("{OVERDUE}: {overdue}"));
        if let Some(failed) = failure.and_then(|failure| steps::failed(&step, failure)) {
            return Self::of(family, Some(failed), now);
        }
        let overdue = overdue(Target::Child(step.from)).filter(|_| steps::begins(app, &step));
        let Some(overdue) = overdue else { return next };
        Self {
            ended: Some((step, overdue)),
            ..Self::of(family, None, now)
        }
    }

    fn of(family: &Family, rollout: Option<RolloutStatus>, now: Timestamp) -> Self {
        let rows = split::rows(&family.app, rollout.as_ref());
        let aim = steps::aim(&family.app, rollout.as_ref());
        let aim = split::rows(&family.app, aim.as_ref());
        Self {
            needs: Needs::new(family, &rows, &aim, now),
            rollout,
            rows,
            ended: None,
        }
    }
}
