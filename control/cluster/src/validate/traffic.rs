//! Validation of how an app divides its traffic.

use std::collections::BTreeSet;
use std::time::Duration;

use super::name;
use crate::app::{AppSpec, GradualRollout, Sticky, TrafficTarget};
use crate::{FieldError, revision};

/// Upper limit of an app's targets.
pub const TARGETS_MAX: usize = 16;
/// Shortest duration of a gradual rollout: a step takes no shorter than a write of the app.
const ROLLOUT_MIN: Duration = Duration::from_secs(1);
/// Limit of a tag's length: that of a DNS label.
const TAG_LEN_MAX: usize = 63;
/// The word of the command line for the app's own template.
const LATEST: &str = "latest";

/// Adds the errors of the traffic of the app `app`.
pub(super) fn check(app: &str, spec: &AppSpec, errors: &mut Vec<FieldError>) {
    let mut tags = BTreeSet::new();
    for (index, target) in spec.traffic.iter().enumerate() {
        let field = format!("spec.traffic[{index}]");
        errors.extend(revision_of(app, target, &field));
        errors.extend(tag(target, &mut tags, &field));
    }
    errors.extend(sum(&spec.traffic));
    if spec.traffic.len() > TARGETS_MAX {
        let message = format!(
            "has {} targets, at most {TARGETS_MAX} are allowed",
            spec.traffic.len()
        );
        errors.push(FieldError::invalid("spec.traffic", message));
    }
    errors.extend(spec.rollout.as_ref().and_then(rollout));
    errors.extend(spec.sticky.as_ref().and_then(sticky));
}

fn sum(targets: &[TrafficTarget]) -> Option<FieldError> {
    let percents = targets.iter().map(|target| u64::from(target.percent));
    let sum: u64 = percents.sum();
    let message = format!("the percentages add up to {sum}: change them so that they are 100");
    (!targets.is_empty() && sum != 100).then(|| FieldError::invalid("spec.traffic", message))
}

fn revision_of(app: &str, target: &TrafficTarget, field: &str) -> Option<FieldError> {
    let name = target.revision_name.as_deref();
    match (name, target.is_latest()) {
        (None, false) => Some(FieldError::required(
            field,
            "names no revision: set latestRevision: true or revisionName",
        )),
        (Some(_), true) => Some(FieldError::invalid(
            field,
            "has both revisionName and latestRevision: true: remove one of them",
        )),
        (Some(name), false) if revision::number_of(app, name).is_none() => {
            let message = format!(
                "`{name}` is no revision of this app: those are {app}-1, {app}-2 and so on (dormouse rollout history app {app})"
            );
            Some(FieldError::invalid(
                format!("{field}.revisionName"),
                message,
            ))
        }
        _ => None,
    }
}

fn tag<'a>(
    target: &'a TrafficTarget,
    known: &mut BTreeSet<&'a str>,
    field: &str,
) -> Option<FieldError> {
    let tag = target.tag.as_deref()?;
    let field = format!("{field}.tag");
    if !known.insert(tag) {
        let message = format!("`{tag}` is the tag of an earlier target: choose another one");
        return Some(FieldError::invalid(field, message));
    }
    if tag == LATEST {
        let message =
            "`latest` is the app's own template in `dormouse rollout traffic`: choose another tag";
        return Some(FieldError::invalid(field, message));
    }
    name::check(&field, tag, TAG_LEN_MAX)
}

fn rollout(rollout: &GradualRollout) -> Option<FieldError> {
    if !(1..=100).contains(&rollout.step_percent) {
        let message = "must be between 1 and 100";
        return Some(FieldError::invalid("spec.rollout.stepPercent", message));
    }
    (rollout.duration.get() < ROLLOUT_MIN).then(|| {
        let message =
            "must be at least 1s: without rollout, all traffic changes as soon as pods are ready";
        FieldError::invalid("spec.rollout.duration", message)
    })
}

fn sticky(sticky: &Sticky) -> Option<FieldError> {
    let (field, name) = match sticky {
        Sticky::Header(name) => ("spec.sticky.header", name),
        Sticky::Cookie(name) => ("spec.sticky.cookie", name),
        Sticky::ClientIp {} => return None,
    };
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let fine = !name.is_empty() && name.chars().all(is_token);
    let message = format!("`{name}` is not a valid name: use letters, digits and dashes");
    (!fine).then(|| FieldError::invalid(field, message))
}
