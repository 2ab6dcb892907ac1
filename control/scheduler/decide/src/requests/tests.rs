//! Requests: init containers, sidecars, pod-level requests and resizes.

use super::*;

fn parse(text: &str) -> Requests {
    Requests::parse(&serde_json::from_str(text).unwrap()).unwrap()
}

#[test]
fn a_container_without_requests_counts_a_minimum_in_scores_only() {
    let requests = parse(
        r#"{"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "0"}}}, {"name": "b"}]}}"#,
    );
    assert_eq!((requests.fit.cpu_milli, requests.fit.memory), (1_000, 0));
    assert_eq!(requests.scored("cpu"), 1_100);
    assert_eq!(requests.scored("memory"), DEFAULT_MEMORY);
    assert_eq!(requests.actual("memory"), 0);
}

#[test]
fn init_containers_run_beside_earlier_sidecars() {
    let requests = parse(
        r#"{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
            {"name": "i", "resources": {"requests": {"cpu": "4"}}}],
            "overhead": {"cpu": "500m"}}}"#,
    );
    assert_eq!(requests.fit.cpu_milli, 6_500);
}

#[test]
fn pod_level_requests_replace_those_of_containers_but_not_in_the_score() {
    let requests = parse(
        r#"{"spec": {"resources": {"requests": {"cpu": "3"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}"#,
    );
    assert_eq!(requests.fit.cpu_milli, 3_000);
    assert_eq!(requests.scored("cpu"), 1_000);
    let expected = NonZero {
        cpu_milli: 3_000,
        memory: DEFAULT_MEMORY,
    };
    assert_eq!(requests.bound_non_zero, expected);
}

#[test]
fn a_resize_counts_the_largest_unless_it_is_infeasible() {
    let pod = |reason: &str| {
        parse(&format!(
            r#"{{"spec": {{"containers": [{{"name": "a", "resources": {{"requests": {{"cpu": "4"}}}}}}]}},
            "status": {{"conditions": [{{"type": "PodResizePending", "status": "True", "reason": "{reason}"}}],
            "containerStatuses": [{{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {{"cpu": "2"}}, "resources": {{"requests": {{"cpu": "1"}}}}}}]}}}}"#
        ))
    };
    assert_eq!(pod("Deferred").bound.cpu_milli, 4_000);
    assert_eq!(pod("Infeasible").bound.cpu_milli, 2_000);
    assert_eq!(pod("Infeasible").fit.cpu_milli, 4_000);
}

#[test]
fn a_malformed_request_names_its_field() {
    let pod =
        r#"{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "x"}}}]}}"#;
    let error = Requests::parse(&serde_json::from_str(pod).unwrap()).unwrap_err();
    assert_eq!(error.field, "spec.containers[0].resources.requests[cpu]");
}
