//! Roles, bindings and requests in short.

use dormouse_rbac::{Attributes, GROUP, Resource};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn words(text: &str) -> Vec<String> {
    let words = text.split_whitespace();
    words.map(|word| word.replace("core", "")).collect()
}

/// A rule from `VERBS | GROUPS | RESOURCES | NAMES`, words separated by spaces; the core group is `core`.
pub(crate) fn rule(text: &str) -> PolicyRule {
    let mut parts = text.split('|').map(words);
    let mut next = || parts.next().unwrap_or_default();
    let (verbs, groups, resources, names) = (next(), next(), next(), next());
    PolicyRule {
        verbs,
        api_groups: Some(groups),
        resources: Some(resources),
        resource_names: Some(names).filter(|names| !names.is_empty()),
        non_resource_urls: None,
    }
}

/// A rule from `VERBS | URLS`.
pub(crate) fn urls(text: &str) -> PolicyRule {
    let (verbs, urls) = text.split_once('|').unwrap();
    PolicyRule {
        verbs: words(verbs),
        non_resource_urls: Some(words(urls)),
        ..PolicyRule::default()
    }
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        ..ObjectMeta::default()
    }
}

pub(crate) fn role(namespace: &str, name: &str, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata: meta(namespace, name),
        rules: Some(rules),
    }
}

pub(crate) fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: meta("", name),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// A subject from `User NAME`, `Group NAME`, or `ServiceAccount NAME [NAMESPACE]`.
pub(crate) fn subject(text: &str) -> Subject {
    let mut words = text.split_whitespace().map(str::to_owned);
    Subject {
        kind: words.next().unwrap(),
        name: words.next().unwrap(),
        namespace: words.next(),
        api_group: None,
    }
}

fn reference(text: &str) -> RoleRef {
    let (kind, name) = text.split_once(' ').unwrap();
    RoleRef {
        api_group: Some(GROUP.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

/// A binding of the role `KIND NAME`.
pub(crate) fn binding(namespace: &str, name: &str, role: &str, subjects: &[&str]) -> RoleBinding {
    RoleBinding {
        metadata: meta(namespace, name),
        role_ref: reference(role),
        subjects: Some(subjects.iter().map(|text| subject(text)).collect()),
    }
}

pub(crate) fn cluster_binding(name: &str, role: &str, subjects: &[&str]) -> ClusterRoleBinding {
    let binding = binding("", name, role, subjects);
    ClusterRoleBinding {
        metadata: binding.metadata,
        role_ref: binding.role_ref,
        subjects: binding.subjects,
    }
}

/// A request from `VERB /PATH` or `VERB [GROUP:]RESOURCE[/SUBRESOURCE] [NAMESPACE] [NAME]`; `-` is no namespace.
pub(crate) fn request(text: &str) -> Attributes {
    let mut words = text.split_whitespace();
    let (verb, target) = (words.next().unwrap(), words.next().unwrap());
    if target.starts_with('/') {
        return Attributes::path(verb, target);
    }
    let (group, combined) = target.split_once(':').unwrap_or(("", target));
    let (resource, subresource) = combined.split_once('/').unwrap_or((combined, ""));
    let mut next = || {
        words
            .next()
            .filter(|word| *word != "-")
            .unwrap_or_default()
            .to_owned()
    };
    Attributes::resource(
        verb,
        Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            namespace: next(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: next(),
            fields: Vec::new(),
        },
    )
}
