//! The `App` custom resource: a workload that scales from and to zero behind one VIP.

mod autoscaling;
mod explained;
mod scale;
mod status;
mod stored;
mod template;
mod traffic;

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use k8s_openapi::api::core::v1::Container;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;
pub use autoscaling::Autoscaling;
pub use explained::{Explained, Source};
pub(crate) use scale::count;
pub use scale::{Metric, Scale};
pub use status::{
    AppStatus, CRASH_LOOP, Mode, PROGRESSING, PodFailures, ROLLED_OUT, RolloutStatus, State,
    TrafficMove, TrafficStatus,
};
pub use stored::StoredApp;
pub use template::Template;
pub use traffic::{
    GradualRollout, PARENT_LABEL, STEP_PERCENT_DEFAULT, Sticky, TRAFFIC_NOW, TRAFFIC_READY,
    TrafficTarget,
};

/// Default of `terminationGracePeriodSeconds`, seconds; Kubernetes' default.
pub const TERMINATION_GRACE_DEFAULT_S: u32 = 30;
/// Default of `wakeTimeout`.
pub const WAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default of `timeout`, seconds; Knative's default.
pub const TIMEOUT_DEFAULT_S: u32 = 300;
/// Default of `revisionHistoryLimit`; that of Kubernetes' Deployment.
pub const REVISION_HISTORY_LIMIT_DEFAULT: u32 = 10;
/// Default of `progressDeadlineSeconds`; that of Kubernetes' Deployment.
pub const PROGRESS_DEADLINE_DEFAULT_S: u32 = 600;

/// The desired state of an app.
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
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision","priority":1}"#,
    printcolumn = r#"{"name":"Traffic","type":"string","jsonPath":".status.traffic","priority":1}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AppSpec {
    /// The app's virtual IP address, inside one of the cluster's VIP ranges. If not set, the app gets
    /// the free address that no app has had for the longest time. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vip: Option<Ipv6Addr>,
    /// The port of the VIP.
    #[serde(default = "port_default")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// The port on which the container listens. Defaults to `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub target_port: Option<u16>,
    /// The application protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The container of each pod.
    pub container: Container,
    /// Labels that a node must have to run this app's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Seconds between the request to terminate a pod and SIGKILL.
    #[serde(default = "termination_grace_default")]
    pub termination_grace_period_seconds: u32,
    /// Longest time from the first byte of a request to the first byte of its response.
    #[serde(default = "timeout_default")]
    pub timeout: Period,
    /// Longest time for which a request is parked while the app has no ready pod; it is answered 503 then, and the start goes on.
    /// Default: 30s, or `timeout` if that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_timeout: Option<Period>,
    /// Autoscaling.
    #[serde(default, deserialize_with = "scale::scale_of_any_version")]
    pub scale: Scale,
    /// Number of earlier revisions that are kept, at most 100. The one that was ready last and the one before the app's own are kept
    /// in any case.
    #[serde(
        default = "revision_history_limit_default",
        skip_serializing_if = "is_revision_history_limit_default"
    )]
    pub revision_history_limit: u32,
    /// Seconds in which the rollout of a new template must make progress: a further pod of it is ready. After them the app's
    /// condition `Progressing` is False; pods of the earlier template go on serving.
    #[serde(
        default = "progress_deadline_default",
        skip_serializing_if = "is_progress_deadline_default"
    )]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: u32,
    /// Whether the rollout of a new template waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How the traffic of the VIP is divided between revisions. Default: all of it goes to the app's own template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficTarget>,
    /// The traffic changes in steps from the revision that was ready to a new one. Default: as soon as pods of it are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<GradualRollout>,
    /// Which requests are sent to the same revision. Default: each is sent to any, by the percentages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
}

/// Application protocol of an app.
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

fn revision_history_limit_default() -> u32 {
    REVISION_HISTORY_LIMIT_DEFAULT
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_revision_history_limit_default(limit: &u32) -> bool {
    *limit == REVISION_HISTORY_LIMIT_DEFAULT
}

fn progress_deadline_default() -> u32 {
    PROGRESS_DEADLINE_DEFAULT_S
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_progress_deadline_default(seconds: &u32) -> bool {
    *seconds == PROGRESS_DEADLINE_DEFAULT_S
}

fn timeout_default() -> Period {
    Period::seconds(TIMEOUT_DEFAULT_S)
}

fn wake_timeout(given: Option<&Period>, timeout: Duration) -> Duration {
    given.map_or(WAKE_TIMEOUT_DEFAULT.min(timeout), Period::get)
}

impl AppSpec {
    /// The port on which the container listens.
    pub fn target_port(&self) -> u16 {
        self.target_port.unwrap_or(self.port)
    }

    /// Longest time from the first byte of a request to the first byte of its response.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// Longest time for which a request is parked while the app has no ready pod.
    pub fn wake_timeout(&self) -> Duration {
        wake_timeout(self.wake_timeout.as_ref(), self.timeout())
    }
}

impl App {
    /// The app's VIP; set on every app in the store.
    pub fn vip(&self) -> Option<Ipv6Addr> {
        self.spec.vip
    }

    /// The number of the revision that the app's template is.
    pub fn revision_number(&self) -> u32 {
        let status = self.status.as_ref();
        status.and_then(|status| status.revision).unwrap_or(1)
    }

    /// The CustomResourceDefinition of apps.
    pub fn definition()
    -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition
    {
        use kube::CustomResourceExt;
        Self::crd()
    }
}
