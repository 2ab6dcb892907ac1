//! `App`: a workload that scales from and to zero behind one VIP.

mod scale;
mod status;

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use k8s_openapi::api::core::v1::Container;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;
pub use scale::{Metric, Scale};
pub use status::{AppStatus, Mode, State};

/// Seconds a pod may take to end after it was asked to, when its app does not say.
pub const TERMINATION_GRACE_DEFAULT_S: u32 = 30;
/// Seconds a request may take when its app does not say; Knative's default.
pub const TIMEOUT_DEFAULT_S: u32 = 300;

/// What its owner wants of an app.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "dormouse.dev",
    version = "v1alpha1",
    kind = "App",
    plural = "apps",
    namespaced,
    status = "AppStatus",
    derive = "PartialEq",
    doc = "A workload that scales from and to zero behind one VIP.",
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".status.mode"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".status.wanted"}"#,
    printcolumn = r#"{"name":"Last wake","type":"date","jsonPath":".status.lastWake"}"#,
    printcolumn = r#"{"name":"VIP","type":"string","jsonPath":".spec.vip"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Port","type":"integer","jsonPath":".spec.port","priority":1}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AppSpec {
    /// The app's own address, inside one of the cluster's VIP ranges. Left out, the lowest free one
    /// is allocated and written here. It never changes during the app's life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vip: Option<Ipv6Addr>,
    /// The VIP's port.
    #[serde(default = "port_default")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// The port the container listens on; `port` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub target_port: Option<u16>,
    /// What the app speaks.
    #[serde(default)]
    pub protocol: Protocol,
    /// What runs in each pod.
    pub container: Container,
    /// Labels a node must have to run this app's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Seconds a pod may take to end after it was asked to.
    #[serde(default = "termination_grace_default")]
    pub termination_grace_period_seconds: u32,
    /// The longest a request may take, from its first byte to its answer's.
    #[serde(default = "timeout_default")]
    pub timeout: Period,
    /// When to run how many pods.
    #[serde(default)]
    pub scale: Scale,
}

/// What an app speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, or HTTP/2 in clear text with prior knowledge.
    #[default]
    Http,
}

fn port_default() -> u16 {
    80
}

fn termination_grace_default() -> u32 {
    TERMINATION_GRACE_DEFAULT_S
}

fn timeout_default() -> Period {
    Period::seconds(TIMEOUT_DEFAULT_S)
}

impl AppSpec {
    /// The port the container listens on.
    pub fn target_port(&self) -> u16 {
        self.target_port.unwrap_or(self.port)
    }

    /// The longest a request may take.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// How long a pod may take to end after it was asked to.
    pub fn termination_grace(&self) -> Duration {
        Duration::from_secs(self.termination_grace_period_seconds.into())
    }
}

impl App {
    /// The app's address; every app in the store has one.
    pub fn vip(&self) -> Option<Ipv6Addr> {
        self.spec.vip
    }

    /// The definition that a Kubernetes cluster needs before it knows apps.
    pub fn definition()
    -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition
    {
        use kube::CustomResourceExt;
        Self::crd()
    }
}
