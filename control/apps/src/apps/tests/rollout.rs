//! The change of an app's template: ready pods leave only for ready successors.

use dormouse_cluster::{Mode, State};

use super::*;
use crate::progress::{Progress, ProgressState};

/// An app with so many ready pods, in serve mode.
fn awake(pods: u32) -> World {
    let mut world = scaled(&json!({
        "window": "6s", "targetBurstCapacity": 0, "target": 10, "min": pods, "max": 4,
    }));
    world.execute_until_ready();
    assert_eq!(world.pods.len(), pods as usize);
    assert_eq!(world.entry().mode, Mode::Serve);
    world
}

/// The pods that run this release.
fn of_release(world: &World, number: u16) -> Vec<Key> {
    let image = Some(format!("web:{number}"));
    let runs = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.spec.as_ref().unwrap().containers[0].image == image
    };
    let pods = world.pods.iter().filter(|(_, pod)| runs(pod));
    pods.map(|(key, _)| key.clone()).collect()
}

#[test]
fn a_new_limit_replaces_no_pod() {
    let mut world = awake(1);
    let pods = world.pods.clone();
    world.edit(|spec| spec.scale.max = Some(9));
    world.execute_all();
    assert_eq!(world.pods, pods);
}

#[test]
fn a_ready_pod_stays_until_its_successor_is_ready() {
    let mut world = awake(1);
    let before = world.pods.keys().next().unwrap().clone();
    let entry = world.entry();
    world.release(2);
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
    assert_eq!(world.entry(), entry, "its successor is not ready");
    assert_eq!(world.status().state, State::Awake);
    world.ready_all();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    assert!(!world.pods.contains_key(&before));
    assert_eq!(world.entry().backends.len(), 1);
    assert_ne!(world.entry().backends, entry.backends);
}

#[test]
fn a_ready_pod_that_has_not_left_yet_is_taken_back_when_its_successor_fails() {
    let mut world = awake(1);
    let first = world.pods.keys().next().unwrap().clone();
    let entry = world.entry();
    world.release(2);
    world.execute_all();
    // A node that is cut off may use the entry with the first pod.
    world.delay_settling = true;
    world.ready_all();
    assert_ne!(world.entry().backends, entry.backends);
    for pod in of_release(&world, 2) {
        world.fail(&pod, "Error");
    }
    world.execute_all();
    assert_eq!(world.entry().backends, entry.backends);
    world.delay_settling = false;
    world.execute_all();
    assert!(world.pods.contains_key(&first));
    assert_eq!(world.status().state, State::Awake);
    // It leaves when a further pod of the new template is ready.
    for _ in 0..30 {
        world.tick(1.0);
        world.ready_all();
        world.execute_all();
    }
    assert!(!world.pods.contains_key(&first));
    assert_eq!(of_release(&world, 2).len(), 1);
}

#[test]
fn successors_are_started_a_quarter_of_the_pods_at_a_time() {
    let mut world = awake(4);
    world.release(2);
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (5, 1));
    for successors in 2..=4 {
        world.ready_all();
        world.execute_all();
        assert_eq!(
            (world.pods.len(), of_release(&world, 2).len()),
            (5, successors)
        );
    }
    world.ready_all();
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (4, 4));
}

#[test]
fn a_release_whose_pods_fail_leaves_the_earlier_one_serving_and_waits_before_each_attempt() {
    let mut world = awake(1);
    let entry = world.entry();
    world.release(2);
    let mut attempts = 0;
    for _ in 0..200 {
        world.execute_all();
        for pod in of_release(&world, 2) {
            attempts += 1;
            world.fail(&pod, "Error");
        }
        world.execute_all();
        world.tick(0.0);
    }
    assert_eq!(
        attempts, 6,
        "0, 0, 10, 20, 40 and 80 s after the one before"
    );
    assert_eq!(world.entry(), entry);
    let status = world.status();
    assert_eq!((status.state, status.ready), (State::Awake, 1));
    assert_eq!(status.failure.unwrap().reason, "CrashLoopBackOff");
}

#[test]
fn a_return_to_the_earlier_template_keeps_its_pods() {
    let mut world = awake(2);
    let pods: Vec<Key> = world.pods.keys().cloned().collect();
    let before = world.app.as_ref().unwrap().spec.clone();
    world.release(2);
    world.execute_all();
    assert_eq!(world.pods.len(), 3);
    world.edit(|spec| *spec = before);
    world.execute_all();
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), pods);
}

