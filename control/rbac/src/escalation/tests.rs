//! The bounds of the check, in rights that are made and in bytes of the error.

use super::*;

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

fn rule(verbs: &[String], groups: &[String], resources: &[String]) -> PolicyRule {
    PolicyRule {
        verbs: verbs.to_vec(),
        api_groups: Some(groups.to_vec()),
        resources: Some(resources.to_vec()),
        ..PolicyRule::default()
    }
}

/// A rule of 27 million rights in 3 KB.
fn cube() -> PolicyRule {
    let [verbs, groups, resources] = ["v", "g", "r"].map(|prefix| numbered(prefix, 300));
    rule(&verbs, &groups, &resources)
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

#[test]
fn an_error_names_the_first_missing_rights_and_says_that_there_are_more() {
    let why = refusal(&[], &[cube()]).unwrap();
    assert_eq!(why.matches("Verbs").count(), LISTED_MAX);
    assert!(why.ends_with("\nand more") && why.len() < 2_000, "{why}");
    let few = rule(
        &numbered("v", 1),
        &numbered("g", 1),
        &numbered("r", LISTED_MAX),
    );
    let why = refusal(&[], &[few]).unwrap();
    assert_eq!(why.matches("Verbs").count(), LISTED_MAX);
    assert!(!why.ends_with("more"), "{why}");
}

#[test]
fn a_rule_that_one_covers_whole_is_not_divided_whatever_its_size() {
    let owned = rule(&all(), &all(), &all());
    let own = cube();
    for owned in [&owned, &own] {
        assert_eq!(candidates(&[owned], &[cube()]).count(), 0);
        assert_eq!(refusal(&[owned], &[cube()]), None);
    }
}

#[test]
fn rights_that_are_too_many_to_compare_are_refused_though_each_is_owned() {
    let verbs = numbered("v", 300);
    let owned: Vec<PolicyRule> = verbs
        .iter()
        .map(|verb| rule(std::slice::from_ref(verb), &all(), &all()))
        .collect();
    let owned: Vec<&PolicyRule> = owned.iter().collect();
    let wanted = cube();
    assert_eq!(
        refusal(&owned, std::slice::from_ref(&wanted)).as_deref(),
        Some(TOO_MANY)
    );
    let compared = affordable(&owned, &[wanted]).unwrap();
    assert!((10_000..100_000).contains(&compared), "{compared}");
    let few = rule(&verbs, &numbered("g", 4), &numbered("r", 8));
    assert_eq!(refusal(&owned, &[few]), None);
}

/// The last right is the one that is missing, past those that are compared.
#[test]
fn what_is_not_compared_is_not_granted() {
    let owned = [
        rule(
            &numbered("v", 300),
            &numbered("g", 300),
            &numbered("r", 299),
        ),
        rule(&numbered("v", 299), &all(), &all()),
    ];
    let owned: Vec<&PolicyRule> = owned.iter().collect();
    assert_eq!(refusal(&owned, &[cube()]).as_deref(), Some(TOO_MANY));
}

#[test]
fn words_and_lists_that_are_too_long_to_compare_are_refused() {
    let owned = rule(&all(), &all(), &all());
    let long = |len| rule(&["v".repeat(len)], &all(), &all());
    assert_eq!(refusal(&[&owned], &[long(WORD_BYTES_MAX)]), None);
    let why = refusal(&[&owned], &[long(WORD_BYTES_MAX + 1)]).unwrap();
    assert!(why.ends_with("a word of 513 bytes, more than 512"), "{why}");
    let many = rule(&numbered("v", 500_000), &all(), &all());
    assert_eq!(refusal(&[&owned], &[many]).as_deref(), Some(TOO_MANY));
}

#[test]
fn groups_without_resources_are_no_rights_and_are_not_gone_through() {
    let wanted = rule(&numbered("v", 30_000), &numbered("g", 100_000), &[]);
    assert_eq!(single(&wanted).count(), 0);
}
