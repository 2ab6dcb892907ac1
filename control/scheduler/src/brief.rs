//! A pod as the scheduler's clients send it: only the fields that decisions read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, Pod, PodResourceClaim, PodSchedulingGate, PodSpec,
    ResourceRequirements, Toleration, TopologySpreadConstraint, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;

use crate::proto::PlaceRequest;

#[derive(Serialize)]
struct Brief<'a> {
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    uid: Option<&'a str>,
    labels: Option<&'a BTreeMap<String, String>>,
    owner_references: Option<&'a [OwnerReference]>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    affinity: Option<&'a Affinity>,
    containers: Vec<Part<'a>>,
    init_containers: Vec<Part<'a>>,
    node_selector: Option<&'a BTreeMap<String, String>>,
    overhead: Option<&'a BTreeMap<String, Quantity>>,
    preemption_policy: Option<&'a str>,
    priority: Option<i32>,
    resource_claims: Option<&'a [PodResourceClaim]>,
    resources: Option<&'a ResourceRequirements>,
    scheduler_name: Option<&'a str>,
    scheduling_gates: Option<&'a [PodSchedulingGate]>,
    tolerations: Option<&'a [Toleration]>,
    topology_spread_constraints: Option<&'a [TopologySpreadConstraint]>,
    volumes: Option<&'a [Volume]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    name: &'a str,
    image: Option<&'a str>,
    ports: Option<&'a [ContainerPort]>,
    resources: Option<&'a ResourceRequirements>,
    restart_policy: Option<&'a str>,
}

impl<'a> Part<'a> {
    fn of(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            image: container.image.as_deref(),
            ports: container.ports.as_deref(),
            resources: container.resources.as_ref(),
            restart_policy: container.restart_policy.as_deref(),
        }
    }
}

impl<'a> Spec<'a> {
    fn of(spec: &'a PodSpec) -> Self {
        let init = spec.init_containers.iter().flatten();
        Self {
            affinity: spec.affinity.as_ref(),
            containers: spec.containers.iter().map(Part::of).collect(),
            init_containers: init.map(Part::of).collect(),
            node_selector: spec.node_selector.as_ref(),
            overhead: spec.overhead.as_ref(),
            preemption_policy: spec.preemption_policy.as_deref(),
            priority: spec.priority,
            resource_claims: spec.resource_claims.as_deref(),
            resources: spec.resources.as_ref(),
            scheduler_name: spec.scheduler_name.as_deref(),
            scheduling_gates: spec.scheduling_gates.as_deref(),
            tolerations: spec.tolerations.as_deref(),
            topology_spread_constraints: spec.topology_spread_constraints.as_deref(),
            volumes: spec.volumes.as_deref(),
        }
    }
}

/// The request for a pod's node.
pub fn place_request(pod: &Pod) -> Result<PlaceRequest, serde_json::Error> {
    let meta = &pod.metadata;
    let brief = Brief {
        metadata: Metadata {
            name: meta.name.as_deref(),
            namespace: meta.namespace.as_deref(),
            uid: meta.uid.as_deref(),
            labels: meta.labels.as_ref(),
            owner_references: meta.owner_references.as_deref(),
        },
        spec: pod.spec.as_ref().map(Spec::of).unwrap_or_default(),
    };
    let pod = serde_json::to_vec(&brief)?;
    Ok(PlaceRequest { pod })
}

#[cfg(test)]
mod tests {
    use dormouse_scheduler_decide::Pod as Parsed;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_in_brief_is_decided_on_as_the_whole_one() {
        let large = json!({"requests": {"cpu": "3", "memory": "1Gi"}});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}]},
            "spec": {
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
                "containers": [
                    {"name": "app", "image": "web", "resources": {"requests": {"cpu": "1"}}, "env": [{"name": "e", "value": "f"}],
                        "ports": [{"containerPort": 80, "hostPort": 80}]},
                    {"name": "plain"},
                ],
                "initContainers": [
                    {"name": "sidecar", "restartPolicy": "Always", "resources": large},
                    {"name": "first", "resources": large},
                ],
                "nodeSelector": {"disk": "ssd"},
                "overhead": {"cpu": "100m"},
                "preemptionPolicy": "Never",
                "priority": 7,
                "resourceClaims": [{"name": "gpu"}],
                "schedulingGates": [{"name": "gate"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            },
        }))
        .unwrap();
        let brief: Pod = serde_json::from_slice(&place_request(&pod).unwrap().pod).unwrap();
        let parsed = |pod: &Pod| format!("{:?}", Parsed::parse(pod).unwrap());
        assert_eq!(parsed(&brief), parsed(&pod));
        assert_eq!(brief.metadata.annotations, None);
    }
}
