//! The queue by hand: kube-scheduler's documented behaviour.

mod model;

use dormouse_scheduler_decide::queue::{Change, Event, Hint, gate};
use dormouse_scheduler_decide::{DEFAULT_SCHEDULER, Node, Profile};
use serde_json::json;

use super::*;

/// New nodes help pods that NodeResourcesFit rejected; pods are gated by their own gates.
struct NodesHelp;

impl Judge for NodesHelp {
    fn is_gated(&self, waiting: &Waiting) -> bool {
        gate(&Profile::default(), &waiting.pod).is_some()
    }

    fn hint(
        &self,
        _waiting: &Waiting,
        rejectors: &BTreeSet<Plugin>,
        _event: Event,
        change: Change<'_>,
    ) -> Hint {
        let plugin = match change {
            Change::Node { .. } => Plugin::NodeResourcesFit,
            Change::Pod { .. } | Change::Volume { .. } => Plugin::SchedulingGates,
        };
        if rejectors.contains(&plugin) {
            Hint::QueueAfterBackoff
        } else {
            Hint::Skip
        }
    }
}

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn gated(name: &str, priority: i32, gates: usize) -> Waiting {
    let gates = vec![json!({"name": "gate"}); gates];
    let pod = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [], "priority": priority, "schedulingGates": gates}});
    Waiting {
        pod: Arc::new(Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()),
        scheduler: DEFAULT_SCHEDULER.into(),
    }
}

fn waiting(name: &str, priority: i32) -> Waiting {
    gated(name, priority, 0)
}

fn node() -> Happened {
    let node = json!({"metadata": {"name": "n"}});
    let node = Node::parse(&serde_json::from_value(node).unwrap()).unwrap();
    Happened::Node {
        old: None,
        new: Some(Arc::new(node)),
    }
}

fn fit() -> BTreeSet<Plugin> {
    BTreeSet::from([Plugin::NodeResourcesFit])
}

fn add(queue: &mut Queue, now: i64, name: &str, priority: i32) {
    queue.set(at(now), &NodesHelp, waiting(name, priority), false);
}

fn pop(queue: &mut Queue, now: i64) -> Option<String> {
    queue
        .pop(at(now))
        .map(|popped| popped.waiting.pod.key().name.clone())
}

/// Pops a pod and rejects it.
fn reject(queue: &mut Queue, now: i64) -> String {
    let popped = queue.pop(at(now)).unwrap();
    assert!(queue.reject(at(now), &NodesHelp, &popped, fit()));
    popped.waiting.pod.key().name.clone()
}

fn lane(queue: &Queue, name: &str) -> Option<Lane> {
    queue.find(&key(name)).unwrap().0
}

#[test]
fn pods_of_higher_priority_are_first_and_then_older_ones() {
    let mut queue = Queue::default();
    for (now, name, priority) in [
        (1, "late", 0),
        (0, "early", 0),
        (2, "high", 5),
        (2, "next", 5),
    ] {
        add(&mut queue, now, name, priority);
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, 9)).collect();
    assert_eq!(order, ["high", "next", "early", "late"]);
}

#[test]
fn a_rejected_pod_waits_for_an_event_that_may_help_its_rejectors() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "fit", 0);
    add(&mut queue, 1, "ports", 0);
    reject(&mut queue, 1);
    let popped = queue.pop(at(1)).unwrap();
    let ports = BTreeSet::from([Plugin::NodePorts]);
    queue.reject(at(1), &NodesHelp, &popped, ports);
    assert_eq!(pop(&mut queue, 5_000), None);
    queue.happened(at(6_000), &NodesHelp, node());
    assert_eq!(
        (lane(&queue, "fit"), lane(&queue, "ports")),
        (Some(Lane::Active), Some(Lane::Unschedulable))
    );
    assert_eq!(queue.take_moves()[&(Lane::Active, "NodeAdd".to_owned())], 1);
}

#[test]
fn an_event_during_the_attempt_is_not_missed() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    let popped = queue.pop(at(0)).unwrap();
    queue.happened(at(1), &NodesHelp, node());
    queue.reject(at(2), &NodesHelp, &popped, fit());
    assert_eq!(lane(&queue, "a"), Some(Lane::Backoff));
    let again = queue.pop(at(3)).unwrap();
    queue.reject(at(4), &NodesHelp, &again, fit());
    assert_eq!(
        lane(&queue, "a"),
        Some(Lane::Unschedulable),
        "the event was before this attempt"
    );
}

#[test]
fn the_backoff_doubles_from_a_second_to_ten() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    let mut now = 0;
    for seconds in [1, 2, 4, 8, 10, 10] {
        let popped = queue.pop(at(now)).unwrap();
        queue.fail(at(now), &NodesHelp, &popped);
        assert_eq!(lane(&queue, "a"), Some(Lane::Backoff));
        let ends = now + seconds * 1_000;
        queue.flush(at(ends - 1), &NodesHelp);
        assert_eq!(pop(&mut queue, ends - 1), None, "{seconds}");
        now = ends;
    }
    assert_eq!(pop(&mut queue, now), Some("a".to_owned()));
}

#[test]
fn an_idle_queue_tries_a_pod_before_its_backoff_ends_unless_its_attempt_failed() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "rejected", 0);
    reject(&mut queue, 0);
    queue.happened(at(1), &NodesHelp, node());
    assert_eq!(lane(&queue, "rejected"), Some(Lane::Backoff));
    add(&mut queue, 2, "new", 0);
    assert_eq!(pop(&mut queue, 3), Some("new".to_owned()));
    assert_eq!(pop(&mut queue, 3), Some("rejected".to_owned()));

    add(&mut queue, 4, "failed", 0);
    let popped = queue.pop(at(4)).unwrap();
    queue.fail(at(4), &NodesHelp, &popped);
    assert_eq!(pop(&mut queue, 5), None);
    assert_eq!(pop(&mut queue, 2_000), Some("failed".to_owned()));
}

