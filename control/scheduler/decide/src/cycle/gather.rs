//! The decision of an attempt, from the merged answers of all parts of a cluster: what is asked next, and the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::exchange::{Answer, Counts, Looked, Question, Top, Trial};
use super::{Nomination, Outcome};
use crate::message;
use crate::pod::Pod;
use crate::preempt::{self, Preemption, Tried};
use crate::profile::Profile;
use crate::status::{Code, Plugin, Status};

/// An attempt, as its answers come in.
#[derive(Clone, Debug)]
pub struct Gather {
    profile: Arc<Profile>,
    never_preempts: bool,
    /// The offset of the first node on which preemption is tried.
    preemption_offset: usize,
    nodes_len: usize,
    /// While preemption is tried.
    rejection: Option<Box<Rejection>>,
}

/// A pod that PreFilter or all nodes rejected.
#[derive(Clone, Debug)]
struct Rejection {
    conclusion: Conclusion,
    text: String,
    /// Those of PostFilter.
    reasons: Vec<String>,
    /// The reason for which the pod may not preempt now.
    ineligible: Option<String>,
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Step {
    /// All parts are to be asked.
    Ask(Question),
    /// The attempt has ended.
    Done(Box<Conclusion>),
}

/// The end of an attempt.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// The end.
    pub outcome: Outcome,
    /// What becomes of the pod's nomination.
    pub nomination: Nomination,
    /// The verdict by which PreFilter rejected the pod.
    pub pre_filter: Option<Status>,
    /// The plugins that rejected the pod or a node for it, and may wake it; none for an attempt that failed.
    pub unschedulable_plugins: BTreeSet<Plugin>,
    /// Missing if it was not tried.
    pub preemption: Option<Preemption>,
    /// The best nodes; empty if there are none.
    pub top: Top,
}

impl Conclusion {
    fn new(outcome: Outcome, nomination: Nomination) -> Self {
        Self {
            outcome,
            nomination,
            pre_filter: None,
            unschedulable_plugins: BTreeSet::new(),
            preemption: None,
            top: Top::default(),
        }
    }

    /// Its text comes with PostFilter.
    fn unschedulable() -> Self {
        Self::new(Outcome::Unschedulable(String::new()), Nomination::Keep)
    }

    fn placed(top: Top) -> Step {
        let mut conclusion = Self::new(Outcome::Placed, Nomination::Keep);
        conclusion.top = top;
        Step::Done(Box::new(conclusion))
    }

    fn failed(error: String) -> Step {
        let conclusion = Self::new(Outcome::Error(error), Nomination::Clear);
        Step::Done(Box::new(conclusion))
    }
}

impl Gather {
    /// An attempt for a pod. The first question is [`Question::Count`].
    pub fn new(profile: Arc<Profile>, pod: &Pod, preemption_offset: usize) -> Self {
        Self {
            profile,
            never_preempts: pod.never_preempts,
            preemption_offset,
            nodes_len: 0,
            rejection: None,
        }
    }

    /// The end for a pod that all of so many nodes rejected.
    pub(super) fn end(
        mut self,
        nodes_len: usize,
        looked: Looked,
        try_nodes: impl FnOnce(Trial) -> Tried,
    ) -> Conclusion {
        self.nodes_len = nodes_len;
        let end = match (self.rejected(looked), self.rejection.take()) {
            (Step::Ask(Question::Preempt(trial)), Some(rejection)) => {
                self.post_filter(*rejection, try_nodes(trial))
            }
            (end, _) => end,
        };
        match end {
            Step::Done(conclusion) => *conclusion,
            Step::Ask(_) => Conclusion::new(
                Outcome::Error("the attempt does not end".to_owned()),
                Nomination::Keep,
            ),
        }
    }

    /// What comes after an answer, into which those of all parts are merged.
    pub fn next(&mut self, answer: Answer) -> Step {
        match answer {
            Answer::Counts(counts) => self.counted(counts),
            Answer::Looked(looked) => self.looked(looked),
            Answer::Ranges(ranges) => Step::Ask(Question::Weigh(ranges)),
            Answer::Top(Ok(top)) => Conclusion::placed(top),
            Answer::Top(Err(error)) => Conclusion::failed(error),
            Answer::Candidates(candidates) => match self.rejection.take() {
                Some(rejection) => self.post_filter(*rejection, candidates.into()),
                None => Conclusion::failed("preemption was not asked for".to_owned()),
            },
        }
    }

