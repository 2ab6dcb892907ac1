//! Objects as shards get them: without the fields that decisions do not read, which are many and change often.

use dormouse_scheduler_decide::Pod;
use dormouse_scheduler_shard::Object;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Node as ApiNode, NodeStatus, Pod as ApiPod, PodCondition, PodSpec,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The conditions that decisions read.
const CONDITIONS: [&str; 2] = ["DisruptionTarget", "PodResizePending"];

/// A pod, bound or nominated as `pod` is.
pub(super) fn pod(api: &ApiPod, pod: &Pod) -> Object<ApiPod> {
    let mut trimmed = ApiPod {
        metadata: metadata(&api.metadata),
        spec: api.spec.as_ref().map(spec),
        status: api.status.as_ref().map(status),
    };
    if pod.node_name().is_empty() {
        let nominated = Some(pod.nominated_node().to_owned()).filter(|node| !node.is_empty());
        let status = trimmed.status.get_or_insert_default();
        status.nominated_node_name = nominated;
    } else {
        let spec = trimmed.spec.get_or_insert_default();
        spec.node_name = Some(pod.node_name().to_owned());
    }
    Object::new(trimmed)
}

/// A node. Its conditions are renewed without pause; what they mean for pods is in its taints.
pub(super) fn node(api: &ApiNode) -> Object<ApiNode> {
    let status = api.status.as_ref().map(|status| NodeStatus {
        allocatable: status.allocatable.clone(),
        capacity: status.capacity.clone(),
        declared_features: status.declared_features.clone(),
        images: status.images.clone(),
        ..NodeStatus::default()
    });
    Object::new(ApiNode {
        metadata: metadata(&api.metadata),
        spec: api.spec.clone(),
        status,
    })
}

fn metadata(api: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: api.name.clone(),
        namespace: api.namespace.clone(),
        uid: api.uid.clone(),
        labels: api.labels.clone(),
        owner_references: api.owner_references.clone(),
        deletion_timestamp: api.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

fn spec(api: &PodSpec) -> PodSpec {
    let init = api.init_containers.as_ref();
    PodSpec {
        affinity: api.affinity.clone(),
        containers: api.containers.iter().map(container).collect(),
        init_containers: init.map(|init| init.iter().map(container).collect()),
        node_name: api.node_name.clone(),
        node_selector: api.node_selector.clone(),
        overhead: api.overhead.clone(),
        preemption_policy: api.preemption_policy.clone(),
        priority: api.priority,
        resource_claims: api.resource_claims.clone(),
        resources: api.resources.clone(),
        scheduler_name: api.scheduler_name.clone(),
        scheduling_gates: api.scheduling_gates.clone(),
        tolerations: api.tolerations.clone(),
        topology_spread_constraints: api.topology_spread_constraints.clone(),
        volumes: api.volumes.clone(),
        ..PodSpec::default()
    }
}

fn container(api: &Container) -> Container {
    Container {
        name: api.name.clone(),
        image: api.image.clone(),
        ports: api.ports.clone(),
        resources: api.resources.clone(),
        restart_policy: api.restart_policy.clone(),
        ..Container::default()
    }
}

fn status(api: &PodStatus) -> PodStatus {
    let conditions = api.conditions.iter().flatten();
    let conditions = conditions.filter(|one| CONDITIONS.contains(&one.type_.as_str()));
    let conditions: Vec<PodCondition> = conditions.cloned().collect();
    PodStatus {
        allocated_resources: api.allocated_resources.clone(),
        conditions: Some(conditions).filter(|all| !all.is_empty()),
        container_statuses: container_statuses(api.container_statuses.as_deref()),
        init_container_statuses: container_statuses(api.init_container_statuses.as_deref()),
        nominated_node_name: api.nominated_node_name.clone(),
        resources: api.resources.clone(),
        start_time: api.start_time.clone(),
        ..PodStatus::default()
    }
}

/// Only those that say which resources their containers have.
fn container_statuses(api: Option<&[ContainerStatus]>) -> Option<Vec<ContainerStatus>> {
    let all = api.unwrap_or_default().iter();
    let resized = all.filter(|one| one.resources.is_some());
    let trimmed = resized.map(|one| ContainerStatus {
        name: one.name.clone(),
        allocated_resources: one.allocated_resources.clone(),
        resources: one.resources.clone(),
        ..ContainerStatus::default()
    });
    let trimmed: Vec<_> = trimmed.collect();
    Some(trimmed).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use dormouse_scheduler_decide::Node;
    use serde_json::json;

    use super::*;

    #[test]
    fn decisions_read_the_same_from_a_trimmed_object() {
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let api: ApiPod = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}]},
            "spec": {
                "containers": [{"name": "app", "image": "web", "resources": resources, "env": [{"name": "e", "value": "f"}],
                    "ports": [{"containerPort": 80, "hostPort": 80}]}],
                "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "resources": resources}],
                "nodeSelector": {"disk": "ssd"}, "overhead": {"cpu": "100m"}, "preemptionPolicy": "Never", "priority": 7,
                "tolerations": [{"key": "k", "operator": "Exists"}], "nodeName": "n1",
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            },
            "status": {
                "startTime": "2026-01-02T03:04:05Z", "nominatedNodeName": "n1",
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
                    {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
                ],
                "containerStatuses": [{"name": "app", "image": "web", "imageID": "i", "ready": true, "restartCount": 0,
                    "resources": resources, "allocatedResources": {"cpu": "1"}}],
            },
        }))
        .unwrap();
        let parsed = Pod::parse(&api).unwrap();
        let trimmed = pod(&api, &parsed);
        assert_eq!(
            format!("{:?}", Pod::parse(&trimmed).unwrap()),
            format!("{parsed:?}")
        );
        assert_eq!(trimmed.metadata.annotations, None);
    }

    #[test]
    fn a_heartbeat_does_not_change_a_trimmed_node() {
        let beat = |time: &str| -> ApiNode {
            serde_json::from_value(json!({
                "metadata": {"name": "n1", "labels": {"zone": "a"}, "resourceVersion": time},
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "4"}, "images": [{"names": ["i:1"], "sizeBytes": 7}],
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]},
            }))
            .unwrap()
        };
        let (one, other) = (beat("2026-01-02T03:04:05Z"), beat("2026-01-02T03:04:15Z"));
        assert_eq!(node(&one), node(&other));
        assert_eq!(Node::parse(&node(&one)).unwrap().name(), "n1");
    }

    #[test]
    fn a_pod_is_where_the_scheduler_has_it() {
        let api = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": []}});
        let api: ApiPod = serde_json::from_value(api).unwrap();
        let parsed = Pod::parse(&api).unwrap();
        let read = |pod: Object<ApiPod>| Pod::parse(&pod).unwrap();
        let nominated = read(pod(&api, &parsed.clone().nominated("n1")));
        assert_eq!(nominated.nominated_node(), "n1");
        let bound = read(pod(&api, &parsed.bound("n2", None)));
        assert_eq!(bound.node_name(), "n2");
    }
}
