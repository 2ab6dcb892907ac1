//! The end of a wake: how, when, in which stage and why.

use dormouse_activator::Unanswered;
use dormouse_fleet::Boottime;
use prometheus_client::encoding::EncodeLabelValue;

use super::{STAGES, Wake};

/// How a wake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
pub(crate) enum Outcome {
    /// A response began.
    answered,
    /// Its pods failed.
    failed,
    /// No pod was ready, or none responded, in time.
    timed_out,
    /// All clients closed their connections, or none sent a request.
    abandoned,
    /// A limit refused its requests.
    refused,
}

impl Outcome {
    /// Its name, as in the `outcome` label of the metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::answered => "answered",
            Self::failed => "failed",
            Self::timed_out => "timed_out",
            Self::abandoned => "abandoned",
            Self::refused => "refused",
        }
    }
}

impl From<Unanswered> for Outcome {
    fn from(how: Unanswered) -> Self {
        match how {
            Unanswered::Abandoned => Self::abandoned,
            Unanswered::TimedOut => Self::timed_out,
            Unanswered::Failed => Self::failed,
            Unanswered::Refused => Self::refused,
        }
    }
}

/// The end of a wake.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    pub(super) at: Boottime,
    pub(super) outcome: Outcome,
    /// The stage that did not end; none: all have ended.
    pub(super) stage: Option<&'static str>,
    /// Why there was no response, if that is known.
    pub(super) reason: Option<String>,
}

impl Wake {
    /// Records the end of a wake of which only this stage was reached.
    pub(super) fn end_in(&mut self, stage: &'static str, at: Boottime, outcome: Outcome) {
        self.ending = Some(Ending {
            at,
            outcome,
            stage: Some(stage),
            reason: None,
        });
    }

    /// Records the first end.
    pub(super) fn end(&mut self, at: Boottime, outcome: Outcome, reason: Option<String>) {
        let reached = self.ends().iter().rposition(Option::is_some);
        let stage = STAGES.get(reached.map_or(0, |last| last + 1)).copied();
        self.ending.get_or_insert(Ending {
            at,
            outcome,
            stage,
            reason,
        });
    }
}
