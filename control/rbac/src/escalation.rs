//! The escalation check: no user grants rights that the user does not have.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rule::{has, list, resource_covers, url_covers};
use crate::{Policy, User};

/// The rights that `wanted` grant and `owned` do not, each with one verb and one resource or path.
///
/// A right is compared with one rule at a time: two rules that cover it only together do not count, as in Kubernetes.
pub fn missing<R: Borrow<PolicyRule>>(owned: &[R], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_owned = |right: &PolicyRule| owned.iter().any(|rule| covers(rule.borrow(), right));
    let single = wanted.iter().flat_map(single);
    single.filter(|right| !is_owned(right)).collect()
}

/// The error of a user who grants `rules` in `namespace` (empty: in the cluster) without having them.
pub(crate) fn check(
    policy: &Policy,
    user: &User,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let owned: Vec<&PolicyRule> = policy.rules_for(user, namespace).collect();
    let missing = missing(&owned, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user.groups.iter().map(|group| quoted(group)).collect();
    Err(format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&user.name),
        groups.join(" "),
        describe(&missing)
    ))
}

/// Rights as text, a line for each resource, with all its verbs.
pub fn describe(rights: &[PolicyRule]) -> String {
    let mut verbs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for right in rights {
        let parts = [
            ("APIGroups", list(right.api_groups.as_ref())),
            ("Resources", list(right.resources.as_ref())),
            ("NonResourceURLs", list(right.non_resource_urls.as_ref())),
            ("ResourceNames", list(right.resource_names.as_ref())),
        ];
        let parts = parts
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", all_quoted(values)));
        let parts: Vec<String> = parts.collect();
        let known = verbs.entry(parts.join(", ")).or_default();
        known.extend(right.verbs.iter().cloned());
    }
    let lines = verbs.into_iter().map(|(parts, mut verbs)| {
        verbs.dedup();
        format!("{{{parts}, Verbs:{}}}", all_quoted(&verbs))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn all_quoted(values: &[String]) -> String {
    let all: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", all.join(" "))
}

/// The parts of a rule with one verb and one resource, name or path each.
fn single(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |value: &String| Some(vec![value.clone()]);
    let mut rights = Vec::new();
    for verb in &rule.verbs {
        let right = PolicyRule {
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        };
        for group in list(rule.api_groups.as_ref()) {
            for resource in list(rule.resources.as_ref()) {
                let right = PolicyRule {
                    api_groups: one(group),
                    resources: one(resource),
                    ..right.clone()
                };
                let names = list(rule.resource_names.as_ref());
                if names.is_empty() {
                    rights.push(right.clone());
                }
                rights.extend(names.iter().map(|name| PolicyRule {
                    resource_names: one(name),
                    ..right.clone()
                }));
            }
        }
        let urls = list(rule.non_resource_urls.as_ref()).iter();
        rights.extend(urls.map(|url| PolicyRule {
            non_resource_urls: one(url),
            ..right.clone()
        }));
    }
    rights
}

/// Whether a rule covers a single right.
fn covers(rule: &PolicyRule, right: &PolicyRule) -> bool {
    let names = list(rule.resource_names.as_ref());
    let wanted = list(right.resource_names.as_ref());
    all(&right.verbs, |verb| has(&rule.verbs, verb))
        && all(list(right.api_groups.as_ref()), |group| {
            has(list(rule.api_groups.as_ref()), group)
        })
        && all(list(right.resources.as_ref()), |combined| {
            let mut resources = list(rule.resources.as_ref()).iter();
            resources.any(|resource| resource_covers(resource, combined))
        })
        && all(list(right.non_resource_urls.as_ref()), |path| {
            let mut urls = list(rule.non_resource_urls.as_ref()).iter();
            urls.any(|url| url_covers(url, path))
        })
        && (names.is_empty() || (!wanted.is_empty() && all(wanted, |name| names.contains(name))))
}

fn all(values: &[String], holds: impl FnMut(&String) -> bool) -> bool {
    values.iter().all(holds)
}
