//! A pod as the scheduler's clients send it: only the fields that [`Request::of`](crate::request::Request::of) reads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use crate::proto::PlaceRequest;

#[derive(Serialize)]
struct Brief<'a> {
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: Option<&'a str>,
    namespace: Option<&'a str>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    containers: Vec<Part<'a>>,
    init_containers: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<&'a BTreeMap<String, Quantity>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<&'a ResourceRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_policy: Option<&'a str>,
}

impl<'a> Part<'a> {
    fn of(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            resources: container.resources.as_ref(),
            restart_policy: container.restart_policy.as_deref(),
        }
    }
}

/// The request for a pod's node.
pub fn place_request(pod: &Pod) -> Result<PlaceRequest, serde_json::Error> {
    let spec = pod.spec.as_ref().map(|spec| Spec {
        containers: spec.containers.iter().map(Part::of).collect(),
        init_containers: spec
            .init_containers
            .iter()
            .flatten()
            .map(Part::of)
            .collect(),
        node_selector: spec.node_selector.as_ref(),
        overhead: spec.overhead.as_ref(),
    });
    let brief = Brief {
        metadata: Metadata {
            name: pod.metadata.name.as_deref(),
            namespace: pod.metadata.namespace.as_deref(),
        },
        spec: spec.unwrap_or_default(),
    };
    let pod = serde_json::to_vec(&brief)?;
    Ok(PlaceRequest { pod })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Request;

    #[test]
    fn a_pod_in_brief_has_the_same_names_and_requests() {
        let large = json!({"requests": {"cpu": "3", "memory": "1Gi"}});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "app", "image": "web", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "plain"},
                ],
                "initContainers": [
                    {"name": "sidecar", "restartPolicy": "Always", "resources": large},
                    {"name": "first", "resources": large},
                ],
                "nodeSelector": {"disk": "ssd"},
                "overhead": {"cpu": "100m"},
            },
        }))
        .unwrap();
        let brief: Pod = serde_json::from_slice(&place_request(&pod).unwrap().pod).unwrap();
        assert_eq!(brief.metadata.name, pod.metadata.name);
        assert_eq!(brief.metadata.namespace, pod.metadata.namespace);
        assert_eq!(Request::of(&brief), Request::of(&pod));
        assert!(brief.metadata.labels.is_none());
    }
}
