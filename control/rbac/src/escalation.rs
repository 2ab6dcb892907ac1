//! The escalation check: no user grants rights that the user does not have.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::ptr;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rule::{has, list, resource_covers, url_covers};
use crate::{Policy, User};

/// Most missing rights that an error names.
const LISTED_MAX: usize = 20;
/// Most bytes of a word in a rule that is checked: longer than any name, and errors repeat the words.
const WORD_BYTES_MAX: usize = 512;
/// Most bytes that a check compares. With the rules of `admin`, these are some 20,000 rights.
const COMPARED_BYTES_MAX: usize = 100_000_000;
/// Bytes for which a right counts, beside those of the rules with which it is compared.
const RIGHT_BYTES: usize = 256;

/// The error of rules whose rights cannot all be compared.
const TOO_MANY: &str = "that are too many to check one by one: split the rules, with fewer verbs, groups and resources each, among several roles";

/// The rights that `wanted` grant and `owned` do not, each with one verb and one resource or path.
///
/// A right is compared with one rule at a time: two rules that cover it only together do not count, as in Kubernetes. There are as many as
/// the product of a rule's lists: this is for rules that users do not choose.
pub fn missing<R: Borrow<PolicyRule>>(owned: &[R], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    candidates(owned, wanted)
        .filter(|right| !is_owned(owned, right))
        .collect()
}

/// The error of a user who grants `rules` in `namespace` (empty: in the cluster) without having them, or more of them than can be checked.
pub(crate) fn check(
    policy: &Policy,
    user: &User,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let mut seen = HashSet::new();
    // Many bindings of one role give its rules once.
    let owned: Vec<&PolicyRule> = policy
        .rules_for(user, namespace)
        .filter(|rule| seen.insert(ptr::from_ref(*rule)))
        .collect();
    let why = refusal(&owned, rules);
    why.map_or(Ok(()), |why| {
        let groups: Vec<String> = user.groups.iter().map(|group| quoted(group)).collect();
        let (name, groups) = (quoted(&user.name), groups.join(" "));
        Err(format!(
            "user {name} (groups=[{groups}]) is attempting to grant RBAC permissions {why}"
        ))
    })
}

/// Why `owned` do not suffice to grant `wanted`, after a bounded search.
fn refusal(owned: &[&PolicyRule], wanted: &[PolicyRule]) -> Option<String> {
    let longest = wanted.iter().flat_map(words).map(String::len).max();
    if let Some(len) = longest.filter(|len| *len > WORD_BYTES_MAX) {
        return Some(format!(
            "that cannot be checked: a rule has a word of {len} bytes, more than {WORD_BYTES_MAX}"
        ));
    }
    let Some(affordable) = affordable(owned, wanted) else {
        return Some(TOO_MANY.to_owned());
    };
    let mut candidates = candidates(owned, wanted);
    let compared = candidates.by_ref().take(affordable);
    let mut missing = compared.filter(|right| !is_owned(owned, right));
    let listed: Vec<PolicyRule> = missing.by_ref().take(LISTED_MAX).collect();
    let has_more = missing.next().is_some() || candidates.next().is_some();
    match (listed.is_empty(), has_more) {
        (true, false) => None,
        (true, true) => Some(TOO_MANY.to_owned()),
        (false, _) => {
            let more = if has_more { "\nand more" } else { "" };
            Some(format!("not currently held:\n{}{more}", describe(&listed)))
        }
    }
}

/// How many rights can be compared with `owned`, after each word of `wanted` was; `None`: these are too many already.
fn affordable(owned: &[&PolicyRule], wanted: &[PolicyRule]) -> Option<usize> {
    let owned = owned.iter().flat_map(|rule| words(rule));
    let bytes: usize = owned.map(|word| word.len() + 1).sum();
    let rights = COMPARED_BYTES_MAX / (bytes + RIGHT_BYTES);
    rights.checked_sub(wanted.iter().flat_map(words).count())
}

/// The words in all lists of a rule.
fn words(rule: &PolicyRule) -> impl Iterator<Item = &String> {
    let optional = [
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.non_resource_urls,
    ];
    let optional = optional
        .into_iter()
        .flat_map(|values| list(values.as_ref()));
    rule.verbs.iter().chain(optional)
}

/// The single rights of `wanted`, without those of rules that one of `owned` covers whole.
fn candidates<R: Borrow<PolicyRule>>(
    owned: &[R],
    wanted: &[PolicyRule],
) -> impl Iterator<Item = PolicyRule> {
    let rules = wanted.iter().filter(|rule| !is_owned(owned, rule));
    rules.flat_map(single)
}

/// Whether one of the rules covers a right, or all of a rule.
fn is_owned<R: Borrow<PolicyRule>>(owned: &[R], right: &PolicyRule) -> bool {
    owned.iter().any(|rule| covers(rule.borrow(), right))
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

/// The parts of a rule with one verb and one resource, name or path each, made one by one.
fn single(rule: &PolicyRule) -> impl Iterator<Item = PolicyRule> {
    let one = |value: &String| Some(vec![value.clone()]);
    let [groups, resources, names, urls] = [
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.non_resource_urls,
    ]
    .map(|values| list(values.as_ref()));
    // Without resources, groups give no right: none is tried.
    let groups = if resources.is_empty() { &[] } else { groups };
    rule.verbs.iter().flat_map(move |verb| {
        let right = move || PolicyRule {
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        };
        let pairs = groups
            .iter()
            .flat_map(move |group| resources.iter().map(move |resource| (group, resource)));
        let of_resources = pairs.flat_map(move |(group, resource)| {
            let unnamed = names.is_empty().then_some(None);
            let names = names.iter().map(Some).chain(unnamed);
            names.map(move |name| PolicyRule {
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.and_then(one),
                ..right()
            })
        });
        of_resources.chain(urls.iter().map(move |url| PolicyRule {
            non_resource_urls: one(url),
            ..right()
        }))
    })
}

/// Whether a rule covers a right; one with several values only if it covers each combination of them.
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

#[cfg(test)]
mod tests;
