//! A slow reference of RBAC, from Kubernetes' documentation ("Using RBAC Authorization"), and random policies that change.

use dormouse_rbac::{Attributes, Policy, Target, User};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::world::{binding, cluster_binding, cluster_role, request, role, urls};

const VERBS: &[&str] = &["get", "create", "*"];
const GROUPS: &[&str] = &["", "apps", "*"];
const RESOURCES: &[&str] = &["pods", "pods/log", "web", "web/log", "*/log", "*"];
const NAMES: &[&str] = &["a", "b"];
const URLS: &[&str] = &["/a", "/a/*", "/a*", "*"];
const NAMESPACES: &[&str] = &["n", "m"];
const USERS: &[&str] = &[
    "a",
    "b",
    "system:serviceaccount:n:a",
    "system:serviceaccount:m:a",
];
const SUBJECTS: &[&str] = &[
    "User a",
    "User b",
    "Group a",
    "Group b",
    "ServiceAccount a",
    "ServiceAccount a m",
    "ServiceAccount a n",
    "Unknown a",
];
const ROLES: &[&str] = &["Role a", "Role b", "ClusterRole a", "ClusterRole b"];

fn some(words: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
    let chosen = subsequence(words, least..=words.len().min(2));
    chosen.prop_map(|words| words.into_iter().map(str::to_owned).collect())
}

fn a_rule() -> impl Strategy<Value = PolicyRule> {
    let of_objects = (
        some(VERBS, 1),
        some(GROUPS, 1),
        some(RESOURCES, 1),
        some(NAMES, 0),
    );
    let of_objects = of_objects.prop_map(|(verbs, groups, resources, names)| PolicyRule {
        verbs,
        api_groups: Some(groups),
        resources: Some(resources),
        resource_names: (!names.is_empty()).then_some(names),
        non_resource_urls: None,
    });
    let of_paths = (some(VERBS, 1), some(URLS, 1)).prop_map(|(verbs, paths)| PolicyRule {
        verbs,
        ..urls(&format!("|{}", paths.join(" ")))
    });
    prop_oneof![3 => of_objects, 1 => of_paths]
}

/// A few random rules.
pub(crate) fn rules() -> impl Strategy<Value = Vec<PolicyRule>> {
    prop::collection::vec(a_rule(), 0..4)
}

/// All requests of a small world.
pub(crate) fn all_requests() -> Vec<Attributes> {
    let mut all = Vec::new();
    for verb in ["get", "create"] {
        for path in ["/a", "/a/b", "/ab", "/b"] {
            all.push(request(&format!("{verb} {path}")));
        }
        for resource in [
            "pods",
            "pods/log",
            "web",
            "web/log",
            "apps:web",
            "apps:pods/log",
        ] {
            for place in ["", "n", "m"] {
                for name in ["", "a", "c"] {
                    let place = if place.is_empty() { "-" } else { place };
                    all.push(request(&format!("{verb} {resource} {place} {name}")));
                }
            }
        }
    }
    all
}

