//! Node selectors: empty and malformed terms, and names of nodes.

use super::*;

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(ToString::to_string).collect()),
    }
}

fn by_name(operator: &str, values: &[&str]) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: None,
        match_fields: Some(vec![requirement(NAME_FIELD, operator, values)]),
    }
}

fn required(terms: Vec<NodeSelectorTerm>) -> RequiredNode {
    let api = ApiSelector {
        node_selector_terms: terms,
    };
    RequiredNode::parse(None, Some(&api))
}

#[test]
fn an_empty_term_matches_no_node_and_names_none() {
    let nodes = required(vec![NodeSelectorTerm::default()]);
    assert!(!nodes.matches(&Labels::new(), "a"));
    assert_eq!(nodes.named(), NamedNodes::All);
}

#[test]
fn names_are_united_over_terms_that_all_name_nodes() {
    let nodes = required(vec![by_name("In", &["a"]), by_name("In", &["b"])]);
    let both = ["a", "b"].map(str::to_owned).into();
    assert_eq!(nodes.named(), NamedNodes::Only(both));
    assert!(nodes.matches(&Labels::new(), "b"));
    let nodes = required(vec![by_name("In", &["a"]), by_name("NotIn", &["b"])]);
    assert_eq!(nodes.named(), NamedNodes::All);
    assert!(!nodes.matches(&Labels::new(), "b"));
}

#[test]
fn a_malformed_term_matches_no_node_and_says_why() {
    let nodes = required(vec![by_name("In", &["a", "b"])]);
    assert!(!nodes.matches(&Labels::new(), "a"));
    let error = nodes.terms.unwrap().errors().unwrap();
    assert_eq!(
        error,
        "nodeSelectorTerms[0].matchFields[0].values: Invalid value: [\"a\",\"b\"]: must have one element"
    );
}
