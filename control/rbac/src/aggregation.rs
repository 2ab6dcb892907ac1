//! Aggregation: the rules of a ClusterRole that is the union of others, which its label selectors choose.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// The rules of an aggregated role, of those in `all`, in their order; `None` if `role` has its own rules.
///
/// The rules of a role that is aggregated itself are those that are stored: with several levels, each level follows the one below.
pub fn aggregated<'a>(
    role: &ClusterRole,
    all: impl IntoIterator<Item = &'a ClusterRole>,
) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?;
    let selectors = selectors.cluster_role_selectors.as_deref();
    let selectors = selectors.unwrap_or_default();
    let (mut rules, mut known) = (Vec::new(), HashSet::new());
    for one in all {
        let is_chosen = selectors.iter().any(|selector| matches(selector, one));
        if !is_chosen || one.metadata.name == role.metadata.name {
            continue;
        }
        for rule in one.rules.iter().flatten() {
            let parts = (
                (&rule.verbs, &rule.api_groups, &rule.resources),
                (&rule.resource_names, &rule.non_resource_urls),
            );
            if known.insert(parts) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

/// Whether a selector matches a role's labels. One without requirements matches all roles.
fn matches(selector: &LabelSelector, role: &ClusterRole) -> bool {
    let none = BTreeMap::new();
    let labels = role.metadata.labels.as_ref().unwrap_or(&none);
    let mut equal = selector.match_labels.iter().flatten();
    let mut required = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && required.all(|one| holds(one, labels.get(&one.key)))
}

fn holds(required: &LabelSelectorRequirement, value: Option<&String>) -> bool {
    let values = required.values.as_deref().unwrap_or_default();
    let is_in = value.is_some_and(|value| values.contains(value));
    match required.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        // Such a selector is not valid.
        _ => false,
    }
}
