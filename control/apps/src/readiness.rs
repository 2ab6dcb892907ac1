//! The condition Ready of an app. A sleeping app has none: its stored object stays small.

use dormouse_cluster::State;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::action::Status;

/// The type of the condition.
pub(crate) const READY: &str = "Ready";

/// The condition. The time of the last transition is that of `before` while its status is the same.
pub(crate) fn condition(
    status: &Status,
    before: Option<&Condition>,
    now: Timestamp,
) -> Option<Condition> {
    let (holds, default_reason) = match status.state {
        State::Asleep => return None,
        State::Waking => ("False", "Waking"),
        State::Awake => ("True", "PodsReady"),
    };
    let failure = status.failure.as_ref();
    let reason = failure.map_or(default_reason, |failure| failure.reason.as_str());
    let mut message = format!("{} of {} pods are ready", status.ready, status.wanted);
    if let Some(failure) = failure {
        message = format!("{message}: {}", failure.brief());
    }
    let same = before.filter(|before| before.status == holds);
    Some(Condition {
        type_: READY.to_owned(),
        status: holds.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: status.generation,
        last_transition_time: same.map_or(Time(now), |same| same.last_transition_time.clone()),
    })
}

#[cfg(test)]
mod tests {
    use dormouse_cluster::Mode;

    use super::*;
    use crate::action::Failure;
    use crate::progress::{Progress, ProgressState};

    fn status(state: State, ready: u32, failure: Option<Failure>) -> Status {
        Status {
            state,
            mode: Mode::Proxy,
            ready,
            wanted: 2,
            last_wake: None,
            failure,
            generation: Some(3),
            template_hash: String::new(),
            ready_revision: None,
            pod_failures: None,
            progress: Progress {
                revision: 1,
                state: ProgressState::RollingOut,
                ready: 0,
                earlier: 0,
                wanted: 2,
            },
        }
    }

    #[test]
    fn an_app_is_ready_with_a_ready_pod_and_the_reason_is_that_of_missing_ones() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let failure = || Some(Failure::new("Error", "exited with status 1\nan output"));
        let waking = status(State::Waking, 0, failure());
        let first = condition(&waking, None, at(1)).unwrap();
        assert_eq!(
            (first.status.as_str(), first.reason.as_str()),
            ("False", "Error")
        );
        assert_eq!(
            first.message,
            "0 of 2 pods are ready: Error: exited with status 1"
        );
        let waking = status(State::Waking, 0, None);
        let second = condition(&waking, Some(&first), at(2)).unwrap();
        assert_eq!(second.reason, "Waking");
        assert_eq!(second.last_transition_time, first.last_transition_time);
        let awake = status(State::Awake, 1, failure());
        let third = condition(&awake, Some(&second), at(3)).unwrap();
        assert_eq!(
            (third.status.as_str(), third.reason.as_str()),
            ("True", "Error")
        );
        assert_eq!(third.last_transition_time, Time(at(3)));
        let asleep = status(State::Asleep, 0, None);
        assert_eq!(condition(&asleep, Some(&third), at(4)), None);
    }
}
