//! Node selectors: terms over labels and the name of a node, required or preferred.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeSelector as ApiSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};

use crate::labels::LabelMap;
use crate::malformed::joined;
use crate::node::Node;
use crate::selector::{Labels, Operator, Requirement, Selector};

/// The only field of a node that a term can name.
const NAME_FIELD: &str = "metadata.name";

/// A condition on a field of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FieldRequirement {
    field: String,
    is_equal: bool,
    value: String,
}

/// A term, if it could be parsed; a malformed one matches no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    labels: Option<Selector>,
    fields: Option<Vec<FieldRequirement>>,
    errors: Vec<String>,
}

/// Terms of which a node must match one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeSelector(Vec<Term>);

/// Terms with weights, all of which could be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Preferences(Vec<(i64, Term)>);

/// A pod's own requirements on its node: the node selector and the required node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequiredNode {
    pub(crate) labels: Option<LabelMap>,
    pub(crate) terms: Option<NodeSelector>,
    /// The names that the terms' fields list, one entry for each term.
    names: Vec<Option<BTreeSet<String>>>,
}

/// The nodes that a required affinity names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedNodes {
    /// The affinity does not name nodes.
    All,
    Only(BTreeSet<String>),
}

impl Term {
    /// `None` for a term without conditions, which matches no node.
    fn parse(term: &NodeSelectorTerm, path: &str) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mut errors = Vec::new();
        let labels = label_requirements(expressions, &format!("{path}.matchExpressions"));
        let fields = field_requirements(fields, &format!("{path}.matchFields"));
        let labels = labels.map_err(|wrong| errors.extend(wrong)).ok();
        let fields = fields.map_err(|wrong| errors.extend(wrong)).ok();
        Some(Self {
            labels: labels.filter(|all| !all.is_empty()).map(Selector::All),
            fields: fields.filter(|all| !all.is_empty()),
            errors,
        })
    }

    fn matches(&self, labels: &Labels, name: Option<&str>) -> bool {
        let by_labels = || self.labels.as_ref().is_none_or(|all| all.matches(labels));
        let by_fields = || {
            let all = self.fields.iter().flatten();
            name.is_none_or(|name| all.clone().all(|one| one.matches(name)))
        };
        self.errors.is_empty() && by_labels() && by_fields()
    }
}

impl Term {
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().flat_map(Selector::keys)
    }
}

impl FieldRequirement {
    fn matches(&self, name: &str) -> bool {
        let actual = if self.field == NAME_FIELD { name } else { "" };
        (actual == self.value) == self.is_equal
    }
}

fn label_requirements(
    all: &[NodeSelectorRequirement],
    path: &str,
) -> Result<Vec<Requirement>, Vec<String>> {
    const SUPPORTED: &str = "\"DoesNotExist\", \"Exists\", \"Gt\", \"In\", \"Lt\", \"NotIn\"";
    let mut errors = Vec::new();
    let mut requirements = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let values = one.values.as_deref().unwrap_or_default();
        match Operator::of_node(&one.operator) {
            None => errors.push(unsupported(&path, &one.operator, SUPPORTED)),
            Some(operator) => match Requirement::new(&path, &one.key, operator, values) {
                Ok(requirement) => requirements.push(requirement),
                Err(error) => errors.push(error),
            },
        }
    }
    if errors.is_empty() {
        Ok(requirements)
    } else {
        Err(errors)
    }
}

fn field_requirements(
    all: &[NodeSelectorRequirement],
    path: &str,
) -> Result<Vec<FieldRequirement>, Vec<String>> {
    let mut errors = Vec::new();
    let mut requirements = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let is_equal = match one.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            other => {
                errors.push(unsupported(&path, other, "\"In\", \"NotIn\""));
                continue;
            }
        };
        match one.values.as_deref().unwrap_or_default() {
            [value] => requirements.push(FieldRequirement {
                field: one.key.clone(),
                is_equal,
                value: value.clone(),
            }),
            values => {
                let shown = values.iter().map(|value| format!("{value:?}"));
                let shown = shown.collect::<Vec<_>>().join(",");
                errors.push(format!(
                    "{path}.values: Invalid value: [{shown}]: must have one element"
                ));
            }
        }
    }
    if errors.is_empty() {
        Ok(requirements)
    } else {
        Err(errors)
    }
}

fn unsupported(path: &str, operator: &str, supported: &str) -> String {
    format!("{path}.operator: Unsupported value: {operator:?}: supported values: {supported}")
}

