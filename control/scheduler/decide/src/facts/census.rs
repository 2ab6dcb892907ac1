//! Sets of pods that plugins count on nodes.

use crate::affinity::Term;
use crate::plugins::inter_pod_affinity::{merged, selects};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::selector::Selector;
use crate::snapshot::Snapshot;

/// A set of pods that is counted on nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Census(Set);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Set {
    /// The pods of a namespace that a spread constraint counts.
    Spread {
        namespace: String,
        selector: Selector,
    },
    /// The pods that a term of an incoming pod selects.
    Selected(Term),
    /// The pods that have a required anti-affinity term themselves.
    Opposed(Term),
    /// The pods that have a term themselves by which nodes are scored.
    Attracted(Term),
}

impl Census {
    pub(super) fn of_spread(namespace: &str, selector: &Selector) -> Self {
        Self(Set::Spread {
            namespace: namespace.to_owned(),
            selector: selector.clone(),
        })
    }

    /// The terms by which a pod has influence on others once it is on a node.
    pub fn of_existing(pod: &Pod) -> Vec<Self> {
        let affinity = &pod.affinity;
        let opposed = affinity.required_anti.iter().cloned().map(Set::Opposed);
        let preferred = affinity.preferred.iter().chain(&affinity.preferred_anti);
        let preferred = preferred.map(|one| &one.term);
        let attracted = affinity.required.iter().chain(preferred);
        let attracted = attracted.cloned().map(Set::Attracted);
        opposed.chain(attracted).map(Self).collect()
    }

    /// The pods from which the incoming one is kept away by its required anti-affinity.
    pub fn of_incoming(profile: &Profile, snapshot: &Snapshot, pod: &Pod) -> Vec<Self> {
        let cycle = profile.cycle(snapshot, pod);
        let terms = pod.affinity.required_anti.iter();
        let merged = terms.map(|term| merged(cycle, term));
        merged.map(|term| Self(Set::Selected(term))).collect()
    }

    /// Whether pods with these rules are counted.
    pub fn counts(&self, pod: &Pod) -> bool {
        match &self.0 {
            Set::Spread {
                namespace,
                selector,
            } => {
                *namespace == pod.key.namespace
                    && !selector.is_empty()
                    && selector.matches(&pod.labels)
            }
            Set::Selected(term) => selects(term, pod),
            Set::Opposed(term) => pod.affinity.required_anti.contains(term),
            Set::Attracted(term) => {
                let affinity = &pod.affinity;
                let preferred = affinity.preferred.iter().chain(&affinity.preferred_anti);
                affinity.required.contains(term)
                    || preferred.into_iter().any(|one| one.term == *term)
            }
        }
    }

    /// Whether pods that terminate are not counted.
    pub fn omits_terminating(&self) -> bool {
        matches!(self.0, Set::Spread { .. })
    }

    /// The key of labels whose values are domains, of a term that pods have themselves if it selects the incoming pod.
    pub fn opposes(&self, snapshot: &Snapshot, pod: &Pod) -> Option<&str> {
        match &self.0 {
            Set::Opposed(term) => is_about(term, snapshot, pod).then_some(&term.topology_key),
            _ => None,
        }
    }

    /// Whether pods have the term themselves, and nodes are scored by it for the incoming pod.
    pub fn attracts(&self, snapshot: &Snapshot, pod: &Pod) -> bool {
        matches!(&self.0, Set::Attracted(term) if is_about(term, snapshot, pod))
    }

    /// The key of labels whose values are domains, of a term of the incoming pod.
    pub fn key(&self) -> Option<&str> {
        match &self.0 {
            Set::Spread { .. } => None,
            Set::Selected(term) | Set::Opposed(term) | Set::Attracted(term) => {
                Some(&term.topology_key)
            }
        }
    }
}

fn is_about(term: &Term, snapshot: &Snapshot, pod: &Pod) -> bool {
    let namespace = &pod.key.namespace;
    let labels = snapshot.namespaces.get(namespace).cloned();
    term.matches(namespace, &pod.labels, &labels.unwrap_or_default())
}
