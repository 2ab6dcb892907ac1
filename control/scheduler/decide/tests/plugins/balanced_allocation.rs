//! NodeResourcesBalancedAllocation: by how much the pod makes the use of the node's resources more even.
//!
//! Sources: the API reference of NodeResourcesBalancedAllocationArgs; the release notes of Kubernetes 1.36.

use dormouse_scheduler_decide::Plugin;
use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, incoming};
use crate::reference::{Column, Reference, check};
use crate::requests::{self, allocatable, count, is_scalar, used};

#[derive(Clone, Debug)]
pub(crate) struct BalancedAllocation {
    resources: Vec<String>,
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        Self {
            resources: vec!["cpu".to_owned(), "memory".to_owned()],
        }
    }
}

impl Reference for BalancedAllocation {
    fn plugin(&self) -> Plugin {
        Plugin::NodeResourcesBalancedAllocation
    }

    fn score(&self, cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let requests = requests::real(pod);
        if self
            .resources
            .iter()
            .all(|resource| count(&requests, resource) == 0)
        {
            return None;
        }
        let score = |node: &&Node| {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for resource in &self.resources {
                let capacity = allocatable(node, resource);
                let wanted = count(&requests, resource);
                if capacity == 0 || is_scalar(resource) && wanted == 0 {
                    continue;
                }
                let used = used(cluster, node, resource, requests::real);
                with.push(fraction(used + wanted, capacity));
                without.push(fraction(used, capacity));
            }
            50 + (50 + evenness(&with) - evenness(&without)) / 2
        };
        Some(Column::plain(feasible.iter().map(score).collect()))
    }
}

fn fraction(part: i128, whole: i128) -> f64 {
    #[expect(clippy::as_conversions, reason = "the amounts here are below 2^53")]
    let fraction = part as f64 / whole as f64;
    fraction.min(1.0)
}

/// From 0 to 100: 100 less the standard deviation in percent.
#[expect(
    clippy::cast_possible_truncation,
    reason = "from 0 to 100, truncated as documented"
)]
fn evenness(fractions: &[f64]) -> i64 {
    let len = fractions.len() as f64;
    let deviation = match fractions {
        [] | [_] => 0.0,
        [one, other] => (one - other).abs() / 2.0,
        all => {
            let mean = all.iter().sum::<f64>() / len;
            let squares = all.iter().map(|one| (one - mean) * (one - mean));
            (squares.sum::<f64>() / len).sqrt()
        }
    };
    ((1.0 - deviation) * 100.0) as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn balance_is_scored_as_documented(
        resources in prop::sample::subsequence(
            vec!["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"], 1..=5),
        cluster in cluster(requests::node(), requests::bound_pod()),
        pod in incoming(requests::pod()),
    ) {
        let named = resources.iter().map(|name| json!({"name": name, "weight": 1}));
        let args = json!({"resources": named.collect::<Vec<_>>()});
        let resources = resources.into_iter().map(str::to_owned).collect();
        check(&BalancedAllocation { resources }, &args, &cluster, &pod)?;
        check(&BalancedAllocation::default(), &Value::Null, &cluster, &pod)?;
    }
}
