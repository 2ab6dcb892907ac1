//! The rights of nodes.

use dormouse_rbac::{
    Access, Attributes, Decision, Policy, Target, User, access, decide, is_bound_to, node_of,
};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::world::request;

fn with_field(text: &str, field: &str, value: &str) -> Attributes {
    let mut attributes = request(text);
    if let Target::Resource(resource) = &mut attributes.target {
        resource.fields.push((field.to_owned(), value.to_owned()));
    }
    attributes
}

#[test]
fn a_node_reads_its_own_and_services_and_writes_its_status_and_events() {
    for text in [
        "get nodes - n1",
        "list nodes - n1",
        "watch nodes - n1",
        "patch nodes/status - n1",
        "update nodes/status - n1",
        "list services",
        "watch discovery.k8s.io:endpointslices",
        "get services shop web",
        "create events shop",
        "patch events shop e",
    ] {
        assert_eq!(access("n1", &request(text)), Access::Allowed, "{text}");
    }
    for text in [
        "get pods shop web",
        "get pods/status shop web",
        "patch pods/status shop web",
    ] {
        assert_eq!(access("n1", &request(text)), Access::IfBound, "{text}");
    }
    let own = with_field("watch pods", "spec.nodeName", "n1");
    assert_eq!(access("n1", &own), Access::Allowed);
}

#[test]
fn a_node_does_nothing_else() {
    for text in [
        "get nodes - n2",
        "list nodes",
        "patch nodes - n1",
        "create nodes",
        "delete nodes - n1",
        "patch nodes/status - n2",
        "list pods",
        "list pods shop",
        "create pods shop",
        "delete pods shop web",
        "patch pods shop web",
        "get pods/log shop web",
        "create pods/eviction shop web",
        "update services shop web",
        "get services/status shop web",
        "get apps:endpointslices shop web",
        "list events",
        "delete events shop e",
        "get configmaps shop web",
        "get dormouse.dev:apps shop web",
        "get rbac.authorization.k8s.io:roles shop r",
        "get /metrics",
    ] {
        assert!(
            matches!(access("n1", &request(text)), Access::Refused(_)),
            "{text}"
        );
    }
    let of_another = with_field("list pods", "spec.nodeName", "n2");
    assert!(matches!(access("n1", &of_another), Access::Refused(_)));
}

#[test]
fn a_node_is_a_user_with_its_name_in_the_group_of_nodes() {
    assert_eq!(node_of(&User::node("n1")), Some("n1"));
    assert_eq!(
        node_of(&User::authenticated("system:node:n1", ["dev"])),
        None
    );
    assert_eq!(node_of(&User::node("")), None);
    assert_eq!(node_of(&User::authenticated("n1", ["system:nodes"])), None);
    let spec = PodSpec {
        node_name: Some("n1".to_owned()),
        ..PodSpec::default()
    };
    let pod = Pod {
        spec: Some(spec),
        ..Pod::default()
    };
    assert!(is_bound_to(&pod, "n1") && !is_bound_to(&pod, "n2"));
    assert!(!is_bound_to(&Pod::default(), "n1"));
}

#[test]
fn the_decision_on_a_pod_of_a_node_needs_the_pod_and_masters_may_do_everything() {
    let policy = Policy::default();
    let decided = |user: &User, text| decide(&policy, user, &request(text));
    let node = User::node("n1");
    assert_eq!(
        decided(&node, "get pods shop web"),
        Decision::AllowIfBound("n1".to_owned())
    );
    assert!(matches!(decided(&node, "list nodes"), Decision::Forbid(_)));
    assert!(matches!(
        decided(&User::admin(), "delete nodes - n1"),
        Decision::Allow(_)
    ));
    assert!(matches!(
        decided(&User::anonymous(), "get /healthz"),
        Decision::Allow(_)
    ));
    assert!(matches!(
        decided(&User::anonymous(), "get /healthz/ping"),
        Decision::Forbid(_)
    ));
    assert!(matches!(
        decided(&User::anonymous(), "list nodes"),
        Decision::Forbid(_)
    ));
}