    fn counted(&mut self, mut counts: Counts) -> Step {
        self.nodes_len = counts.nodes_len;
        if counts.nodes_len == 0 {
            let outcome = Outcome::Unschedulable(message::NO_NODES.to_owned());
            return Step::Done(Box::new(Conclusion::new(outcome, Nomination::Clear)));
        }
        match counts.refused.take() {
            None => Step::Ask(Question::Look(Box::new(counts))),
            Some(status) if status.code == Code::Error => {
                let plugin = status.plugin.map(|plugin| plugin.to_string());
                let (plugin, message) = (plugin.unwrap_or_default(), status.message());
                Conclusion::failed(format!("running PreFilter plugin {plugin:?}: {message}"))
            }
            Some(status) => self.refused(status),
        }
    }

    fn looked(&mut self, mut looked: Box<Looked>) -> Step {
        if let Some(error) = looked.error.take() {
            return Conclusion::failed(error);
        }
        if looked.feasible_len == 0 {
            return self.rejected(*looked);
        }
        if let Some(part) = looked.sole {
            return Conclusion::placed(Top::sole(part));
        }
        match looked.survey {
            Ok(survey) => Step::Ask(Question::Score(survey)),
            Err(error) => Conclusion::failed(error),
        }
    }

    /// PreFilter rejected the pod.
    fn refused(&self, status: Status) -> Step {
        let mut conclusion = Conclusion::unschedulable();
        let text = message::rejected_at_once(self.nodes_len, &status);
        conclusion.unschedulable_plugins.extend(status.plugin);
        conclusion.pre_filter = Some(status);
        let has_devices = |plugins: &[Plugin]| plugins.contains(&Plugin::DynamicResources);
        if has_devices(&self.profile.pre_filter) && has_devices(&self.profile.post_filter) {
            // DynamicResources did not come to its PreFilter, and fails without what it would have left there.
            conclusion.outcome = Outcome::Unschedulable(format!("{text} not found"));
            return Step::Done(Box::new(conclusion));
        }
        let rejection = Rejection {
            conclusion,
            text,
            reasons: Vec::new(),
            ineligible: preempt::ineligible(self.never_preempts, false),
        };
        self.post_filter(rejection, Tried::default())
    }

    /// All nodes rejected the pod.
    fn rejected(&mut self, looked: Looked) -> Step {
        let trial = Trial {
            potential_len: looked.potential_len,
            offset: self.preemption_offset,
        };
        let mut rejection = Rejection {
            conclusion: Conclusion::unschedulable(),
            text: looked
                .reasons
                .text(self.nodes_len, looked.absent.as_deref()),
            reasons: Vec::new(),
            ineligible: preempt::ineligible(self.never_preempts, looked.is_waiting),
        };
        rejection.conclusion.unschedulable_plugins = looked.plugins;
        let plugins = &self.profile.post_filter;
        if plugins.contains(&Plugin::DynamicResources) {
            let reason = "no new claims to deallocate";
            rejection.reasons.push(reason.to_owned());
        }
        let is_tried = plugins.contains(&Plugin::DefaultPreemption);
        if !is_tried || rejection.ineligible.is_some() {
            return self.post_filter(rejection, Tried::default());
        }
        self.rejection = Some(Box::new(rejection));
        Step::Ask(Question::Preempt(trial))
    }

    /// The end of a pod that was rejected.
    fn post_filter(&self, rejection: Rejection, tried: Tried) -> Step {
        let (mut conclusion, mut reasons) = (rejection.conclusion, rejection.reasons);
        let plugins = &self.profile.post_filter;
        if plugins.contains(&Plugin::DefaultPreemption) {
            let preemption = preempt::concluded(rejection.ineligible, tried, self.nodes_len);
            conclusion.nomination = nomination(&preemption);
            match (&preemption.error, &preemption.message) {
                // A failure stands alone.
                (Some(error), _) => reasons = vec![format!("preemption: {error}")],
                (None, Some(message)) => reasons.push(format!("preemption: {message}")),
                (None, None) => reasons.clear(),
            }
            conclusion.preemption = Some(preemption);
        }
        let text = message::with_post_filter(rejection.text, &reasons.join(", "));
        conclusion.outcome = Outcome::Unschedulable(text);
        Step::Done(Box::new(conclusion))
    }
}

fn nomination(preemption: &Preemption) -> Nomination {
    if preemption.ineligible.is_some() || preemption.error.is_some() {
        Nomination::Keep
    } else if preemption.candidates.is_empty() {
        Nomination::Clear
    } else {
        Nomination::ToVictims
    }
}
