//! The condition RolledOut of an app that does not sleep: all pods run its newest template, and its traffic is divided as in its manifest.
//! Progressing is True during a rollout, too, as that of Kubernetes' Deployment, so `kubectl wait` cannot wait for it.

use dormouse_cluster::app::{PROGRESSING, ROLLED_OUT, TRAFFIC_READY};
use dormouse_cluster::{App, AppStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// Sets the condition in the app's next status, from the other conditions there. As Knative's conditions it is Unknown while the outcome is
/// open, and False when it failed.
pub(crate) fn set(app: &App, next: &mut AppStatus, now: Timestamp) {
    let before = next.condition(ROLLED_OUT).cloned();
    let condition = condition(app, next, before.as_ref(), now);
    next.conditions.retain(|one| one.type_ != ROLLED_OUT);
    next.conditions.extend(condition);
}

fn condition(
    app: &App,
    next: &AppStatus,
    before: Option<&Condition>,
    now: Timestamp,
) -> Option<Condition> {
    let generation = app.metadata.generation;
    let is_current = |condition: &&Condition| condition.observed_generation == generation;
    let progressing = next.condition(PROGRESSING).filter(is_current)?;
    if next.state == State::Asleep {
        return None;
    }
    let is_complete = progressing.reason == "NewRevisionAvailable";
    let traffic = next.condition(TRAFFIC_READY);
    let (status, cause) = match (progressing.status.as_str(), traffic) {
        ("False", _) => ("False", progressing),
        (_, Some(traffic)) if is_complete && is_current(&traffic) => {
            (traffic.status.as_str(), traffic)
        }
        (_, None) if is_complete && !app.spec.divides_traffic() => ("True", progressing),
        _ => ("Unknown", progressing),
    };
    let same = before.filter(|before| before.status == status);
    Some(Condition {
        type_: ROLLED_OUT.to_owned(),
        status: status.to_owned(),
        reason: cause.reason.clone(),
        message: cause.message.clone(),
        observed_generation: generation,
        last_transition_time: same.map_or(Time(now), |same| same.last_transition_time.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn known(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "text",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    /// Status and reason of the condition, of an app of generation 3.
    fn of(state: &str, spec: &Value, conditions: &[Value]) -> Option<(String, String)> {
        let app = json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web", "generation": 3},
            "spec": spec,
            "status": {"state": state, "ready": 1, "wanted": 1, "conditions": conditions},
        });
        let app: App = serde_json::from_value(app).unwrap();
        let mut status = app.status.clone().unwrap();
        set(&app, &mut status, Timestamp::from_second(1).unwrap());
        let found = status.condition(ROLLED_OUT)?;
        Some((found.status.clone(), found.reason.clone()))
    }

    fn pair(status: &str, reason: &str) -> (String, String) {
        (status.to_owned(), reason.to_owned())
    }

    #[test]
    fn it_is_true_when_all_pods_run_the_newest_template_and_unknown_until_then() {
        let plain = json!({"container": {"name": "app"}});
        let one = |status, reason| [known(PROGRESSING, status, reason, 3)];
        let awake = |status, reason| of("Awake", &plain, &one(status, reason));
        let complete = "NewRevisionAvailable";
        assert_eq!(awake("True", complete), Some(pair("True", complete)));
        assert_eq!(
            awake("True", "RollingOut"),
            Some(pair("Unknown", "RollingOut"))
        );
        assert_eq!(awake("Unknown", "Paused"), Some(pair("Unknown", "Paused")));
        let overdue = "ProgressDeadlineExceeded";
        assert_eq!(awake("False", overdue), Some(pair("False", overdue)));
        assert_eq!(of("Asleep", &plain, &one("True", complete)), None);
        let earlier = [known(PROGRESSING, "True", complete, 2)];
        assert_eq!(of("Awake", &plain, &earlier), None);
    }

    #[test]
    fn the_traffic_is_a_part_of_it() {
        let split = json!({"container": {"name": "app"}, "traffic": [{"latestRevision": true, "percent": 100}]});
        let complete = "NewRevisionAvailable";
        let with = |traffic: Option<Value>| {
            let rolled_out = known(PROGRESSING, "True", complete, 3);
            let conditions: Vec<_> = [rolled_out].into_iter().chain(traffic).collect();
            of("Awake", &split, &conditions)
        };
        let traffic = |status, reason| with(Some(known(TRAFFIC_READY, status, reason, 3)));
        assert_eq!(traffic("True", "InForce"), Some(pair("True", "InForce")));
        assert_eq!(
            traffic("Unknown", "RollingOut"),
            Some(pair("Unknown", "RollingOut"))
        );
        assert_eq!(
            traffic("False", "RolloutFailed"),
            Some(pair("False", "RolloutFailed"))
        );
        let begun = known(PROGRESSING, "True", "RollingOut", 3);
        let divided = known(TRAFFIC_READY, "True", "InForce", 3);
        let rolling_out = of("Awake", &split, &[begun, divided]);
        assert_eq!(rolling_out, Some(pair("Unknown", "RollingOut")));
        assert_eq!(with(None), Some(pair("Unknown", complete)));
        let earlier = known(TRAFFIC_READY, "True", "InForce", 2);
        assert_eq!(with(Some(earlier)), Some(pair("Unknown", complete)));
    }
}
