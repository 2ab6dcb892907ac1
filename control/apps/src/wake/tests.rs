//! Timelines: their stages, order and limits.

use super::*;

fn key() -> Key {
    Key::new("default", "docs")
}

#[test]
fn a_timeline_has_every_stage_in_order_on_one_clock() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(3_000_000));
    wakes.parked(1, Boottime(2_000_000));
    wakes.seen(1, "n1", Boottime(1_000_000));
    wakes.placed(1, "docs-1", "n2", Boottime(4_000_000));
    let mut stages = Stages {
        cni_begin_ns: 5_000_000,
        cni_end_ns: 6_000_000,
        started_ns: 7_000_000,
        ..Default::default()
    };
    wakes.staged(1, "docs-1", "n2", &stages);
    assert!(
        wakes.answered(1, Boottime(9_000_000)).is_none(),
        "no response before a pod is ready"
    );
    stages.ready_ns = 8_000_000;
    wakes.staged(1, "docs-1", "n2", &stages);
    assert!(wakes.answered(1, Boottime(9_000_000)).is_some());
    assert!(wakes.answered(1, Boottime(9_500_000)).is_none());
    let wake = wakes.of(1).next().unwrap();
    let names: Vec<_> = wake
        .stages()
        .iter()
        .map(|stage| (stage.name, stage.ms))
        .collect();
    let expected = [
        "see",
        "park",
        "decide",
        "place",
        "wire",
        "start",
        "ready",
        "first byte",
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .zip([0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0])
        .collect();
    assert_eq!(names, expected);
    assert_eq!(wake.json()["seenNode"], "n1");
}

#[test]
fn the_timeline_is_that_of_the_pod_that_was_ready_first() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(1));
    wakes.placed(1, "a", "n1", Boottime(2));
    wakes.placed(1, "b", "n2", Boottime(3));
    wakes.staged(
        1,
        "b",
        "n2",
        &Stages {
            ready_ns: 10,
            ..Default::default()
        },
    );
    wakes.staged(
        1,
        "a",
        "n1",
        &Stages {
            ready_ns: 20,
            ..Default::default()
        },
    );
    assert_eq!(wakes.of(1).next().unwrap().json()["pod"], "b");
}

#[test]
fn the_oldest_wake_is_dropped_at_the_limits_of_an_app_and_of_all() {
    let mut wakes = Wakes::new(1);
    let all = u32::try_from(WAKES_MAX).unwrap();
    for vip in 0..all + 2 {
        wakes.begin(vip, key(), Boottime(1));
    }
    assert!(wakes.of(1).next().is_none());
    assert!(wakes.of(2).next().is_some() && wakes.of(all + 1).next().is_some());
    for _ in 0..20 {
        wakes.begin(5, key(), Boottime(1));
    }
    assert_eq!(wakes.of(5).count(), WAKES_PER_APP_MAX);
    assert_eq!(wakes.order.len(), WAKES_MAX);
    assert!(wakes.of(6).next().is_none(), "the others made room");
}

#[test]
fn a_missing_stage_is_named_and_is_no_part_of_the_next_ones_duration() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(3_000_000));
    wakes.parked(1, Boottime(1_000_000));
    let stages = Stages {
        cni_begin_ns: 10_005_000_000,
        cni_end_ns: 10_006_000_000,
        started_ns: 10_007_000_000,
        ready_ns: 10_009_000_000,
        ..Default::default()
    };
    wakes.staged(1, "docs-1", "n2", &stages);
    wakes.answered(1, Boottime(10_010_000_000));
    let wake = wakes.of(1).next().unwrap();
    assert_eq!(wake.json()["missing"], json!(["see", "place"]));
    let durations = [
        ("decide", 2.0),
        ("start", 1.0),
        ("ready", 2.0),
        ("first byte", 1.0),
    ];
    assert_eq!(wake.durations(), durations);
}

#[test]
fn a_pod_that_the_scheduler_placed_late_has_the_time_at_which_its_node_was_known() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(1));
    wakes.placed(1, "docs-1", "n2", Boottime(20));
    wakes.placed(1, "docs-1", "n2", Boottime(10));
    wakes.placed(1, "docs-1", "n2", Boottime(30));
    let stages = wakes.of(1).next().unwrap().stages();
    let place = stages.iter().find(|stage| stage.name == "place").unwrap();
    assert_eq!(place.at, Boottime(10));
}

#[test]
fn a_wake_without_a_response_has_its_first_end_with_the_stage_and_the_reason() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(1_000_000));
    wakes.placed(1, "docs-1", "n2", Boottime(2_000_000));
    let at = Boottime(31_000_000);
    let reason = Some("NotListening: nothing listens on port 80".to_owned());
    assert!(wakes.unanswered(1, at, Outcome::timed_out, reason.clone()));
    assert!(!wakes.unanswered(1, at, Outcome::abandoned, None));
    let stages = Stages {
        cni_end_ns: 3_000_000,
        started_ns: 4_000_000,
        ready_ns: 40_000_000,
        ..Default::default()
    };
    wakes.staged(1, "docs-1", "n2", &stages);
    assert!(
        wakes.answered(1, Boottime(50_000_000)).is_none(),
        "a later request was answered: the wake is counted once"
    );
    let json = wakes.of(1).next().unwrap().json();
    assert_eq!(json["outcome"], "timed_out");
    assert_eq!(
        (&json["endedIn"], &json["endedMs"]),
        (&json!("wire"), &json!(30.0))
    );
    assert_eq!(json["reason"], json!(reason));
    assert_eq!(json["stages"].as_array().unwrap().len(), 6);
    assert_eq!(wakes.over(1, Boottime(60_000_000), None), None);
}

#[test]
fn a_wake_that_nothing_ended_ends_when_its_app_sleeps() {
    let mut wakes = Wakes::new(1);
    wakes.begin(1, key(), Boottime(1));
    assert_eq!(wakes.over(1, Boottime(9), None), Some(Outcome::abandoned));
    assert_eq!(wakes.over(1, Boottime(9), None), None);
    wakes.begin(1, key(), Boottime(10));
    let failed = Some("Error: exit status 1".to_owned());
    assert_eq!(wakes.over(1, Boottime(19), failed), Some(Outcome::failed));
    wakes.begin(1, key(), Boottime(20));
    wakes.staged(
        1,
        "a",
        "n1",
        &Stages {
            ready_ns: 21,
            ..Default::default()
        },
    );
    assert!(wakes.answered(1, Boottime(22)).is_some());
    assert_eq!(wakes.over(1, Boottime(29), None), None);
    assert_eq!(wakes.of(1).next().unwrap().json()["outcome"], "answered");
}
