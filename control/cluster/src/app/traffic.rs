//! The traffic of an app between its revisions: what its manifest asks for, and the child apps that are its earlier revisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{App, AppSpec, AppStatus};
use crate::{Key, Object, Period};

/// The label of a child app with the name of its parent.
pub const PARENT_LABEL: &str = "dormouse.dev/parent";
/// The type of the condition that reports whether the split of the manifest is in force.
pub const TRAFFIC_READY: &str = "TrafficReady";
/// Default of `spec.rollout.stepPercent`.
pub const STEP_PERCENT_DEFAULT: u32 = 10;

/// A target of an app's traffic, as Knative's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficTarget {
    /// The name of a revision of this app: the app's name, a dash and the revision's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    /// True: the app's own template, whichever revision that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<bool>,
    /// Percentage of the new connections and requests of the app's VIP. Those of all targets add up to 100.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub percent: u32,
    /// Gives the target an address of its own, which `status.traffic` shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// A gradual change of the traffic from the revision that was ready to the latest one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GradualRollout {
    /// Percentage by which each step raises the latest revision's part of its share.
    #[serde(default = "step_percent_default")]
    #[schemars(range(min = 1, max = 100))]
    pub step_percent: u32,
    /// Time of all steps, from the first to the end of the last.
    pub duration: Period,
}

/// What requests have in common that are sent to the same revision, while the split is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sticky {
    /// The value of the header with this name.
    Header(String),
    /// The value of the cookie with this name.
    Cookie(String),
    /// The address of the client.
    #[serde(rename = "clientIP")]
    ClientIp {},
}

fn step_percent_default() -> u32 {
    STEP_PERCENT_DEFAULT
}

/// The annotation with the generation of the app whose traffic moves without a wait for pods. A later change of the manifest waits again.
pub const TRAFFIC_NOW: &str = "dormouse.dev/traffic-now";

impl TrafficTarget {
    /// Whether this is the app's own template.
    pub fn is_latest(&self) -> bool {
        self.latest_revision == Some(true)
    }
}

impl GradualRollout {
    /// Time between two steps.
    pub fn interval(&self) -> std::time::Duration {
        let steps = 100_u32.div_ceil(self.step_percent.clamp(1, 100));
        self.duration.get() / steps
    }
}

impl AppSpec {
    /// Whether traffic may be divided.
    pub fn divides_traffic(&self) -> bool {
        !self.traffic.is_empty() || self.rollout.is_some()
    }
}

impl App {
    /// Whether the split of this manifest comes into force without a wait for pods: the owner prefers parked requests.
    pub fn moves_traffic_now(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let marked = annotations.and_then(|all| all.get(TRAFFIC_NOW)?.parse().ok());
        marked.is_some() && marked == self.metadata.generation
    }

    /// Whether traffic is divided, or may be.
    pub fn divides_traffic(&self) -> bool {
        let in_force = self.status.as_ref().is_some_and(AppStatus::divides_traffic);
        self.spec.divides_traffic() || in_force
    }

    /// Whether pods of the app's template must wait: the split in force was made for an earlier template, whose share they would get.
    pub fn awaits_split(&self) -> bool {
        let accounted = self
            .status
            .as_ref()
            .and_then(|status| status.split_revision);
        self.spec.divides_traffic() && accounted != Some(self.revision_number())
    }

    /// Whether pods of a new template wait.
    pub fn holds_rollout(&self) -> bool {
        self.spec.paused || self.awaits_split()
    }

    /// The app that controls this child app; none: it is no child.
    pub fn parent(&self) -> Option<(Key, &OwnerReference)> {
        let name = self.metadata.labels.as_ref()?.get(PARENT_LABEL)?;
        let owners = self.metadata.owner_references.as_deref()?;
        let is_parent = |owner: &&OwnerReference| owner.kind == "App" && owner.name == *name;
        let owner = owners.iter().find(is_parent)?;
        Some((Key::new(&self.key().namespace, name), owner))
    }
}
