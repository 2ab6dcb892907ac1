//! Terms of inter-pod affinity and anti-affinity.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity as ApiAffinity, PodAffinityTerm, WeightedPodAffinityTerm,
};

use crate::malformed::joined;
use crate::selector::{Labels, Selector};

/// A term: the pods that it selects, and the topology that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) namespace_selector: Selector,
    selector: Selector,
    pub(crate) topology_key: String,
}

/// A preferred term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WeightedTerm {
    pub(crate) weight: i64,
    pub(crate) term: Term,
}

/// The terms of a pod. A list with a malformed term is empty, and has an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Affinity {
    pub(crate) required: Vec<Term>,
    pub(crate) required_anti: Vec<Term>,
    pub(crate) preferred: Vec<WeightedTerm>,
    pub(crate) preferred_anti: Vec<WeightedTerm>,
    pub(crate) error: Option<String>,
    /// The error is about required terms.
    pub(crate) has_required_error: bool,
}

impl Term {
    fn parse(namespace: &str, term: &PodAffinityTerm) -> Result<Self, String> {
        let listed = term.namespaces.as_deref().unwrap_or_default();
        let own = listed.is_empty() && term.namespace_selector.is_none();
        let own = own.then(|| namespace.to_owned());
        Ok(Self {
            selector: Selector::of(term.label_selector.as_ref())?,
            namespaces: listed.iter().cloned().chain(own).collect(),
            namespace_selector: Selector::of(term.namespace_selector.as_ref())?,
            topology_key: term.topology_key.clone(),
        })
    }

    /// Whether the term selects a pod with `labels` in `namespace`, whose own labels are `namespace_labels`.
    pub(crate) fn matches(
        &self,
        namespace: &str,
        labels: &Labels,
        namespace_labels: &Labels,
    ) -> bool {
        let in_namespace = self.namespaces.contains(namespace)
            || self.namespace_selector.matches(namespace_labels);
        in_namespace && self.selector.matches(labels)
    }
}

impl Affinity {
    /// The terms of a pod in `namespace`.
    pub(crate) fn parse(namespace: &str, affinity: Option<&ApiAffinity>) -> Self {
        let pods = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = pods.and_then(|one| {
            one.required_during_scheduling_ignored_during_execution
                .as_deref()
        });
        let required_anti = anti.and_then(|one| {
            one.required_during_scheduling_ignored_during_execution
                .as_deref()
        });
        let preferred = pods.and_then(|one| {
            one.preferred_during_scheduling_ignored_during_execution
                .as_deref()
        });
        let preferred_anti = anti.and_then(|one| {
            one.preferred_during_scheduling_ignored_during_execution
                .as_deref()
        });
        let mut errors = Vec::new();
        let required = terms(namespace, required);
        let required = kept(required, "requiredAffinityTerms", &mut errors);
        let required_anti = terms(namespace, required_anti);
        let required_anti = kept(required_anti, "requiredAntiAffinityTerms", &mut errors);
        let has_required_error = !errors.is_empty();
        let preferred = weighted(namespace, preferred);
        let preferred = kept(preferred, "preferredAffinityTerms", &mut errors);
        let preferred_anti = weighted(namespace, preferred_anti);
        let preferred_anti = kept(preferred_anti, "preferredAntiAffinityTerms", &mut errors);
        Self {
            required,
            required_anti,
            preferred,
            preferred_anti,
            error: (!errors.is_empty()).then(|| joined(&errors)),
            has_required_error,
        }
    }

    /// Whether the pod prefers to be near pods, or away from them.
    pub(crate) fn has_preferences(&self) -> bool {
        !self.preferred.is_empty() || !self.preferred_anti.is_empty()
    }

    /// Whether the pod has terms of any kind.
    pub(crate) fn has_terms(&self) -> bool {
        self.has_preferences() || !self.required.is_empty() || !self.required_anti.is_empty()
    }
}

/// The terms of a list; none if it is malformed, which is noted.
fn kept<T>(parsed: Result<Vec<T>, String>, list: &str, errors: &mut Vec<String>) -> Vec<T> {
    parsed.unwrap_or_else(|error| {
        errors.push(format!("{list}: {error}"));
        Vec::new()
    })
}

fn terms(namespace: &str, list: Option<&[PodAffinityTerm]>) -> Result<Vec<Term>, String> {
    let list = list.unwrap_or_default().iter();
    list.map(|term| Term::parse(namespace, term)).collect()
}

fn weighted(
    namespace: &str,
    list: Option<&[WeightedPodAffinityTerm]>,
) -> Result<Vec<WeightedTerm>, String> {
    let list = list.unwrap_or_default().iter();
    let parse = |one: &WeightedPodAffinityTerm| {
        Ok(WeightedTerm {
            weight: i64::from(one.weight),
            term: Term::parse(namespace, &one.pod_affinity_term)?,
        })
    };
    list.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Affinity {
        Affinity::parse("own", Some(&serde_json::from_str(text).unwrap()))
    }

    #[test]
    fn a_term_without_namespaces_is_about_the_pod_s_own() {
        let affinity = parse(
            r#"{"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "z", "labelSelector": {}},
                {"topologyKey": "z", "labelSelector": {}, "namespaceSelector": {}},
                {"topologyKey": "z", "namespaces": ["other"]}]}}"#,
        );
        let none = Labels::new();
        let matches =
            |term: usize, namespace| affinity.required[term].matches(namespace, &none, &none);
        assert!(matches(0, "own") && !matches(0, "other"));
        assert!(matches(1, "own") && matches(1, "other"));
        // A missing label selector selects no pod.
        assert!(!matches(2, "other"));
    }

    #[test]
    fn a_malformed_term_empties_its_list_and_is_noted() {
        let affinity = parse(
            r#"{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}]}}"#,
        );
        assert!(affinity.required_anti.is_empty() && affinity.has_required_error);
        assert_eq!(
            affinity.error.as_deref(),
            Some("requiredAntiAffinityTerms: \"Like\" is not a valid label selector operator")
        );
    }
}
