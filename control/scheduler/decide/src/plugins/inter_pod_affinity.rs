//! InterPodAffinity: pods near other pods, or away from them, by topology.

pub(crate) mod filter;
pub(crate) mod score;

use crate::affinity::Term;
use crate::plugins::Cycle;
use crate::pod::Pod;
use crate::selector::Labels;

/// A term of the incoming pod, with the namespaces that its selector selects.
///
/// The selector itself still applies, to a namespace without labels. So `NotIn` and `DoesNotExist` match all namespaces, as
/// in kube-scheduler.
pub(crate) fn merged(cycle: Cycle<'_>, term: &Term) -> Term {
    let mut term = term.clone();
    if !term.namespace_selector.is_empty() {
        let all = cycle.snapshot.namespaces.iter();
        let selected = all.filter(|(_, labels)| term.namespace_selector.matches(labels));
        let selected: Vec<_> = selected.map(|(name, _)| name.clone()).collect();
        term.namespaces.extend(selected);
    }
    term
}

/// Whether a term of the incoming pod selects `other`.
pub(crate) fn selects(term: &Term, other: &Pod) -> bool {
    term.matches(&other.key.namespace, &other.labels, &Labels::new())
}

/// Whether all terms of the incoming pod select `other`; no terms select no pod.
pub(crate) fn all_select<'a>(mut terms: impl Iterator<Item = &'a Term>, other: &Pod) -> bool {
    let Some(first) = terms.next() else {
        return false;
    };
    selects(first, other) && terms.all(|term| selects(term, other))
}
