//! All plugins together: the first that rejects a node, and the sum of the weighted scores.

use dormouse_scheduler_decide::Profile;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::balanced_allocation::BalancedAllocation;
use crate::cluster::{Cluster, cluster, incoming};
use crate::image_locality::{self, ImageLocality};
use crate::inter_pod_affinity::{self, InterPodAffinity};
use crate::node_affinity::{self, NodeAffinity};
use crate::node_name::{self, NodeName, NodeUnschedulable};
use crate::node_ports::{self, NodePorts};
use crate::node_resources_fit::NodeResourcesFit;
use crate::node_volume_limits::NodeVolumeLimits;
use crate::pod_topology_spread::{self, PodTopologySpread};
use crate::reference::{Reference, check_all, only};
use crate::requests;
use crate::storage::{self, Claims};
use crate::taint_toleration::{self, TaintToleration};
use crate::volume_binding::VolumeBinding;
use crate::volume_restrictions::VolumeRestrictions;
use crate::volume_zone::VolumeZone;
use crate::workloads;

const PLUGINS_LEN: usize = 14;

/// The plugins in the order in which they filter, with their default weights.
fn references() -> [(Box<dyn Reference>, i64); PLUGINS_LEN] {
    [
        (Box::new(NodeUnschedulable), 1),
        (Box::new(NodeName), 1),
        (Box::new(TaintToleration), 3),
        (Box::new(NodeAffinity::default()), 2),
        (Box::new(NodePorts), 1),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(VolumeRestrictions), 1),
        (Box::new(NodeVolumeLimits), 1),
        (Box::new(VolumeBinding), 1),
        (Box::new(VolumeZone), 1),
        (Box::new(PodTopologySpread::default()), 2),
        (Box::new(InterPodAffinity::default()), 2),
        (Box::new(BalancedAllocation::default()), 1),
        (Box::new(ImageLocality), 1),
    ]
}

/// A template of some templates, one over the other.
fn some_facets(all: Vec<BoxedStrategy<Value>>, base: Value) -> impl Strategy<Value = Value> {
    let facets = all.into_iter().map(|one| prop::option::weighted(0.3, one));
    facets
        .collect::<Vec<_>>()
        .prop_map(move |facets| facets.into_iter().flatten().fold(base.clone(), merged))
}

/// Objects are merged and arrays joined; of other values the latter stays.
fn merged(under: Value, over: Value) -> Value {
    match (under, over) {
        (Value::Object(mut under), Value::Object(over)) => {
            for (key, value) in over {
                let present = under.remove(&key).unwrap_or_default();
                under.insert(key, merged(present, value));
            }
            Value::Object(under)
        }
        (Value::Array(under), Value::Array(over)) => {
            Value::Array(under.into_iter().chain(over).collect())
        }
        (under, Value::Null) => under,
        (_, over) => over,
    }
}

fn node() -> impl Strategy<Value = Value> {
    let facets = vec![
        requests::node().boxed(),
        node_affinity::node().boxed(),
        node_name::node().boxed(),
        taint_toleration::node().boxed(),
        image_locality::node().boxed(),
        pod_topology_spread::node().boxed(),
        storage::node().boxed(),
    ];
    let ample = json!({"cpu": "16", "memory": "32Gi", "ephemeral-storage": "100Gi", "example.com/gpu": "9",
        "hugepages-2Mi": "64Mi", "pods": "20"});
    some_facets(facets, json!({"status": {"allocatable": ample}}))
}

fn pod() -> impl Strategy<Value = Value> {
    let facets = vec![
        requests::pod().boxed(),
        node_affinity::pod().boxed(),
        taint_toleration::pod().boxed(),
        image_locality::pod().boxed(),
        node_ports::pod().boxed(),
        pod_topology_spread::constrained_pod().boxed(),
        inter_pod_affinity::pod().boxed(),
        storage::pod(Claims::Usable).boxed(),
    ];
    some_facets(facets, json!({}))
}

fn clusters() -> impl Strategy<Value = Cluster> {
    (
        cluster(node(), pod()),
        workloads::random(),
        storage::random(Claims::Usable),
    )
        .prop_map(|(cluster, workloads, storage)| Cluster {
            workloads,
            storage,
            ..cluster
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn all_plugins_decide_together_as_each_does(
        cluster in clusters(),
        pod in incoming(pod()),
        weights in prop::collection::vec(1..=9_i64, PLUGINS_LEN),
    ) {
        let all = references();
        let default: Vec<_> = all.iter().map(|(one, weight)| (one.as_ref(), *weight)).collect();
        check_all(&default, Profile::default(), &cluster, &pod)?;
        let weighted: Vec<_> = all.iter().zip(weights).map(|((one, _), weight)| (one.as_ref(), weight)).collect();
        check_all(&weighted, only(&weighted, &Value::Null), &cluster, &pod)?;
    }
}
