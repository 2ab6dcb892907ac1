//! What counts of a Service for its slices.

use std::collections::BTreeMap;

use dormouse_cluster::service::{HEADLESS, IpFamily};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pod::Member;

/// The label with the name of a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the writer of a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The writer of these slices.
pub const MANAGER: &str = "endpoints.dormouse.dev";
/// The label of headless Services' slices, which data paths leave out.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// A Service that selects pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Selecting {
    /// The Service's name.
    pub name: String,
    /// The labels of its pods; at least one.
    pub selector: BTreeMap<String, String>,
    /// The families of its addresses.
    pub families: Vec<IpFamily>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Pods that are not ready count as ready.
    pub publish_not_ready: bool,
    /// Where connections prefer to go.
    pub near: Option<Near>,
    /// The labels of its slices.
    pub labels: BTreeMap<String, String>,
    /// The reference of its slices to it.
    pub owner: OwnerReference,
}

/// The endpoints that clients prefer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Near {
    /// Those in their zone.
    Zone,
    /// Those on their node.
    Node,
}

impl Selecting {
    /// The Service, if it selects pods: the slices of others are their users'.
    pub fn of(service: &Service) -> Option<Self> {
        let (meta, spec) = (&service.metadata, service.spec.as_ref()?);
        let selector = spec
            .selector
            .clone()
            .filter(|selector| !selector.is_empty())?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return None;
        }
        let name = meta.name.clone()?;
        let is_headless = spec.cluster_ip.as_deref() == Some(HEADLESS);
        let own = [(SERVICE_NAME, name.as_str()), (MANAGED_BY, MANAGER)];
        let headless = is_headless.then_some((HEADLESS_LABEL, ""));
        let own = own.into_iter().chain(headless);
        let mut labels = meta.labels.clone().unwrap_or_default();
        labels.remove(HEADLESS_LABEL);
        labels.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let families = spec.ip_families.iter().flatten();
        Some(Self {
            selector,
            families: families.filter_map(|name| IpFamily::parse(name)).collect(),
            ports: spec.ports.clone().unwrap_or_default(),
            publish_not_ready: spec.publish_not_ready_addresses.unwrap_or(false),
            near: match spec.traffic_distribution.as_deref() {
                Some("PreferClose" | "PreferSameZone") => Some(Near::Zone),
                Some("PreferSameNode") => Some(Near::Node),
                _ => None,
            },
            labels,
            owner: OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name: name.clone(),
                uid: meta.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            name,
        })
    }

    /// Whether it selects pods with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
    }

    /// The number of a port at a pod; none if the pod has no port of that name.
    pub fn target(port: &ServicePort, pod: &Member) -> Option<i32> {
        match &port.target_port {
            Some(IntOrString::Int(number)) if *number != 0 => Some(*number),
            Some(IntOrString::String(name)) => {
                pod.port(name, port.protocol.as_deref().unwrap_or("TCP"))
            }
            _ => Some(port.port),
        }
    }
}