impl NodeSelector {
    /// Malformed terms stay, and match no node.
    pub(crate) fn lenient(selector: &ApiSelector) -> Self {
        let terms = selector.node_selector_terms.iter().enumerate();
        let terms =
            terms.filter_map(|(i, term)| Term::parse(term, &format!("nodeSelectorTerms[{i}]")));
        Self(terms.collect())
    }

    /// Whether a node matches a term; without a name, terms' fields are not compared.
    pub(crate) fn matches(&self, labels: &Labels, name: Option<&str>) -> bool {
        self.0.iter().any(|term| term.matches(labels, name))
    }

    /// The keys of labels that it reads.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(Term::keys)
    }

    /// Whether it reads the name of a node.
    pub(crate) fn reads_name(&self) -> bool {
        self.0.iter().any(|term| term.fields.is_some())
    }

    /// The errors of malformed terms.
    pub(crate) fn errors(&self) -> Option<String> {
        let errors: Vec<String> = self.0.iter().flat_map(|term| term.errors.clone()).collect();
        (!errors.is_empty()).then(|| joined(&errors))
    }
}

impl Preferences {
    /// The terms with weights; an error has Kubernetes' text.
    pub(crate) fn parse(terms: &[PreferredSchedulingTerm]) -> Result<Self, String> {
        let mut errors = Vec::new();
        let mut parsed = Vec::new();
        for (index, term) in terms.iter().enumerate() {
            let path = format!("[{index}]");
            let parse = || Term::parse(&term.preference, &path);
            let Some(one) = (term.weight != 0).then(parse).flatten() else {
                continue;
            };
            if one.errors.is_empty() {
                parsed.push((i64::from(term.weight), one));
            } else {
                errors.extend(one.errors);
            }
        }
        if errors.is_empty() {
            Ok(Self(parsed))
        } else {
            Err(joined(&errors))
        }
    }

    /// The keys of labels that they read.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|(_, term)| term.keys())
    }

    /// Whether they read the name of a node.
    pub(crate) fn read_name(&self) -> bool {
        self.0.iter().any(|(_, term)| term.fields.is_some())
    }

    /// The sum of the weights of the terms that a node matches.
    pub(crate) fn score(&self, labels: &Labels, name: &str) -> i64 {
        let matching = self
            .0
            .iter()
            .filter(|(_, term)| term.matches(labels, Some(name)));
        matching.map(|(weight, _)| weight).sum()
    }
}

impl RequiredNode {
    pub(crate) fn parse(labels: Option<&LabelMap>, terms: Option<&ApiSelector>) -> Self {
        let listed = terms.iter().flat_map(|terms| &terms.node_selector_terms);
        Self {
            labels: labels.cloned(),
            terms: terms.map(NodeSelector::lenient),
            names: listed.map(names).collect(),
        }
    }

    /// Whether a node has the labels of the node selector.
    pub(crate) fn has_labels_of(&self, node: &Node) -> bool {
        let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
        self.labels.iter().flatten().all(has)
    }

    /// Whether the pod requires something of its node.
    pub(crate) fn is_some(&self) -> bool {
        self.labels.is_some() || self.terms.is_some()
    }

    pub(crate) fn matches(&self, labels: &Labels, name: &str) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let by_labels = self.labels.iter().flatten().all(has);
        let by_terms = || {
            let terms = self.terms.as_ref();
            terms.is_none_or(|terms| terms.matches(labels, Some(name)))
        };
        by_labels && by_terms()
    }

    /// The nodes that the terms name, if each term names some.
    pub(crate) fn named(&self) -> NamedNodes {
        let mut all = BTreeSet::new();
        for names in &self.names {
            let Some(names) = names else {
                return NamedNodes::All;
            };
            all.extend(names.iter().cloned());
        }
        if self.names.is_empty() {
            NamedNodes::All
        } else {
            NamedNodes::Only(all)
        }
    }
}

/// The names that all name conditions of a term list.
fn names(term: &NodeSelectorTerm) -> Option<BTreeSet<String>> {
    let fields = term.match_fields.iter().flatten();
    let named = fields.filter(|one| one.key == NAME_FIELD && one.operator == "In");
    let sets = named.map(|one| one.values.iter().flatten().cloned().collect());
    sets.reduce(|a: BTreeSet<String>, b: BTreeSet<String>| a.intersection(&b).cloned().collect())
}

#[cfg(test)]
mod tests;
