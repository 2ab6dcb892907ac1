//! Assumed pods, the active queue, and bindings.

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

fn node(name: &str, pods: u32) -> Change {
    let ready = NodeCondition {
        type_: "Ready".into(),
        status: "True".into(),
        ..NodeCondition::default()
    };
    let allocatable = [
        ("cpu", "4".to_owned()),
        ("memory", "8Gi".to_owned()),
        ("pods", pods.to_string()),
    ];
    let status = NodeStatus {
        allocatable: Some(
            allocatable
                .map(|(name, value)| (name.to_owned(), Quantity(value)))
                .into(),
        ),
        conditions: Some(vec![ready]),
        ..NodeStatus::default()
    };
    Change::Node(
        Key::cluster_scoped(name),
        Some(Arc::new(Node {
            status: Some(status),
            ..Node::default()
        })),
    )
}

fn pod(node: Option<&str>) -> Pod {
    let spec = PodSpec {
        node_name: node.map(str::to_owned),
        ..PodSpec::default()
    };
    Pod {
        spec: Some(spec),
        ..Pod::default()
    }
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn state(changes: &[Change]) -> State {
    let mut state = State::new(1);
    for change in changes {
        state.apply(change);
    }
    state
}

#[test]
fn an_assumed_pod_counts_until_it_is_seen_or_expires() {
    let mut state = state(&[node("n1", 1)]);
    assert_eq!(state.place(0, &key("a"), &pod(None)), Ok("n1".to_owned()));
    assert_eq!(
        state.place(5, &key("a"), &pod(None)),
        Ok("n1".to_owned()),
        "a repeated request"
    );
    assert!(
        state
            .place(ASSUMED_TTL_MS - 1, &key("b"), &pod(None))
            .is_err()
    );
    assert_eq!(
        state.place(ASSUMED_TTL_MS, &key("b"), &pod(None)),
        Ok("n1".to_owned())
    );
    state.apply(&Change::Pod(key("b"), Some(Arc::new(pod(Some("n1"))))));
    assert!(
        state
            .place(ASSUMED_TTL_MS * 9, &key("c"), &pod(None))
            .is_err(),
        "b was seen in the store"
    );
}

#[test]
fn a_terminated_or_deleted_pod_frees_its_resources() {
    let mut state = state(&[
        node("n1", 1),
        Change::Pod(key("a"), Some(Arc::new(pod(Some("n1"))))),
    ]);
    assert!(state.place(0, &key("b"), &pod(None)).is_err());
    let mut ended = pod(Some("n1"));
    ended.status.get_or_insert_default().phase = Some("Failed".into());
    state.apply(&Change::Pod(key("a"), Some(Arc::new(ended))));
    assert!(state.place(0, &key("b"), &pod(None)).is_ok());
    state.apply(&Change::Pod(key("a"), None));
    assert!(
        state.place(0, &key("c"), &pod(None)).is_err(),
        "nothing is freed twice"
    );
}

#[test]
fn an_unschedulable_pod_is_placed_again_after_a_change_of_a_node() {
    let mut state = state(&[Change::Pod(key("a"), Some(Arc::new(pod(None))))]);
    assert!(state.place_next(0).unwrap().1.is_err());
    assert_eq!(state.place_next(0), None);
    state.apply(&node("n1", 0));
    assert!(state.place_next(0).unwrap().1.is_err());
    state.apply(&node("n1", 0));
    assert_eq!(state.place_next(0), None, "a heartbeat changes nothing");
    state.apply(&node("n1", 1));
    assert_eq!(state.place_next(0).unwrap().1, Ok("n1".to_owned()));
    assert_eq!(state.place_next(0), None, "its binding is being written");
}

#[test]
fn a_write_of_its_status_does_not_place_an_unschedulable_pod_again() {
    let mut state = state(&[Change::Pod(key("a"), Some(Arc::new(pod(None))))]);
    assert!(state.place_next(0).unwrap().1.is_err());
    let mut written = pod(None);
    written.status = Some(PodStatus::default());
    state.apply(&Change::Pod(key("a"), Some(Arc::new(written.clone()))));
    assert_eq!(state.place_next(0), None);
    written.spec.as_mut().unwrap().node_selector = Some([("a".to_owned(), "b".to_owned())].into());
    state.apply(&Change::Pod(key("a"), Some(Arc::new(written))));
    assert!(state.place_next(0).unwrap().1.is_err());
}

#[test]
fn a_pod_whose_binding_failed_is_placed_again() {
    let mut state = state(&[
        Change::Pod(key("a"), Some(Arc::new(pod(None)))),
        node("n1", 1),
    ]);
    assert!(state.place_next(0).is_some());
    state.finish_binding(&key("a"), false);
    assert!(state.place_next(0).unwrap().1.is_ok());
    state.apply(&Change::Pod(key("a"), None));
    state.finish_binding(&key("a"), false);
    assert_eq!(state.place_next(0), None, "the pod was deleted meanwhile");
    assert!(state.place(0, &key("b"), &pod(None)).is_ok());
}
