//! Rules: whether one allows a request.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::{Attributes, Resource, Target};

/// Matches every verb, group, resource or path.
pub(crate) const ALL: &str = "*";

/// Whether a rule allows a request.
pub fn allows(rule: &PolicyRule, attributes: &Attributes) -> bool {
    if !has(&rule.verbs, &attributes.verb) {
        return false;
    }
    match &attributes.target {
        Target::Resource(resource) => allows_resource(rule, resource),
        Target::Path(path) => {
            let urls = list(rule.non_resource_urls.as_ref());
            urls.iter().any(|url| url_covers(url, path))
        }
    }
}

fn allows_resource(rule: &PolicyRule, wanted: &Resource) -> bool {
    let names = list(rule.resource_names.as_ref());
    let combined = wanted.combined();
    has(list(rule.api_groups.as_ref()), &wanted.group)
        && list(rule.resources.as_ref())
            .iter()
            .any(|resource| resource_covers(resource, &combined))
        // A list or a create has no name: rules with names do not allow it.
        && (names.is_empty() || names.contains(&wanted.name))
}

/// Whether a rule's resource covers one: the same, all, or a subresource of all resources.
pub(crate) fn resource_covers(resource: &str, combined: &str) -> bool {
    if resource == ALL || resource == combined {
        return true;
    }
    let of_all = resource.strip_prefix("*/");
    of_all.is_some_and(|subresource| {
        combined.split_once('/').map(|(_, own)| own) == Some(subresource)
    })
}

/// Whether a rule's URL covers a path: the same, or all that begin with what is before `*`.
pub(crate) fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// Whether a list has a value, or all values.
pub(crate) fn has(values: &[String], value: &str) -> bool {
    values.iter().any(|one| one == ALL || one == value)
}

/// The values of a list that may be absent.
pub(crate) fn list(values: Option<&Vec<String>>) -> &[String] {
    values.map(Vec::as_slice).unwrap_or_default()
}
