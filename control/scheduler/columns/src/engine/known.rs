//! Pods that are nominated to a node, and pods that no node can have: what is known of their equals saves the look at each node.

use dormouse_scheduler_decide::{Code, Pod};

use super::{Choice, Engine};
use crate::class::Class;
use crate::decision::Decision;
use crate::failures::Key;
use crate::number::at;

impl Engine {
    /// Whether a node's verdict on a pod depends on that node and its own pods alone.
    pub(super) fn is_alone(&self, class: &Class, pod: &Pod) -> bool {
        let mut all = class.repelled_by.iter();
        let counters = &self.index.counters;
        !pod.has_required_terms() && all.all(|id| counters.get(*id).by_node.is_empty())
    }

    fn is_known_alone(&mut self, (profile, rules, _): Key, pod: &Pod) -> bool {
        self.prepare(profile, rules, pod).is_some()
            && self
                .classes
                .get(&(rules, profile))
                .is_some_and(|class| self.is_alone(class, pod))
    }

    /// The choice for a pod that is nominated to a node, or of whose equals it is known that no node could have them.
    pub(super) fn known(&mut self, key: Key, pod: &Pod) -> Option<Choice> {
        let is_nominated = !pod.nominated_node().is_empty();
        if !is_nominated && !self.ledger.has(&key) {
            return None;
        }
        if !is_nominated && let Some(decision) = self.failures.get(&key, &self.cluster) {
            return Some(decision.clone().into());
        }
        if !self.is_known_alone(key, pod) {
            return is_nominated.then(|| self.attempt(key.0, pod).into());
        }
        if let Some(slot) = self.cluster.slot(pod.nominated_node()) {
            let judge = self.profiles[key.0].0.judge(&self.cluster, pod);
            let node = self.cluster.view(slot);
            let verdict = judge.zip(node).map(|(judge, node)| judge.verdict(node));
            match verdict {
                Some(Ok(())) => return Some(Choice::Slot(slot)),
                Some(Err(status)) if status.code != Code::Error => {}
                _ => return Some(self.attempt(key.0, pod).into()),
            }
        }
        if !self.ledger.has(&key) {
            return None;
        }
        self.draw_offset(key.0);
        self.reject(key, pod).map(Choice::from)
    }

    /// Decides for a pod that the index has no node for.
    pub(super) fn fail(&mut self, key: Key, pod: &Pod, is_special: bool) -> Decision {
        let is_nominated = !pod.nominated_node().is_empty();
        if !is_nominated && let Some(decision) = self.failures.get(&key, &self.cluster) {
            return decision.clone();
        }
        let is_alone = self.is_known_alone(key, pod);
        self.draw_offset(key.0);
        let known = (is_alone && !is_special).then(|| self.reject(key, pod));
        let decision = known.flatten().unwrap_or_else(|| self.attempt(key.0, pod));
        if is_nominated {
            return decision;
        }
        let of = (&decision, &self.cluster);
        self.failures.insert(key, pod.priority(), is_special, of);
        if is_special && is_alone && decision.has_victims() {
            // Others of the class are expected to fail as well: each node is judged for them.
            let _known = self.reject(key, pod);
        }
        decision
    }

    /// Decides for a pod that all nodes reject; `None` if one passes.
    fn reject(&mut self, key: Key, pod: &Pod) -> Option<Decision> {
        let judge = self.profiles[key.0].0.judge(&self.cluster, pod)?;
        let slot = |name: &str| self.cluster.slot(name);
        let own = self.cluster.nomination(pod.key()).and_then(slot);
        let (judged, rejections) = self.ledger.rejections(key, &judge, &self.cluster, own);
        self.looked_at += judged;
        let (court, rejections) = rejections?;
        let nominated = slot(pod.nominated_node());
        Some(rejections.conclude(court, nominated).into())
    }

    /// The number of nodes that were judged before those of a window of a part of the order: the one that the pod is nominated
    /// to, unless it is among them.
    pub(super) fn judged_before(&self, pod: &Pod, start: usize, judged: usize) -> usize {
        if pod.nominated_node().is_empty() || judged == self.cluster.nodes_len() {
            return 0;
        }
        let slot = self.cluster.slot(pod.nominated_node());
        let position = slot.and_then(|slot| self.index.positions.get(at(slot)));
        let nodes_len = self.cluster.nodes_len();
        let distance = position.map(|position| (at(*position) + nodes_len - start) % nodes_len);
        usize::from(distance.is_some_and(|distance| distance >= judged))
    }
}
