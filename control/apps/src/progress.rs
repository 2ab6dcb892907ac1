//! The progress of the rollout of an app's template, and the condition that reports it.

use std::fmt;

use dormouse_cluster::app::{CRASH_LOOP, PROGRESSING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::action::Failure;

/// The reason of the condition and of the event about a rollout that is overdue; that of Kubernetes' Deployment.
pub(crate) const OVERDUE: &str = "ProgressDeadlineExceeded";

/// The reason of the condition about a rollout that is complete; that of Kubernetes' Deployment.
pub(crate) const COMPLETE: &str = "NewRevisionAvailable";

/// The reason of the condition while the app sleeps and no pod of the revision was ready yet.
pub(crate) const ASLEEP: &str = "Asleep";

/// The reason of the condition while a gradual rollout has failed, and the revision before has its traffic again.
const TAKEN_BACK: &str = "RolloutFailed";

/// The progress of the rollout of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The revision's number.
    pub revision: u32,
    /// How far it is.
    pub state: ProgressState,
    /// Pods of the revision that are ready, and pods of earlier ones that are.
    pub ready: usize,
    /// Ready pods of earlier revisions.
    pub earlier: usize,
    /// Pods that are wanted.
    pub wanted: usize,
}

/// How far a rollout is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgressState {
    /// The app sleeps, and no pod of the revision was ready yet.
    NotStarted,
    /// Pods of the revision replace those of earlier ones.
    RollingOut,
    /// It waits until pods of earlier revisions that leave are gone.
    AwaitsLeaving {
        /// Their number.
        leaving: usize,
    },
    /// It waits: `spec.paused` is set.
    Paused,
    /// It waits until the split of the app's traffic accounts for it.
    AwaitsSplit,
    /// A pod of it was ready, and all pods of other ones leave or are gone.
    Complete,
    /// It was complete, and its pods fail one after another.
    Failing {
        /// The condition's message.
        message: String,
    },
    /// Its traffic was taken back.
    TakenBack {
        /// Why.
        failure: String,
    },
    /// There was no progress within this many seconds.
    Overdue {
        /// The progress deadline, seconds.
        deadline_s: u32,
        /// Why its last pod failed.
        failure: Option<Failure>,
    },
}

impl Progress {
    /// The condition's status.
    fn status(&self) -> &'static str {
        match self.state {
            ProgressState::RollingOut
            | ProgressState::AwaitsLeaving { .. }
            | ProgressState::Complete => "True",
            ProgressState::NotStarted | ProgressState::Paused | ProgressState::AwaitsSplit => {
                "Unknown"
            }
            ProgressState::Overdue { .. }
            | ProgressState::Failing { .. }
            | ProgressState::TakenBack { .. } => "False",
        }
    }

    /// The condition's reason. Those that Kubernetes' Deployment has have its names.
    fn reason(&self) -> &'static str {
        match self.state {
            ProgressState::NotStarted => ASLEEP,
            ProgressState::RollingOut | ProgressState::AwaitsLeaving { .. } => "RollingOut",
            ProgressState::Paused => "Paused",
            ProgressState::AwaitsSplit => "AwaitsTrafficSplit",
            ProgressState::Complete => COMPLETE,
            ProgressState::Overdue { .. } => OVERDUE,
            ProgressState::Failing { .. } => CRASH_LOOP,
            ProgressState::TakenBack { .. } => TAKEN_BACK,
        }
    }

    /// The condition, about this generation of the app. The time of the last transition is that of `before` while the status
    /// is the same.
    pub(crate) fn condition(
        &self,
        generation: Option<i64>,
        before: Option<&Condition>,
        now: Timestamp,
    ) -> Condition {
        let status = self.status();
        let same = before.filter(|before| before.status == status);
        Condition {
            type_: PROGRESSING.to_owned(),
            status: status.to_owned(),
            reason: self.reason().to_owned(),
            message: self.to_string(),
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |same| same.last_transition_time.clone()),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            revision,
            ready,
            earlier,
            wanted,
            ..
        } = self;
        let counts = format!("{ready} of {wanted} pods are ready");
        match &self.state {
            ProgressState::NotStarted => {
                return write!(f, "revision {revision} starts with the next wake");
            }
            ProgressState::Complete => return write!(f, "revision {revision} is rolled out"),
            ProgressState::Failing { message } => return f.write_str(message),
            ProgressState::TakenBack { failure } => {
                return write!(
                    f,
                    "the traffic of revision {revision} was taken back: {failure}"
                );
            }
            ProgressState::RollingOut => write!(f, "revision {revision}: {counts}")?,
            ProgressState::AwaitsLeaving { leaving } => write!(
                f,
                "revision {revision} waits until {leaving} pods of earlier revisions are gone: {counts}"
            )?,
            ProgressState::Paused => write!(f, "revision {revision} is paused: {counts}")?,
            ProgressState::AwaitsSplit => write!(
                f,
                "revision {revision} waits until the traffic is divided (condition TrafficReady): {counts}"
            )?,
            ProgressState::Overdue {
                deadline_s,
                failure,
            } => {
                write!(
                    f,
                    "revision {revision}: no progress within {deadline_s} s, {counts}"
                )?;
                if let Some(failure) = failure {
                    write!(f, "; the last failure: {}", failure.brief())?;
                }
            }
        }
        match earlier {
            0 => Ok(()),
            pods => write!(f, "; ready pods of earlier revisions: {pods}"),
        }
    }
}
