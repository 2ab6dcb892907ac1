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