#[test]
fn a_repaired_template_starts_at_once() {
    let mut world = awake(1);
    world.release(2);
    for _ in 0..3 {
        world.execute_all();
        for pod in of_release(&world, 2) {
            world.fail(&pod, "Error");
        }
    }
    world.execute_all();
    assert_eq!(world.pods.len(), 1, "the next attempt waits");
    world.release(3);
    world.execute_all();
    assert_eq!(of_release(&world, 3).len(), 1);
}

#[test]
fn a_sleeping_app_with_a_new_template_starts_nothing() {
    let mut world = small();
    world.execute_all();
    world.release(2);
    world.execute_all();
    assert!(world.is_asleep() && world.pods.is_empty());
    world.demand();
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (1, 1));
}

#[test]
fn an_app_falls_asleep_in_a_change_of_its_template() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    world.release(2);
    for _ in 0..20 {
        world.execute_all();
        world.tick(0.0);
    }
    assert!(world.is_asleep() && world.pods.is_empty());
}

#[test]
fn pods_are_reached_on_the_port_of_their_own_template() {
    let mut world = awake(1);
    world.edit(|spec| spec.target_port = Some(8001));
    world.execute_all();
    let port = |world: &World| world.entry().backends[0].port;
    assert_eq!(port(&world), 8000);
    world.ready_all();
    world.execute_all();
    assert_eq!(port(&world), 8001);
}

#[test]
fn a_new_control_continues_a_change_of_the_template() {
    let mut world = awake(4);
    world.release(2);
    world.execute_all();
    let pods = world.pods.clone();
    world.restart();
    world.execute_all();
    assert_eq!(world.pods, pods);
    for _ in 0..4 {
        world.ready_all();
        world.execute_all();
    }
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (4, 4));
}

/// As an earlier version wrote it: with a hash of another form, and without a port.
#[test]
fn a_pod_of_an_earlier_version_stays() {
    let mut world = awake(1);
    let key = world.pods.keys().next().unwrap().clone();
    let pod = world.pods.get_mut(&key).unwrap();
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.remove(pod::PORT_ANNOTATION);
    annotations.insert(
        pod::TEMPLATE_ANNOTATION.to_owned(),
        "144979bc4025660b".to_owned(),
    );
    let (pods, entry) = (world.pods.clone(), world.entry());
    world.restart();
    world.execute_all();
    assert_eq!(world.pods, pods);
    assert_eq!(world.entry().backends, entry.backends);
    world.release(2);
    world.execute_all();
    assert_eq!(world.pods.len(), 2, "it is one of an earlier template");
}

fn progress(world: &World) -> Progress {
    world.status().progress
}

#[test]
fn the_status_shows_the_progress_of_a_rollout() {
    let mut world = awake(2);
    assert_eq!(progress(&world).state, ProgressState::Complete);
    assert_eq!(world.status().ready_revision, Some(1));
    let hash = world.status().template_hash;
    world.release(2);
    world.execute_all();
    let status = world.status();
    assert_ne!(status.template_hash, hash);
    let Progress {
        revision,
        state,
        ready,
        earlier,
        wanted,
    } = status.progress;
    assert_eq!(state, ProgressState::RollingOut);
    assert_eq!((revision, ready, earlier, wanted), (3, 0, 2, 2));
    let record = &world.apps.records[&world::VIP];
    let explained = crate::explain::explain(record, None, world.now)["topics"].to_string();
    let lines = "revision 3: 0 of 2 pods are ready; ready pods of earlier revisions: 2\",\"revision 1 gets the wanted pods";
    assert!(explained.contains(lines), "{explained}");
    world.ready_all();
    assert_eq!(world.status().ready_revision, Some(3));
    assert_eq!(progress(&world).state, ProgressState::RollingOut);
    world.ready_all();
    world.execute_all();
    assert_eq!(progress(&world).state, ProgressState::Complete);
}

#[test]
fn a_rollout_without_progress_within_its_deadline_is_overdue_also_for_a_new_control() {
    let mut world = awake(1);
    world.edit(|spec| spec.progress_deadline_seconds = 20);
    world.release(2);
    let is_overdue = |world: &World| matches!(progress(world).state, ProgressState::Overdue { .. });
    for second in 0..=20 {
        assert!(!is_overdue(&world) || second > 19, "after {second} s");
        world.tick(0.0);
        world.execute_all();
    }
    assert!(is_overdue(&world));
    assert_eq!(world.status().ready, 1, "the earlier revision serves");
    world.restart();
    world.execute_all();
    assert!(is_overdue(&world));
    world.ready_all();
    world.execute_all();
    assert_eq!(progress(&world).state, ProgressState::Complete);
}

