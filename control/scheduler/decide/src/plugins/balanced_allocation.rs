//! NodeResourcesBalancedAllocation: nodes whose resources are used in equal shares.

use crate::node_state::NodeState;
use crate::plugins::resource_scores::{balance, usage};
use crate::plugins::{Cycle, Scorer};

/// Resources and what the pod requests of each.
struct Shares<'a>(Vec<(&'a str, i64)>);

/// Skips pods that request none of the resources.
pub(crate) fn scorer<'a>(cycle: Cycle<'a>) -> Option<Box<dyn Scorer + 'a>> {
    let resources = cycle.profile.balanced.iter().map(String::as_str);
    let request = |name| (name, cycle.pod.requests.actual(name));
    let requests: Vec<_> = resources.map(request).collect();
    let is_best_effort = requests.iter().all(|(_, request)| *request == 0);
    (!is_best_effort).then(|| Box::new(Shares(requests)) as Box<dyn Scorer>)
}

impl Scorer for Shares<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        let usages = self.0.iter();
        let usages: Vec<_> = usages
            .map(|(name, request)| usage(node, name, *request, false))
            .collect();
        balance(&usages)
    }
}
