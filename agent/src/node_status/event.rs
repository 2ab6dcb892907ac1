//! Events about the node: which problems are reported again, and the object of one. Pure.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::own_node::Problem;
use crate::source::kubernetes::{Method, Write};

/// The namespace of Events about objects without one.
const PATH: &str = "/api/v1/namespaces/default/events";
/// The component that reports.
const COMPONENT: &str = "dormouse-agent";
/// A problem that lasts is reported again after this time; Kubernetes deletes Events after an hour.
const REPEAT_EVERY: Duration = Duration::from_hours(1);
/// A problem with another text is reported after this time.
const CHANGE_EVERY: Duration = Duration::from_mins(1);
/// Events of one node within [`REPEAT_EVERY`].
const EVENTS_MAX: u32 = 30;
/// Limit of Kubernetes, in bytes.
const NOTE_MAX: usize = 1_024;
/// Maximum length of the part of an Event's name that is the node's: the rest is a time.
const NAME_MAX: usize = 230;

/// Decides which problems are reported.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    /// The text that was reported last, and when, by reason.
    reported: HashMap<&'static str, (String, Duration)>,
    began: Duration,
    events: u32,
}

impl Limiter {
    /// Whether a problem that is seen now is to be reported. `now`: since any fixed time.
    pub(super) fn admits(&self, problem: &Problem, now: Duration) -> bool {
        if let Some((note, at)) = self.reported.get(problem.reason) {
            let pause = if *note == problem.note {
                REPEAT_EVERY
            } else {
                CHANGE_EVERY
            };
            if now.saturating_sub(*at) < pause {
                return false;
            }
        }
        self.events < EVENTS_MAX || self.is_over(now)
    }

    /// Notes that a problem was reported.
    pub(super) fn record(&mut self, problem: &Problem, now: Duration) {
        if self.is_over(now) {
            (self.began, self.events) = (now, 0);
        }
        self.events += 1;
        let reported = (problem.note.clone(), now);
        self.reported.insert(problem.reason, reported);
    }

    /// Whether the time in which reports are counted is over.
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= REPEAT_EVERY
    }
}

/// The Event of a problem.
pub(super) fn write(node: &str, uid: Option<&str>, problem: &Problem, now: Timestamp) -> Write {
    let start: String = node.chars().take(NAME_MAX).collect();
    let start = start.trim_end_matches(['.', '-']);
    let (name, at) = (
        format!("{start}.{:x}", now.as_nanosecond()),
        format!("{now:.0}"),
    );
    Write {
        method: Method::Create,
        path: PATH.to_owned(),
        body: json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "name": name},
            "type": "Warning",
            "reason": problem.reason,
            "message": shortened(&problem.note),
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid.unwrap_or(node)},
            "source": {"component": COMPONENT, "host": node},
        }),
    }
}

fn shortened(note: &str) -> &str {
    &note[..note.floor_char_boundary(NOTE_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(reason: &'static str, note: &str) -> Problem {
        Problem {
            reason,
            note: note.to_owned(),
        }
    }

    /// Whether a problem is reported, by a write that succeeds.
    fn reports(limiter: &mut Limiter, problem: &Problem, now: Duration) -> bool {
        let is_admitted = limiter.admits(problem, now);
        if is_admitted {
            limiter.record(problem, now);
        }
        is_admitted
    }

    #[test]
    fn a_report_that_fails_is_made_again() {
        let mut limiter = Limiter::default();
        let (full, at) = (problem("MapFull", "full"), Duration::from_secs);
        assert!(limiter.admits(&full, at(0)) && limiter.admits(&full, at(30)));
        limiter.record(&full, at(30));
        assert!(!limiter.admits(&full, at(60)));
    }

    #[test]
    fn a_problem_that_lasts_is_one_event_an_hour() {
        let mut limiter = Limiter::default();
        let seconds = (0..7_200).step_by(30);
        let reported = seconds.filter(|second| {
            let full = problem("MapFull", "full");
            reports(&mut limiter, &full, Duration::from_secs(*second))
        });
        assert_eq!(reported.collect::<Vec<_>>(), [0, 3_600]);
    }

    #[test]
    fn another_text_is_reported_after_a_minute_and_another_reason_at_once() {
        let mut limiter = Limiter::default();
        let at = Duration::from_secs;
        let mut reported = |reason, note, now| reports(&mut limiter, &problem(reason, note), now);
        assert!(reported("MapFull", "flow", at(0)));
        assert!(!reported("MapFull", "backend", at(30)));
        assert!(reported("PrefixExhausted", "p", at(30)));
        assert!(reported("MapFull", "backend", at(60)));
        assert!(!reported("MapFull", "flow", at(90)));
    }

    #[test]
    fn a_text_that_changes_all_the_time_does_not_flood_the_server() {
        let mut limiter = Limiter::default();
        let texts = (0..3_600).map(|second| (problem("MapFull", &second.to_string()), second));
        let reported = texts.filter(|(problem, second)| {
            reports(&mut limiter, problem, Duration::from_secs(*second))
        });
        assert_eq!(u32::try_from(reported.count()), Ok(EVENTS_MAX));
        assert!(limiter.admits(&problem("MapFull", "later"), REPEAT_EVERY * 2));
    }

    #[test]
    fn the_object_is_one_that_kubernetes_accepts() {
        let long = "é".repeat(1_000);
        let now = Timestamp::UNIX_EPOCH;
        let node = format!("{}.{}", "a".repeat(NAME_MAX - 1), "b".repeat(20));
        let event = write(&node, None, &problem("MapFull", &long), now).body;
        assert_eq!(event["lastTimestamp"], "1970-01-01T00:00:00Z");
        assert!(event["message"].as_str().unwrap().len() <= NOTE_MAX);
        let name = event["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 253 && !name.contains(".."), "{name}");
        let parsed: k8s_openapi::api::core::v1::Event = serde_json::from_value(event).unwrap();
        assert_eq!(parsed.metadata.namespace.as_deref(), Some("default"));
    }
}