#[test]
fn an_error_after_rejections_backs_off_by_the_number_of_errors() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    for now in [0, 20_000, 40_000] {
        reject(&mut queue, now);
        queue.happened(at(now + 15_000), &NodesHelp, node());
    }
    let popped = queue.pop(at(60_000)).unwrap();
    queue.fail(at(60_000), &NodesHelp, &popped);
    assert_eq!(pop(&mut queue, 60_999), None);
    assert_eq!(pop(&mut queue, 61_000), Some("a".to_owned()));
}

#[test]
fn a_pod_that_is_unschedulable_for_five_minutes_is_tried_again() {
    let mut queue = Queue::default();
    queue.flush(at(0), &NodesHelp);
    add(&mut queue, 0, "a", 0);
    reject(&mut queue, 1_000);
    let five_minutes = 301_000;
    for now in (0..=five_minutes).step_by(1_000) {
        queue.flush(at(now), &NodesHelp);
    }
    assert_eq!(lane(&queue, "a"), Some(Lane::Unschedulable));
    queue.flush(at(330_000), &NodesHelp);
    assert_eq!(lane(&queue, "a"), Some(Lane::Active));
}

#[test]
fn a_gated_pod_enters_once_its_gates_are_gone() {
    let mut queue = Queue::default();
    queue.set(at(0), &NodesHelp, gated("a", 0, 2), false);
    assert_eq!(
        (lane(&queue, "a"), pop(&mut queue, 1)),
        (Some(Lane::Gated), None)
    );
    queue.happened(at(2), &NodesHelp, node());
    queue.set(at(3), &NodesHelp, gated("a", 0, 1), true);
    assert_eq!(lane(&queue, "a"), Some(Lane::Gated));
    queue.set(at(4), &NodesHelp, gated("a", 0, 0), true);
    assert_eq!(pop(&mut queue, 4), Some("a".to_owned()));
}

#[test]
fn a_pod_with_another_priority_has_another_place() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    add(&mut queue, 1, "b", 0);
    add(&mut queue, 2, "b", 9);
    assert_eq!(pop(&mut queue, 3), Some("b".to_owned()));
    assert_eq!(queue.lengths().active, 1);
}

#[test]
fn a_change_of_its_own_spec_wakes_a_pod_and_one_of_its_status_does_not() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    reject(&mut queue, 0);
    queue.set(at(20_000), &NodesHelp, waiting("a", 0), false);
    assert_eq!(lane(&queue, "a"), Some(Lane::Unschedulable));
    queue.set(at(20_000), &NodesHelp, waiting("a", 0), true);
    assert_eq!(lane(&queue, "a"), Some(Lane::Active));
}

#[test]
fn a_change_of_its_own_spec_during_the_attempt_is_not_missed() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    for (is_changed, expected) in [(true, Lane::Backoff), (false, Lane::Unschedulable)] {
        let popped = queue.pop(at(0)).unwrap();
        queue.set(at(1), &NodesHelp, waiting("a", 0), is_changed);
        queue.set(at(2), &NodesHelp, waiting("a", 0), false);
        queue.reject(at(3), &NodesHelp, &popped, fit());
        assert_eq!(lane(&queue, "a"), Some(expected));
    }
}

#[test]
fn the_end_of_an_attempt_has_no_effect_on_a_pod_that_was_replaced_meanwhile() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    let popped = queue.pop(at(0)).unwrap();
    assert!(queue.remove(&key("a")).is_some());
    assert!(!queue.reject(at(1), &NodesHelp, &popped, fit()));
    add(&mut queue, 2, "a", 0);
    assert!(!queue.fail(at(3), &NodesHelp, &popped));
    assert_eq!(lane(&queue, "a"), Some(Lane::Active));
    assert_eq!(queue.pop(at(4)).unwrap().attempted.attempts, 1);
}

#[test]
fn pods_that_no_node_can_have_do_not_keep_others_waiting() {
    let mut queue = Queue::default();
    for stuck in 0..10 {
        add(&mut queue, 0, &format!("stuck-{stuck}"), 100);
    }
    let mut bound = 0;
    for now in 0..100 {
        add(&mut queue, now, &format!("small-{now}"), 0);
        // Each change of a node wakes all stuck pods.
        queue.happened(at(now), &NodesHelp, node());
        for _ in 0..2 {
            let Some(popped) = queue.pop(at(now)) else {
                break;
            };
            if popped.waiting.pod.priority() == 0 {
                queue.placed(&popped);
                bound += 1;
            } else {
                queue.reject(at(now), &NodesHelp, &popped, fit());
            }
        }
    }
    assert!(bound > 90, "{bound}");
}

#[test]
fn a_pod_whose_binding_failed_is_back_with_its_attempts() {
    let mut queue = Queue::default();
    add(&mut queue, 0, "a", 0);
    let popped = queue.pop(at(0)).unwrap();
    queue.placed(&popped);
    assert!(queue.find(&key("a")).is_none());
    queue.put_back(at(0), &NodesHelp, popped);
    let again = queue.pop(at(1_000)).unwrap();
    assert_eq!(
        (again.attempted.attempts, again.attempted.first_at),
        (2, Some(at(0)))
    );
}
