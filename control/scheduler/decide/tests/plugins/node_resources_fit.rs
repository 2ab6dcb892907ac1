//! NodeResourcesFit: enough of each resource is free; the score is that of the configured strategy.
//!
//! Sources: the API reference of NodeResourcesFitArgs; "Resource Bin Packing" (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, incoming, one_of};
use crate::reference::{Column, Reference, check};
use crate::requests::{self, allocatable, count, is_extended, is_scalar, used};

/// The built-in resources that the filter looks at.
const BUILT_IN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const PERCENT: i128 = 100;
/// A shape's scores are from 0 to 10.
const SHAPE_SCORE_FACTOR: i128 = 10;

#[derive(Clone, Debug)]
pub(crate) struct NodeResourcesFit {
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    strategy: Scoring,
    /// Resources with their weights.
    resources: Vec<(String, i128)>,
}

#[derive(Clone, Debug)]
enum Scoring {
    Least,
    Most,
    /// Points of utilisation in percent, and of a score from 0 to 10.
    Shape(Vec<(i128, i128)>),
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        Self {
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: Scoring::Least,
            resources: vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)],
        }
    }
}

impl Reference for NodeResourcesFit {
    fn plugin(&self) -> Plugin {
        Plugin::NodeResourcesFit
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let requests = requests::real(pod);
        let wanted = requests
            .keys()
            .map(|resource| (resource, count(&requests, resource)));
        let wanted = wanted.filter(|(resource, amount)| self.looks_at(resource) && *amount > 0);
        let wanted: Vec<_> = wanted.collect();
        let is_above = |(resource, amount): &(&String, i128)| *amount > allocatable(node, resource);
        let is_short = |(resource, amount): &(&String, i128)| {
            let free = allocatable(node, resource) - used(cluster, node, resource, requests::real);
            *amount > free
        };
        let pods_len = i128::try_from(cluster.pods_on(node).count()).unwrap();
        if wanted.iter().any(is_above) {
            Some(Code::UnschedulableAndUnresolvable)
        } else if pods_len + 1 > allocatable(node, "pods") || wanted.iter().any(is_short) {
            Some(Code::Unschedulable)
        } else {
            None
        }
    }

    fn score(&self, cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let score = |node: &&Node| i64::try_from(self.score_of(cluster, pod, node)).unwrap();
        Some(Column::plain(feasible.iter().map(score).collect()))
    }
}

impl NodeResourcesFit {
    fn looks_at(&self, resource: &str) -> bool {
        let group = resource.split('/').next().unwrap_or_default();
        let is_ignored = self.ignored.iter().any(|one| one == resource)
            || self.ignored_groups.iter().any(|one| one == group);
        BUILT_IN.contains(&resource)
            || is_scalar(resource) && !(is_extended(resource) && is_ignored)
    }

    fn score_of(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> i128 {
        let requests = requests::to_score(pod);
        let (mut sum, mut weights) = (0, 0);
        for (resource, weight) in &self.resources {
            let capacity = allocatable(node, resource);
            let wanted = count(&requests, resource);
            if capacity == 0 || is_scalar(resource) && wanted == 0 {
                continue;
            }
            let requested = wanted + used(cluster, node, resource, requests::nonzero);
            let score = self.score_of_resource(requested, capacity);
            if score > 0 || !matches!(self.strategy, Scoring::Shape(_)) {
                sum += score * weight;
                weights += weight;
            }
        }
        match self.strategy {
            _ if weights == 0 => 0,
            // Rounded to the nearest.
            Scoring::Shape(_) => (2 * sum + weights) / (2 * weights),
            Scoring::Least | Scoring::Most => sum / weights,
        }
    }

    fn score_of_resource(&self, requested: i128, capacity: i128) -> i128 {
        let utilisation = requested.min(capacity) * PERCENT / capacity;
        match &self.strategy {
            Scoring::Least => (capacity - requested).max(0) * PERCENT / capacity,
            Scoring::Most => utilisation,
            Scoring::Shape(points) => on_shape(points, utilisation),
        }
    }
}

/// The score at a utilisation, on the line between the points around it.
fn on_shape(points: &[(i128, i128)], utilisation: i128) -> i128 {
    let (first, last) = (points[0], points[points.len() - 1]);
    if utilisation <= first.0 {
        return first.1 * SHAPE_SCORE_FACTOR;
    }
    let around = points.windows(2).find(|pair| utilisation <= pair[1].0);
    let Some(&[(from, low), (to, high)]) = around else {
        return last.1 * SHAPE_SCORE_FACTOR;
    };
    low * SHAPE_SCORE_FACTOR
        + (high - low) * SHAPE_SCORE_FACTOR * (utilisation - from) / (to - from)
}

fn configured() -> impl Strategy<Value = (NodeResourcesFit, Value)> {
    const RESOURCES: &[&str] = &[
        "cpu",
        "memory",
        "ephemeral-storage",
        "example.com/gpu",
        "hugepages-2Mi",
    ];
    let shape = prop::collection::btree_map(0..=100_u8, 0..=10_u8, 1..5);
    let strategy = prop_oneof![
        Just(Scoring::Least),
        Just(Scoring::Most),
        shape.prop_map(|points| {
            let wide = |(utilisation, score)| (i128::from(utilisation), i128::from(score));
            Scoring::Shape(points.into_iter().map(wide).collect())
        }),
    ];
    let resources = prop::sample::subsequence(RESOURCES, 1..=RESOURCES.len());
    let weights = prop::collection::vec(1..=100_u8, RESOURCES.len());
    let ignored = prop::option::weighted(0.2, one_of(&["example.com/gpu", "cpu"]));
    let groups = prop::option::weighted(0.2, one_of(&["example.com", "other.example"]));
    (strategy, resources, weights, ignored, groups).prop_map(
        |(strategy, resources, weights, ignored, groups)| {
            let names = resources.into_iter().map(str::to_owned);
            let fit = NodeResourcesFit {
                ignored: ignored.into_iter().map(str::to_owned).collect(),
                ignored_groups: groups.into_iter().map(str::to_owned).collect(),
                strategy,
                resources: names.zip(weights.into_iter().map(i128::from)).collect(),
            };
            let args = fit.args();
            (fit, args)
        },
    )
}

impl NodeResourcesFit {
    fn args(&self) -> Value {
        let resources = self.resources.iter();
        let resources = resources
            .map(|(name, weight)| json!({"name": name, "weight": i64::try_from(*weight).unwrap()}));
        let mut scoring = json!({"resources": resources.collect::<Vec<_>>()});
        scoring["type"] = match &self.strategy {
            Scoring::Least => "LeastAllocated".into(),
            Scoring::Most => "MostAllocated".into(),
            Scoring::Shape(points) => {
                let points = points.iter().map(|(utilisation, score)| {
                    let small = |one: &i128| i64::try_from(*one).unwrap();
                    json!({"utilization": small(utilisation), "score": small(score)})
                });
                scoring["requestedToCapacityRatio"] = json!({"shape": points.collect::<Vec<_>>()});
                "RequestedToCapacityRatio".into()
            }
        };
        json!({"scoringStrategy": scoring, "ignoredResources": self.ignored,
            "ignoredResourceGroups": self.ignored_groups})
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn resources_are_fitted_and_scored_as_documented(
        (fit, args) in configured(),
        cluster in cluster(requests::node(), requests::bound_pod()),
        pod in incoming(requests::pod()),
    ) {
        check(&fit, &args, &cluster, &pod)?;
        check(&NodeResourcesFit::default(), &Value::Null, &cluster, &pod)?;
    }
}