#[test]
fn a_rollout_is_complete_when_all_earlier_pods_leave_also_if_a_node_delays_their_removal() {
    let mut world = awake(1);
    world.edit(|spec| spec.progress_deadline_seconds = 20);
    world.release(2);
    world.execute_all();
    world.delay_settling = true;
    world.ready_all();
    for _ in 0..30 {
        world.tick(0.0);
        world.execute_all();
    }
    let progress = progress(&world);
    assert_eq!(
        (progress.state, progress.ready),
        (ProgressState::Complete, 1)
    );
    assert_eq!(world.pods.len(), 2, "the earlier pod is not removed yet");
}

#[test]
fn each_ready_pod_of_a_rollout_moves_its_deadline() {
    let mut world = awake(2);
    world.edit(|spec| spec.progress_deadline_seconds = 20);
    world.release(2);
    for _ in 0..2 {
        for _ in 0..15 {
            world.tick(0.0);
            world.execute_all();
        }
        assert_eq!(progress(&world).state, ProgressState::RollingOut);
        world.ready_all();
        world.execute_all();
    }
    assert_eq!(progress(&world).state, ProgressState::Complete);
}

#[test]
fn a_paused_rollout_starts_nothing_and_goes_on_where_it_was() {
    let mut world = awake(4);
    world.edit(|spec| spec.paused = true);
    world.release(2);
    world.execute_all();
    assert!(of_release(&world, 2).is_empty());
    assert_eq!(progress(&world).state, ProgressState::Paused);
    world.edit(|spec| spec.paused = false);
    world.execute_all();
    assert_eq!(of_release(&world, 2).len(), 1);
    world.edit(|spec| spec.paused = true);
    world.ready_all();
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (4, 1));
}

#[test]
fn a_sleeping_app_waits_for_its_next_wake() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    world.release(2);
    while !world.is_asleep() {
        world.tick(0.0);
        world.execute_all();
    }
    let app = world.app.as_ref().unwrap();
    let condition = app
        .status
        .as_ref()
        .unwrap()
        .condition("Progressing")
        .unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("Unknown", "Asleep")
    );
    assert_eq!(condition.message, "revision 3 starts with the next wake");
}

#[test]
fn a_new_control_does_not_return_to_the_revision_before_while_the_first_pod_of_the_next_starts() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    while !world.is_asleep() {
        world.tick(0.0);
        world.execute_all();
    }
    world.release(2);
    world.execute_all();
    world.demand();
    world.execute_all();
    let started: Vec<Key> = world.pods.keys().cloned().collect();
    assert_eq!(started.len(), 1);
    world.restart();
    world.execute_all();
    world.tick(1.0);
    world.execute_all();
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), started);
}

#[test]
fn of_the_pods_that_are_not_wanted_any_more_those_that_are_not_ready_leave_first() {
    let mut world =
        scaled(&json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "min": 2}));
    world.execute_all();
    // Of two that were created at once, the one with the first name leaves.
    let ready = world.pods.keys().next().unwrap().clone();
    world.ready_some(|pod| *pod == ready);
    world.edit(|spec| spec.scale.min = Some(1));
    for _ in 0..20 {
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(world.pods.keys().collect::<Vec<_>>(), [&ready]);
}

/// Seconds pass, in which no pod gets ready.
fn pass(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.execute_all();
        world.tick(0.0);
    }
    world.execute_all();
}

/// The pods of releases from the second on that are to run are reported to be so, except those of this one.
fn ready_but(world: &mut World, release: u16) {
    let broken = of_release(world, release);
    world.ready_some(|pod| !broken.contains(pod));
}

#[test]
fn a_serving_revision_is_scaled_and_repaired_while_the_new_one_is_not_ready() {
    let mut world = awake(2);
    let first = world.pods.keys().next().unwrap().clone();
    world.release(2);
    world.execute_all();
    world.fail(&first, "Error");
    world.execute_all();
    world.edit(|spec| spec.scale.min = Some(4));
    pass(&mut world, 2);
    ready_but(&mut world, 2);
    assert_eq!(of_release(&world, 2).len(), 1);
    assert_eq!((world.pods.len(), world.status().ready), (5, 4));
    assert_eq!(world.entry().backends.len(), 4);
    for _ in 0..5 {
        world.ready_all();
        world.execute_all();
    }
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (4, 4));
}

