//! The filter of PodTopologySpread: no node whose domain would have too many pods.

use std::collections::{BTreeMap, HashMap};

use super::{constraints, matching};
use crate::cycle;
use crate::node::Node;
use crate::node_state::NodeState;
use crate::plugins::{Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::spread::{Action, Constraint};
use crate::status::Status;

const VIOLATED: &str = "node(s) didn't match pod topology spread constraints";

/// A constraint, and the number of matching pods in each of its domains.
#[derive(Clone)]
struct Domains {
    constraint: Constraint,
    pods: HashMap<String, i64>,
    /// The number of domains with each number of pods, so that the smallest is at hand.
    sizes: BTreeMap<i64, usize>,
}

/// The constraints of the cycle's pod.
#[derive(Clone, Default)]
pub(crate) struct Counts(Vec<Domains>);

impl Domains {
    fn add(&mut self, domain: &str, pods: i64) {
        let now = self.pods.get(domain).copied();
        if let Some(now) = now
            && let Some(len) = self.sizes.get_mut(&now)
        {
            *len -= 1;
            if *len == 0 {
                self.sizes.remove(&now);
            }
        }
        let sum = now.unwrap_or(0) + pods;
        self.pods.insert(domain.to_owned(), sum);
        *self.sizes.entry(sum).or_default() += 1;
    }

    /// The pods of the domain that has the fewest; 0 if there are fewer domains than there should be.
    fn fewest(&self) -> i64 {
        if self.pods.len() < self.constraint.min_domains {
            return 0;
        }
        let fewest = self.sizes.first_key_value().map(|(pods, _)| *pods);
        fewest.unwrap_or(i64::from(i32::MAX))
    }
}

/// Counts the matching pods of each domain.
pub(crate) fn pre_filter(
    cycle: Cycle<'_>,
    state: &mut CycleState,
    all: &mut cycle::Counts,
) -> Result<PreFilter, Status> {
    let constraints = constraints(cycle, Action::DoNotSchedule).map_err(|error| {
        let which = "obtaining pod's hard topology spread constraints";
        Status::error(format!("get constraints from pod: {which}: {error}"))
    })?;
    if constraints.is_empty() {
        return Ok(PreFilter::Skip);
    }
    let domains = constraints.into_iter().map(|constraint| Domains {
        constraint: constraint.into_owned(),
        pods: HashMap::new(),
        sizes: BTreeMap::new(),
    });
    let counts = Counts(domains.collect());
    all.spread = vec![HashMap::new(); counts.0.len()];
    for node in cycle.snapshot.nodes() {
        counts.count_node(cycle.pod, node, &mut all.spread);
    }
    state.spread = counts;
    Ok(PreFilter::Done)
}

impl Counts {
    fn has_keys(&self, node: &Node) -> bool {
        let all = self.0.iter().map(|domains| &domains.constraint);
        Constraint::all_keyed(all, &node.labels)
    }

    fn count_node(&self, pod: &Pod, node: &NodeState, all: &mut [HashMap<String, i64>]) {
        if !self.has_keys(&node.node) {
            return;
        }
        for (domains, all) in self.0.iter().zip(all) {
            let constraint = &domains.constraint;
            if constraint.includes(pod, &node.node) {
                let pods = matching(node, &constraint.selector, &pod.key.namespace);
                let domain = node.node.labels[&constraint.topology_key].clone();
                *all.entry(domain).or_default() += pods;
            }
        }
    }

    /// Takes the pods of each domain on all nodes. A pod without constraints has been skipped before.
    pub(crate) fn is_idle(&mut self, all: &cycle::Counts) -> bool {
        for (domains, all) in self.0.iter_mut().zip(&all.spread) {
            for (domain, pods) in all {
                domains.add(domain, *pods);
            }
        }
        false
    }

    /// Adds pods like `other` on `node`, or takes them away.
    pub(crate) fn count(&mut self, pod: &Pod, other: &Pod, node: &Node, times: i64) {
        if other.key.namespace != pod.key.namespace || !self.has_keys(node) {
            return;
        }
        for domains in &mut self.0 {
            let constraint = &domains.constraint;
            if constraint.selects(&other.labels) && constraint.includes(pod, node) {
                let domain = node.labels[&constraint.topology_key].clone();
                domains.add(&domain, times);
            }
        }
    }
}

/// Rejects nodes without a domain, and those whose domain would exceed the smallest by more than the allowed skew.
pub(crate) fn filter(pod: &Pod, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    for domains in &state.spread.0 {
        let constraint = &domains.constraint;
        let Some(domain) = node.node.labels.get(&constraint.topology_key) else {
            let reason = format!("{VIOLATED} (missing required label)");
            return Err(Status::unresolvable(reason));
        };
        let present = domains.pods.get(domain).copied().unwrap_or(0);
        let own = i64::from(constraint.selects(&pod.labels));
        if present + own - domains.fewest() > constraint.max_skew {
            return Err(Status::unschedulable(VIOLATED));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_pods_of_a_domain_follow_changes() {
        let mut domains = Domains {
            constraint: Constraint::of_default(Action::DoNotSchedule, "z", 1),
            pods: HashMap::new(),
            sizes: BTreeMap::new(),
        };
        domains.add("a", 2);
        domains.add("b", 3);
        assert_eq!(domains.fewest(), 2);
        domains.add("a", 2);
        assert_eq!(domains.fewest(), 3);
        domains.add("b", -3);
        assert_eq!(domains.fewest(), 0);
        domains.add("b", 5);
        domains.constraint.min_domains = 3;
        assert_eq!(domains.fewest(), 0);
    }
}
