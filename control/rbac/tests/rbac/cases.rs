//! Cases by hand, from the documentation of Kubernetes' RBAC.

use dormouse_rbac::{Policy, User, allows};

use crate::world::{binding, cluster_binding, cluster_role, request, role, rule, urls};

/// Which of the requests a rule allows.
fn check(rule: &k8s_openapi::api::rbac::v1::PolicyRule, allowed: &[&str], refused: &[&str]) {
    for text in allowed {
        assert!(allows(rule, &request(text)), "{text} is refused");
    }
    for text in refused {
        assert!(!allows(rule, &request(text)), "{text} is allowed");
    }
}

#[test]
fn a_rule_allows_its_verbs_on_its_resources_in_its_groups() {
    check(
        &rule("get list | core apps | pods deployments"),
        &[
            "get pods shop web",
            "list apps:deployments",
            "get apps:pods shop",
        ],
        &[
            "watch pods shop",
            "get pods/log shop web",
            "get batch:pods shop",
            "get /pods",
        ],
    );
    check(
        &rule("* | * | *"),
        &[
            "get pods shop web",
            "escalate x:y",
            "create pods/exec shop web",
        ],
        &["get /healthz"],
    );
}

#[test]
fn a_subresource_is_a_resource_of_its_own_and_a_star_before_it_is_all_resources() {
    check(
        &rule("get | * | pods/log */scale"),
        &[
            "get pods/log shop web",
            "get apps:deployments/scale shop",
            "get d:apps/scale shop web",
        ],
        &[
            "get pods shop web",
            "get apps:deployments shop",
            "get pods/logs shop",
            "get scale shop",
            "get pods/x/scale shop",
        ],
    );
}

#[test]
fn a_rule_with_names_allows_only_requests_with_one_of_them() {
    check(
        &rule("get list delete create | core | pods | web api"),
        &[
            "get pods shop web",
            "delete pods shop api",
            "list pods shop web",
        ],
        &["get pods shop other", "list pods shop", "create pods shop"],
    );
}

#[test]
fn a_star_at_the_end_of_a_path_is_any_rest() {
    check(
        &urls("get | /healthz /api/* /logs*"),
        &[
            "get /healthz",
            "get /api/",
            "get /api/v1/x",
            "get /logs",
            "get /logs2",
        ],
        &["get /api", "post /healthz", "get /healthz/ping", "get /"],
    );
    check(
        &urls("* | *"),
        &["put /anything", "get /"],
        &["get pods shop"],
    );
}

/// A cluster with bindings of all kinds.
fn policy() -> Policy {
    let mut policy = Policy::default();
    let reader = vec![rule("get list | core | pods"), urls("get | /metrics")];
    policy.set_cluster_role("reader", Some(&cluster_role("reader", reader)));
    let writer = role("shop", "writer", vec![rule("create | core | pods")]);
    policy.set_role("shop", "writer", Some(&writer));
    let all = [
        cluster_binding(
            "ops",
            "ClusterRole reader",
            &["Group ops", "ServiceAccount bot infra"],
        ),
        cluster_binding("wrong", "Role writer", &["User eve"]),
    ];
    for one in &all {
        let name = one.metadata.name.as_deref().unwrap();
        policy.set_cluster_role_binding(name, Some(one));
    }
    let all = [
        binding(
            "shop",
            "writers",
            "Role writer",
            &["User ann", "ServiceAccount bot"],
        ),
        binding("shop", "readers", "ClusterRole reader", &["User ann"]),
        binding("other", "writers", "Role writer", &["User ann"]),
    ];
    for one in &all {
        let meta = &one.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        policy.set_role_binding(namespace.unwrap(), name.unwrap(), Some(one));
    }
    policy
}

fn allowed(policy: &Policy, user: &str, text: &str) -> Option<String> {
    let (name, group) = user.split_once(' ').unwrap_or((user, "none"));
    policy.allows(&User::authenticated(name, [group]), &request(text))
}

#[test]
fn bindings_give_a_role_in_the_cluster_or_in_their_namespace() {
    let policy = policy();
    for (user, text, want) in [
        ("joe ops", "list pods", true),
        ("joe ops", "get pods shop web", true),
        ("joe ops", "get /metrics", true),
        ("joe", "get pods shop web", false),
        ("ann", "get pods shop web", true),
        ("ann", "create pods shop", true),
        ("ann", "list pods", false),
        ("ann", "get pods other web", false),
        // The path is not in a namespace: a RoleBinding gives no right to it.
        ("ann", "get /metrics", false),
        // The Role of the binding in `other` is in `shop`, and there are no Roles in the cluster.
        ("ann", "create pods other", false),
        ("eve", "create pods shop", false),
        ("system:serviceaccount:infra:bot", "get pods shop web", true),
        ("system:serviceaccount:shop:bot", "create pods shop", true),
        ("system:serviceaccount:other:bot", "create pods shop", false),
        ("bot", "create pods shop", false),
        // A user with the name of a group is not that group.
        ("ops", "list pods", false),
    ] {
        assert_eq!(
            allowed(&policy, user, text).is_some(),
            want,
            "{user}: {text}"
        );
    }
}

#[test]
fn the_reason_names_the_binding_the_role_and_the_subject() {
    let policy = policy();
    for (user, text, want) in [
        (
            "joe ops",
            "list pods",
            "RBAC: allowed by ClusterRoleBinding \"ops\" of ClusterRole \"reader\" to Group \"ops\"",
        ),
        (
            "ann",
            "create pods shop",
            "RBAC: allowed by RoleBinding \"writers/shop\" of Role \"writer\" to User \"ann\"",
        ),
        (
            "system:serviceaccount:shop:bot",
            "create pods shop",
            "RBAC: allowed by RoleBinding \"writers/shop\" of Role \"writer\" to ServiceAccount \"bot/shop\"",
        ),
    ] {
        assert_eq!(allowed(&policy, user, text).as_deref(), Some(want));
    }
}