/// An app that fell asleep with a release that was not ready within its deadline.
fn asleep_with_a_broken_release() -> World {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    world.edit(|spec| spec.progress_deadline_seconds = 3);
    world.release(2);
    while !world.is_asleep() {
        pass(&mut world, 1);
    }
    let app = world.app.as_ref().unwrap();
    let condition = app.status.as_ref().unwrap().condition("Progressing");
    assert_eq!(condition.unwrap().reason, "ProgressDeadlineExceeded");
    world
}

#[test]
fn an_app_with_a_release_that_was_never_ready_wakes_with_the_one_before() {
    for restarts in [false, true] {
        let mut world = asleep_with_a_broken_release();
        if restarts {
            world.restart();
        }
        world.demand();
        world.execute_all();
        ready_but(&mut world, 2);
        assert_eq!((world.pods.len(), of_release(&world, 2).len()), (2, 1));
        assert_eq!(
            (world.status().state, world.status().ready),
            (State::Awake, 1)
        );
        assert_eq!(world.entry().backends.len(), 1);
        world.ready_all();
        world.execute_all();
        assert_eq!(
            (world.pods.len(), of_release(&world, 2).len()),
            (1, 1),
            "it is repaired"
        );
    }
}

#[test]
fn an_app_that_slept_before_its_release_was_ready_wakes_with_the_one_before_too() {
    for restarts in [false, true] {
        let mut world = small();
        world.demand();
        world.execute_all();
        world.ready_all();
        world.release(2);
        while !world.is_asleep() {
            pass(&mut world, 1);
        }
        if restarts {
            world.restart();
        }
        world.demand();
        world.execute_all();
        ready_but(&mut world, 2);
        assert_eq!((world.pods.len(), of_release(&world, 2).len()), (2, 1));
        assert_eq!(
            (world.status().state, world.status().ready),
            (State::Awake, 1)
        );
    }
}

#[test]
fn an_app_whose_earlier_revision_is_gone_wakes_with_its_own() {
    let mut world = asleep_with_a_broken_release();
    world.revisions.clear();
    world.demand();
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (1, 1));
    assert_eq!(world.status().ready_revision, None);
}

#[test]
fn an_app_wakes_with_the_revision_before_after_three_failures_of_its_own() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    while !world.is_asleep() {
        pass(&mut world, 1);
    }
    world.release(2);
    world.demand();
    world.execute_all();
    assert_eq!((world.pods.len(), of_release(&world, 2).len()), (1, 1));
    for _ in 0..30 {
        for pod in of_release(&world, 2) {
            world.fail(&pod, "Error");
        }
        world.demand();
        world.tick(1.0);
        world.execute_all();
    }
    ready_but(&mut world, 2);
    assert_eq!(
        (world.status().state, world.status().ready),
        (State::Awake, 1)
    );
}

#[test]
fn a_paused_app_wakes_with_the_revision_that_was_ready() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    world.edit(|spec| spec.paused = true);
    world.release(2);
    while !world.is_asleep() {
        pass(&mut world, 1);
    }
    world.demand();
    world.execute_all();
    assert!(world.pods.len() == 1 && of_release(&world, 2).is_empty());
    world.ready_all();
    world.edit(|spec| spec.paused = false);
    world.execute_all();
    assert_eq!(of_release(&world, 2).len(), 1);
}

#[test]
fn pods_have_the_name_of_their_revision() {
    let mut world = awake(1);
    world.release(2);
    world.execute_all();
    let label = |key: &Key| {
        let labels = world.pods[key].metadata.labels.clone().unwrap();
        labels[pod::REVISION_LABEL].clone()
    };
    assert_eq!(label(&of_release(&world, 2)[0]), "web-3");
    let mut names: Vec<String> = world.pods.keys().map(label).collect();
    names.sort();
    assert_eq!(names, ["web-1", "web-3"]);
}

#[test]
fn pods_of_a_new_template_wait_until_the_split_accounts_for_it() {
    let mut world = awake(2);
    let rollout = serde_json::from_value(json!({"duration": "60s"})).unwrap();
    world.edit(|spec| spec.rollout = Some(rollout));
    world.split_for(1);
    world.execute_all();
    world.release(2);
    for _ in 0..5 {
        world.execute_all();
        world.tick(0.0);
    }
    assert!(of_release(&world, 2).is_empty());
    assert_eq!(world.status().progress.state, ProgressState::AwaitsSplit);
    assert_eq!(world.pods.len(), 2);
    world.split_for(3);
    world.execute_all();
    assert_eq!(of_release(&world, 2).len(), 1);
}
