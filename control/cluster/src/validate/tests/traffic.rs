//! Divided traffic, gradual rollouts and what requests have in common.

use super::*;

/// Checks the error of an app with these targets.
fn check_traffic(targets: Value, field: &str, message: &str) {
    check(|v| v["spec"]["traffic"] = targets, field, message);
}

#[test]
fn traffic_names_revisions_of_the_app_and_adds_up_to_100() {
    let latest = |percent: u32| json!({"latestRevision": true, "percent": percent});
    let pinned = |name: &str, percent: u32| json!({"revisionName": name, "percent": percent});
    let valid =
        json!([latest(90), pinned("docs-2", 10), {"revisionName": "docs-3", "tag": "next"}]);
    assert_eq!(
        errors_of(&decoded(|v| v["spec"]["traffic"] = valid), &[]),
        vec![]
    );
    check_traffic(
        json!([latest(90), pinned("docs-2", 20)]),
        "spec.traffic",
        "add up to 110: change them",
    );
    check_traffic(
        json!([latest(50), {"percent": 50}]),
        "spec.traffic[1]",
        "set latestRevision: true or revisionName",
    );
    check_traffic(
        json!([{"latestRevision": true, "revisionName": "docs-1", "percent": 100}]),
        "spec.traffic[0]",
        "remove one of them",
    );
    check_traffic(
        json!([pinned("web-1", 100)]),
        "spec.traffic[0].revisionName",
        "those are docs-1, docs-2 and so on",
    );
    let tagged = |tag: &str| json!({"revisionName": "docs-1", "tag": tag});
    check_traffic(
        json!([latest(100), tagged("a"), tagged("a")]),
        "spec.traffic[2].tag",
        "choose another one",
    );
    check_traffic(
        json!([latest(100), tagged("A_b")]),
        "spec.traffic[1].tag",
        "use lower-case letters",
    );
    check_traffic(
        json!([latest(100), tagged("latest")]),
        "spec.traffic[1].tag",
        "choose another tag",
    );
    let many: Vec<Value> = (0..16).map(|_| pinned("docs-1", 0)).collect();
    let many: Vec<Value> = many.into_iter().chain([latest(100)]).collect();
    check_traffic(json!(many), "spec.traffic", "has 17 targets, at most 16");
}

#[test]
fn a_gradual_rollout_has_steps_and_time() {
    let rollout = |step: u32, duration: &str| {
        let rollout = json!({"stepPercent": step, "duration": duration});
        move |v: &mut Value| v["spec"]["rollout"] = rollout
    };
    assert_eq!(errors_of(&decoded(rollout(25, "10m")), &[]), vec![]);
    for step in [0, 101] {
        check(
            rollout(step, "10m"),
            "spec.rollout.stepPercent",
            "between 1 and 100",
        );
    }
    check(rollout(10, "0s"), "spec.rollout.duration", "at least 1s");
    // 30, 60, 90 and 100 percent: four steps.
    let interval = decoded(rollout(30, "10m")).spec.rollout.unwrap().interval();
    assert_eq!(interval, std::time::Duration::from_secs(150));
    let of = decoded(|v| v["spec"]["rollout"] = json!({"duration": "100s"}));
    let interval = of.spec.rollout.map(|rollout| rollout.interval());
    assert_eq!(interval, Some(std::time::Duration::from_secs(10)));
}

#[test]
fn requests_are_sticky_by_a_header_a_cookie_or_the_clients_address() {
    let sticky = |sticky: Value| move |v: &mut Value| v["spec"]["sticky"] = sticky;
    for valid in [
        json!({"header": "X-User"}),
        json!({"cookie": "session"}),
        json!({"clientIP": {}}),
    ] {
        let app = decoded(sticky(valid.clone()));
        assert_eq!(errors_of(&app, &[]), vec![]);
        assert_eq!(serde_json::to_value(&app.spec.sticky).unwrap(), valid);
    }
    check(
        sticky(json!({"header": "X User"})),
        "spec.sticky.header",
        "not a valid name",
    );
    check(
        sticky(json!({"cookie": ""})),
        "spec.sticky.cookie",
        "not a valid name",
    );
}
