//! The policy that exists from the start, as in Kubernetes, for the kinds that Dormouse serves: roles, and their bindings to groups.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::policy::cluster_role;
use crate::{AUTHENTICATED, CONTROL, GROUP, MASTERS, MONITORING, UNAUTHENTICATED, missing};

/// The annotation with which an administrator keeps a role or binding as it is (`false`).
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "patch", "update"];
const CHANGE: &[&str] = &["delete", "patch", "update"];
const DORMOUSE: &str = "dormouse.dev";
const AUTHORIZATION: &str = "authorization.k8s.io";
const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
const PUBLIC_INFO: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const HEALTH: &[&str] = &[
    "/healthz",
    "/healthz/*",
    "/livez",
    "/livez/*",
    "/metrics",
    "/readyz",
    "/readyz/*",
];

/// The rules of the right to everything.
pub fn everything() -> Vec<PolicyRule> {
    vec![rule(&["*"], "*", &["*"]), urls(&["*"], &["*"])]
}

/// The ClusterRoles.
pub fn roles() -> Vec<ClusterRole> {
    let own_rights = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let own_rights = vec![
        rule(&["create"], AUTHORIZATION, &own_rights),
        rule(
            &["create"],
            "authentication.k8s.io",
            &["selfsubjectreviews"],
        ),
    ];
    vec![
        role("cluster-admin", everything()),
        union("admin", None),
        union("edit", Some("admin")),
        union("view", Some("edit")),
        part("admin", administers()),
        part("edit", edits()),
        part("view", views()),
        role("system:basic-user", own_rights),
        // These processes have the store, and so everything.
        role("system:control", everything()),
        role("system:discovery", vec![urls(&["get"], DISCOVERY)]),
        role("system:monitoring", vec![urls(&["get"], HEALTH)]),
        role(
            "system:public-info-viewer",
            vec![urls(&["get"], PUBLIC_INFO)],
        ),
    ]
}

fn administers() -> Vec<PolicyRule> {
    vec![
        rule(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
        rule(&[READ, WRITE].concat(), GROUP, &["rolebindings", "roles"]),
    ]
}

fn edits() -> Vec<PolicyRule> {
    vec![
        rule(WRITE, "", &["configmaps", "events", "pods", "services"]),
        rule(&["create"], "", &["pods/eviction"]),
        rule(WRITE, DORMOUSE, &["apps"]),
        rule(&["patch", "update"], DORMOUSE, &["apps/scale"]),
        rule(CHANGE, DORMOUSE, &["revisions"]),
    ]
}

fn views() -> Vec<PolicyRule> {
    let pods = ["pods", "pods/explain", "pods/log", "pods/status"];
    let apps = [
        "apps",
        "apps/explain",
        "apps/logs",
        "apps/scale",
        "apps/status",
        "apps/wakes",
    ];
    let others = ["configmaps", "events", "namespaces", "namespaces/status"];
    vec![
        rule(READ, "", &others),
        rule(READ, "", &pods),
        rule(READ, "", &["services", "services/status"]),
        rule(READ, "discovery.k8s.io", &["endpointslices"]),
        rule(READ, DORMOUSE, &apps),
        rule(READ, DORMOUSE, &["revisions", "revisions/status"]),
    ]
}

/// The ClusterRoleBindings, each of the role of the same name.
pub fn bindings() -> Vec<ClusterRoleBinding> {
    vec![
        binding("cluster-admin", &[MASTERS]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:control", &[CONTROL]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:monitoring", &[MONITORING]),
        binding(
            "system:public-info-viewer",
            &[AUTHENTICATED, UNAUTHENTICATED],
        ),
    ]
}

/// `stored` with the rules of `wanted` that it lacks; `None`: it needs no change, or an administrator keeps it as it is.
pub fn repaired_role(stored: &ClusterRole, wanted: &ClusterRole) -> Option<ClusterRole> {
    let owned = stored.rules.as_deref().unwrap_or_default();
    let missing = missing(owned, wanted.rules.as_deref().unwrap_or_default());
    let is_whole = missing.is_empty()
        && (stored.aggregation_rule.is_some() || wanted.aggregation_rule.is_none());
    if is_whole || is_kept(&stored.metadata) {
        return None;
    }
    let mut repaired = stored.clone();
    repaired.rules.get_or_insert_default().extend(missing);
    if repaired.aggregation_rule.is_none() {
        repaired
            .aggregation_rule
            .clone_from(&wanted.aggregation_rule);
    }
    Some(repaired)
}

/// `stored` with the subjects of `wanted` that it lacks; `None`: it needs no change, or an administrator keeps it as it is.
pub fn repaired_binding(
    stored: &ClusterRoleBinding,
    wanted: &ClusterRoleBinding,
) -> Option<ClusterRoleBinding> {
    let mut repaired = stored.clone();
    let subjects = repaired.subjects.get_or_insert_default();
    let missing: Vec<Subject> = wanted
        .subjects
        .iter()
        .flatten()
        .filter(|subject| !subjects.contains(subject))
        .cloned()
        .collect();
    if missing.is_empty() || is_kept(&stored.metadata) {
        return None;
    }
    subjects.extend(missing);
    Some(repaired)
}

fn is_kept(meta: &ObjectMeta) -> bool {
    let annotations = meta.annotations.as_ref();
    annotations
        .and_then(|all| all.get(AUTOUPDATE))
        .is_some_and(|value| value == "false")
}

fn role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: meta(name),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// A part of the rules of the aggregated role `of`.
fn part(of: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    labelled(role(&format!("system:aggregate-to-{of}"), rules), of)
}

/// The union of the roles with the label `aggregate-to-NAME`, itself a part of the role `into`.
fn union(name: &str, into: Option<&str>) -> ClusterRole {
    let selector = LabelSelector {
        match_labels: Some(BTreeMap::from([label(name)])),
        match_expressions: None,
    };
    let union = ClusterRole {
        aggregation_rule: Some(AggregationRule {
            cluster_role_selectors: Some(vec![selector]),
        }),
        ..role(name, Vec::new())
    };
    match into {
        Some(into) => labelled(union, into),
        None => union,
    }
}

fn labelled(mut role: ClusterRole, into: &str) -> ClusterRole {
    let labels = role.metadata.labels.get_or_insert_default();
    labels.extend([label(into)]);
    role
}

fn label(into: &str) -> (String, String) {
    (format!("{GROUP}/aggregate-to-{into}"), "true".to_owned())
}

fn meta(name: &str) -> ObjectMeta {
    let pair = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: pair("kubernetes.io/bootstrapping", "rbac-defaults"),
        annotations: pair(AUTOUPDATE, "true"),
        ..ObjectMeta::default()
    }
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: owned(verbs),
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        ..PolicyRule::default()
    }
}

fn urls(verbs: &[&str], urls: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: owned(verbs),
        non_resource_urls: Some(owned(urls)),
        ..PolicyRule::default()
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn binding(name: &str, groups: &[&str]) -> ClusterRoleBinding {
    let group = |name: &&str| Subject {
        api_group: Some(GROUP.to_owned()),
        kind: "Group".to_owned(),
        name: (*name).to_owned(),
        namespace: None,
    };
    ClusterRoleBinding {
        metadata: meta(name),
        role_ref: cluster_role(name),
        subjects: Some(groups.iter().map(group).collect()),
    }
}
