//! NodeResourcesFit: the pod's requests against what is free, and a score of what is requested.

use crate::node_state::NodeState;
use crate::plugins::resource_scores::{score, usage};
use crate::plugins::{Cycle, Scorer};
use crate::profile::{FitArgs, Strategy, WeightedResource};
use crate::resources::{Resources, is_extended};
use crate::status::{Code, Status};

/// What a node is short of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    reason: String,
    /// More is requested than the node has at all.
    is_unresolvable: bool,
}

struct Scored<'a> {
    strategy: &'a Strategy,
    resources: &'a [WeightedResource],
    requests: Vec<i64>,
}

/// Rejects nodes that are short of something.
pub(crate) fn filter(cycle: Cycle<'_>, node: &NodeState) -> Result<(), Status> {
    let pods_len = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    let request = &cycle.pod.requests.fit;
    let (allocatable, used) = (&node.node.allocatable, &node.requested);
    let shortages = shortages(request, allocatable, used, pods_len, &cycle.profile.fit);
    if shortages.is_empty() {
        return Ok(());
    }
    let code = if shortages.iter().any(|shortage| shortage.is_unresolvable) {
        Code::UnschedulableAndUnresolvable
    } else {
        Code::Unschedulable
    };
    let reasons = shortages.into_iter().map(|shortage| shortage.reason);
    Err(Status {
        plugin: None,
        code,
        reasons: reasons.collect(),
    })
}

/// What a node with `pods_len` pods lacks for one more; a resource that is not requested is never short.
pub(crate) fn shortages(
    request: &Resources,
    allocatable: &Resources,
    used: &Resources,
    pods_len: i64,
    args: &FitArgs,
) -> Vec<Shortage> {
    let mut all = Vec::new();
    if pods_len + 1 > allocatable.pods {
        all.push(Shortage {
            reason: "Too many pods".to_owned(),
            is_unresolvable: false,
        });
    }
    if request.is_nothing() {
        return all;
    }
    let short = |name: &str, request: i64, allocatable: i64, used: i64| {
        let is_short = request > 0 && request > allocatable.wrapping_sub(used);
        is_short.then(|| Shortage {
            reason: format!("Insufficient {name}"),
            is_unresolvable: request > allocatable,
        })
    };
    all.extend(short(
        "cpu",
        request.cpu_milli,
        allocatable.cpu_milli,
        used.cpu_milli,
    ));
    all.extend(short(
        "memory",
        request.memory,
        allocatable.memory,
        used.memory,
    ));
    all.extend(short(
        "ephemeral-storage",
        request.ephemeral_storage,
        allocatable.ephemeral_storage,
        used.ephemeral_storage,
    ));
    let counted = request
        .scalars
        .iter()
        .filter(|(name, _)| !args.ignores(name));
    let scalars = counted.filter_map(|(name, request)| {
        short(name, *request, allocatable.scalar(name), used.scalar(name))
    });
    all.extend(scalars);
    all
}

impl FitArgs {
    fn ignores(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        let is_listed = self.ignored.contains(name) || self.ignored_groups.contains(group);
        is_listed && is_extended(name)
    }
}

/// The score, by the profile's strategy.
pub(crate) fn scorer<'a>(cycle: Cycle<'a>) -> Box<dyn Scorer + 'a> {
    let args = &cycle.profile.fit;
    let requests = args.resources.iter();
    let requests = requests.map(|resource| cycle.pod.requests.scored(&resource.name));
    Box::new(Scored {
        strategy: &args.strategy,
        resources: &args.resources,
        requests: requests.collect(),
    })
}

impl Scorer for Scored<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        let all = self.resources.iter().zip(&self.requests);
        let usages: Vec<_> = all
            .map(|(resource, request)| usage(node, &resource.name, *request, true))
            .collect();
        score(self.strategy, self.resources, &usages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(memory: i64) -> Resources {
        Resources {
            memory,
            pods: 10,
            ..Resources::default()
        }
    }

    fn reasons(request: i64, allocatable: i64, used: i64) -> Vec<(String, bool)> {
        let args = FitArgs::default();
        let all = shortages(
            &memory(request),
            &memory(allocatable),
            &memory(used),
            0,
            &args,
        );
        all.into_iter()
            .map(|one| (one.reason, one.is_unresolvable))
            .collect()
    }

    #[test]
    fn more_than_free_can_be_resolved_and_more_than_allocatable_cannot() {
        let reason = || "Insufficient memory".to_owned();
        assert_eq!(reasons(5, 10, 6), [(reason(), false)]);
        assert_eq!(reasons(11, 10, 0), [(reason(), true)]);
        assert_eq!(reasons(4, 10, 6), []);
    }

    #[test]
    fn an_overcommitted_node_takes_a_pod_that_requests_nothing() {
        assert_eq!(reasons(0, 10, 20), []);
        // What is free wraps as int64 does.
        assert_eq!(reasons(1, i64::MIN, 1), []);
    }
}
