//! What plugins read of a node, parsed once.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as ApiNode, NodeSpec, NodeStatus};

use crate::Malformed;
use crate::amount::{Amounts, amounts};
use crate::interner::Interner;
use crate::labels::LabelMap;
use crate::resources::Resources;
use crate::selector::Labels;
use crate::taints::Taint;

/// Labels of a node's zone and region, the ones that are read first.
const ZONE: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
];
const REGION: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];

/// An image on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Image {
    pub(crate) names: Vec<String>,
    /// Bytes.
    pub(crate) size: i64,
}

/// A node: what is its own, and what nodes of the same kind share.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) labels: Labels,
    pub(crate) annotations: Labels,
    pub(crate) kind: Arc<NodeKind>,
}

/// What nodes of the same kind share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeKind {
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) allocatable: Resources,
    /// The same, exact: as the object has it.
    pub(crate) allocatable_amounts: Amounts,
    pub(crate) images: Vec<Image>,
    /// Status by type.
    pub(crate) conditions: BTreeMap<String, String>,
    pub(crate) declared_features: Vec<String>,
}

/// What nodes share.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeInterners {
    labels: Interner<LabelMap>,
    kinds: Interner<NodeKind>,
}

impl Node {
    /// Parses an object.
    pub fn parse(node: &ApiNode) -> Result<Self, Malformed> {
        let nothing = (NodeSpec::default(), NodeStatus::default());
        let spec = node.spec.as_ref().unwrap_or(&nothing.0);
        let status = node.status.as_ref().unwrap_or(&nothing.1);
        let name = node.metadata.name.clone().filter(|name| !name.is_empty());
        let allocatable = amounts("status.allocatable", status.allocatable.as_ref())?;
        let conditions = status.conditions.iter().flatten();
        let kind = NodeKind {
            taints: spec.taints.iter().flatten().map(Taint::parse).collect(),
            is_unschedulable: spec.unschedulable == Some(true),
            allocatable: Resources::total(&allocatable),
            allocatable_amounts: allocatable,
            images: images(status),
            conditions: conditions
                .map(|one| (one.type_.clone(), one.status.clone()))
                .collect(),
            declared_features: status.declared_features.clone().unwrap_or_default(),
        };
        let meta = &node.metadata;
        Ok(Self {
            name: name
                .ok_or_else(|| Malformed::new("metadata.name", "a node has a name"))?
                .into(),
            labels: meta.labels.clone().unwrap_or_default().into(),
            annotations: meta.annotations.clone().unwrap_or_default().into(),
            kind: Arc::new(kind),
        })
    }

    /// Shares the memory of what equals that of other nodes.
    pub(crate) fn intern(&mut self, interners: &mut NodeInterners) {
        self.labels.intern(&mut interners.labels);
        self.annotations.intern(&mut interners.labels);
        self.kind = interners.kinds.intern(&self.kind);
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The region and the zone, which spread the order of nodes.
    pub(crate) fn zone(&self) -> (&str, &str) {
        let label = |keys: [&str; 2]| {
            let value = keys.iter().find_map(|key| self.labels.get(key));
            value.map_or("", String::as_str)
        };
        (label(REGION), label(ZONE))
    }
}

impl Deref for Node {
    type Target = NodeKind;

    fn deref(&self) -> &NodeKind {
        &self.kind
    }
}

fn images(status: &NodeStatus) -> Vec<Image> {
    let images = status.images.iter().flatten();
    let parsed = images.map(|image| Image {
        names: image.names.clone().unwrap_or_default(),
        size: image.size_bytes.unwrap_or(0),
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_labels_of_zones_come_first() {
        let node = r#"{"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "new",
            "failure-domain.beta.kubernetes.io/zone": "old", "topology.kubernetes.io/region": "r"}}}"#;
        let node = Node::parse(&serde_json::from_str(node).unwrap()).unwrap();
        assert_eq!(node.zone(), ("r", "old"));
    }

    #[test]
    fn a_malformed_amount_names_its_field() {
        let node = r#"{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "?"}}}"#;
        let error = Node::parse(&serde_json::from_str(node).unwrap()).unwrap_err();
        assert_eq!(error.field, "status.allocatable[cpu]");
    }
}