/// A change of a policy: an object of a small world is written or deleted.
#[derive(Debug, Clone)]
enum Change {
    Role(&'static str, &'static str, Option<Vec<PolicyRule>>),
    ClusterRole(&'static str, Option<Vec<PolicyRule>>),
    RoleBinding(
        &'static str,
        &'static str,
        Option<(&'static str, Vec<&'static str>)>,
    ),
    ClusterRoleBinding(&'static str, Option<(&'static str, Vec<&'static str>)>),
}

fn change() -> impl Strategy<Value = Change> {
    let name = || select(NAMES);
    let bound = || prop::option::weighted(0.8, (select(ROLES), subsequence(SUBJECTS, 0..3)));
    let ruled = || prop::option::weighted(0.8, rules());
    prop_oneof![
        (select(NAMESPACES), name(), ruled())
            .prop_map(|(namespace, name, to)| Change::Role(namespace, name, to)),
        (name(), ruled()).prop_map(|(name, to)| Change::ClusterRole(name, to)),
        (select(NAMESPACES), name(), bound())
            .prop_map(|(namespace, name, to)| Change::RoleBinding(namespace, name, to)),
        (name(), bound()).prop_map(|(name, to)| Change::ClusterRoleBinding(name, to)),
    ]
}

/// All objects, in lists.
#[derive(Default)]
struct Reference {
    roles: Vec<Role>,
    cluster_roles: Vec<ClusterRole>,
    bindings: Vec<RoleBinding>,
    cluster_bindings: Vec<ClusterRoleBinding>,
}

impl Reference {
    fn apply(&mut self, change: &Change, policy: &mut Policy) {
        match change {
            Change::Role(namespace, name, to) => {
                let new = to.clone().map(|rules| role(namespace, name, rules));
                policy.set_role(namespace, name, new.as_ref());
                let meta = role(namespace, name, Vec::new()).metadata;
                self.roles.retain(|one| one.metadata != meta);
                self.roles.extend(new);
            }
            Change::ClusterRole(name, to) => {
                let new = to.clone().map(|rules| cluster_role(name, rules));
                policy.set_cluster_role(name, new.as_ref());
                let meta = cluster_role(name, Vec::new()).metadata;
                self.cluster_roles.retain(|one| one.metadata != meta);
                self.cluster_roles.extend(new);
            }
            Change::RoleBinding(namespace, name, to) => {
                let new = to
                    .as_ref()
                    .map(|(role, subjects)| binding(namespace, name, role, subjects));
                policy.set_role_binding(namespace, name, new.as_ref());
                let meta = binding(namespace, name, ROLES[0], &[]).metadata;
                self.bindings.retain(|one| one.metadata != meta);
                self.bindings.extend(new);
            }
            Change::ClusterRoleBinding(name, to) => {
                let new = to
                    .as_ref()
                    .map(|(role, subjects)| cluster_binding(name, role, subjects));
                policy.set_cluster_role_binding(name, new.as_ref());
                let meta = cluster_binding(name, ROLES[0], &[]).metadata;
                self.cluster_bindings.retain(|one| one.metadata != meta);
                self.cluster_bindings.extend(new);
            }
        }
    }

    /// "Permissions are purely additive": some binding that applies must refer to a role with a rule that matches.
    fn allows(&self, user: &User, request: &Attributes) -> bool {
        let of_cluster = self.cluster_bindings.iter().any(|one| {
            is_subject(user, one.subjects.as_ref(), "")
                && self.role_allows(&one.role_ref, None, request)
        });
        let of_namespace = self.bindings.iter().any(|one| {
            let namespace = one.metadata.namespace.as_deref().unwrap();
            namespace == request.namespace()
                && is_subject(user, one.subjects.as_ref(), namespace)
                && self.role_allows(&one.role_ref, Some(namespace), request)
        });
        of_cluster || of_namespace
    }

    fn role_allows(&self, role: &RoleRef, namespace: Option<&str>, request: &Attributes) -> bool {
        let named = Some(role.name.clone());
        let mut found: Vec<&PolicyRule> = Vec::new();
        if role.kind == "ClusterRole" {
            let roles = self
                .cluster_roles
                .iter()
                .filter(|one| one.metadata.name == named);
            found.extend(roles.flat_map(|one| one.rules.iter().flatten()));
        } else if namespace.is_some() {
            let roles = self.roles.iter().filter(|one| {
                one.metadata.name == named && one.metadata.namespace.as_deref() == namespace
            });
            found.extend(roles.flat_map(|one| one.rules.iter().flatten()));
        }
        found.into_iter().any(|rule| rule_matches(rule, request))
    }
}

fn is_subject(user: &User, subjects: Option<&Vec<Subject>>, namespace: &str) -> bool {
    subjects.into_iter().flatten().any(|subject| {
        let account = subject.namespace.clone().unwrap_or(namespace.to_owned());
        match subject.kind.as_str() {
            "User" => user.name == subject.name,
            "Group" => user.groups.contains(&subject.name),
            "ServiceAccount" => {
                user.name == format!("system:serviceaccount:{account}:{}", subject.name)
            }
            _ => false,
        }
    })
}

fn rule_matches(rule: &PolicyRule, request: &Attributes) -> bool {
    let among = |list: &Option<Vec<String>>, values: &[String]| {
        list.iter().flatten().any(|one| values.contains(one))
    };
    let star = "*".to_owned();
    let verb = among(
        &Some(rule.verbs.clone()),
        &[request.verb.clone(), star.clone()],
    );
    verb && match &request.target {
        Target::Resource(wanted) => {
            let mut resources = vec![star.clone(), wanted.resource.clone()];
            if !wanted.subresource.is_empty() {
                resources[1] = format!("{}/{}", wanted.resource, wanted.subresource);
                resources.push(format!("*/{}", wanted.subresource));
            }
            among(&rule.api_groups, &[wanted.group.clone(), star])
                && among(&rule.resources, &resources)
                && (rule.resource_names.is_none()
                    || among(&rule.resource_names, std::slice::from_ref(&wanted.name)))
        }
        Target::Path(path) => {
            rule.non_resource_urls
                .iter()
                .flatten()
                .any(|url| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => path == url,
                })
        }
    }
}

fn users() -> Vec<User> {
    let group = |group: &&str| [(*group).to_owned()];
    let of_group = |name: &&str| {
        let with = NAMES
            .iter()
            .map(|one| User::authenticated(*name, group(one)));
        with.collect::<Vec<_>>()
    };
    USERS.iter().flat_map(of_group).collect()
}

proptest! {
    #[test]
    fn every_decision_is_that_of_the_reference(changes in prop::collection::vec(change(), 1..24)) {
        let (mut policy, mut reference) = (Policy::default(), Reference::default());
        for change in &changes {
            reference.apply(change, &mut policy);
        }
        for user in users() {
            for request in all_requests() {
                let reason = policy.allows(&user, &request);
                prop_assert_eq!(reason.is_some(), reference.allows(&user, &request), "{:?} {:?} {:?}", user, request, reason);
            }
        }
    }
}
