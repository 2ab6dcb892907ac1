//! The status of an app.

use std::{fmt, net::Ipv6Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The observed state of an app; written by the apps controller only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AppStatus {
    /// The app's virtual IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<Ipv6Addr>,
    /// Whether the app has ready pods.
    pub state: State,
    /// Whether the VIP forwards to an activator or to the pods.
    pub mode: Mode,
    /// Number of ready pods.
    pub ready: u32,
    /// Desired number of pods.
    pub wanted: u32,
    /// Time of the last scale from zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Time>,
    /// Number of the revision that the app's template is; not set: 1, as it never had a second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// Number of the revision that the app had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_revision: Option<u32>,
    /// Number of the newest revision of which a pod was ready; of an app that has a new template since it failed: of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_revision: Option<u32>,
    /// Numbers of the revisions that the app had before and that were ready and did not fail, the last one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_ready_revisions: Vec<u32>,
    /// Numbers of the revisions that the app had before and that failed after a pod of them was ready, the last one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_revisions: Vec<u32>,
    /// The pods of the app's template that failed one after another; not set: none did, or one has been ready for a minute since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_failures: Option<PodFailures>,
    /// Hash of the app's template, as its pods have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_hash: Option<String>,
    /// The `metadata.generation` of the manifest that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The traffic split in force: new connections and requests of the app's VIP are spread over these targets. Empty: all go to
    /// the app's own pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficStatus>,
    /// Number of the revision of the app's template for which the split in force was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_revision: Option<u32>,
    /// The gradual rollout in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Traffic under load that moves between revisions, or did so a short time ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_move: Option<TrafficMove>,
    /// Least number of pods for now, besides `spec.scale.min`: the share of an app's traffic that these pods get, or got a short time
    /// ago, needs them.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_min: u32,
    /// Conditions. `Progressing`: whether the app's template is rolled out (`NewRevisionAvailable`), is being rolled out
    /// (`RollingOut`), or is not (False: no ready pod within its deadline, `ProgressDeadlineExceeded`; pods that fail after it was,
    /// `CrashLoopBackOff`; its traffic was taken back, `RolloutFailed`).
    /// `Ready`: whether a pod is ready, and why pods are missing; a sleeping app does not have it.
    /// `TrafficReady`: whether the split of the manifest is in force; an app whose traffic is not divided does not have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Reason of the current problem in CamelCase, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable message about the current problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Pods that failed one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailures {
    /// Their number.
    pub count: u32,
    /// Why the last one failed, in CamelCase.
    pub reason: String,
    /// Details of that.
    pub message: String,
}

/// One target of a traffic split that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// Number of the revision.
    pub revision: u32,
    /// Percentage of the VIP's new connections and requests. Those of all targets add up to 100.
    pub percent: u32,
    /// Name of an address of its own, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The address at which all connections go to this target; of the latest revision: the app's own VIP.
    pub vip: Ipv6Addr,
    /// Whether this is the app's own template, whatever its number becomes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub latest: bool,
}

/// A gradual rollout in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Number of the revision that gets the traffic.
    pub revision: u32,
    /// Number of the revision that gives it.
    pub from: u32,
    /// The part of the latest revision's share that `revision` has, percent.
    pub percent: u32,
    /// Since when it has this part; not set while the rollout is paused, or waits for a ready pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// Why the traffic was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl RolloutStatus {
    /// Whether the revision is no newer one: its child serves until the app's own pods run its template again.
    pub fn is_return(&self) -> bool {
        self.revision <= self.from
    }
}

/// Traffic under load that moves between the revisions of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficMove {
    /// Number of pods that all of the traffic needs.
    pub pods: u32,
    /// Since when the last shares are in force; not set: the first ones wait for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// Since when the next shares wait for pods; not set: none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<MicroTime>,
}

/// The type of the condition about the rollout of an app's template, as in Kubernetes' Deployment.
pub const PROGRESSING: &str = "Progressing";

/// The type of the condition that the newest template is rolled out, and has its traffic.
pub const ROLLED_OUT: &str = "RolledOut";

/// The reason of an app whose pods fail one after another; kubelet's.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(pods: &u32) -> bool {
    *pods == 0
}

impl AppStatus {
    /// Whether traffic is divided, or moves.
    pub fn divides_traffic(&self) -> bool {
        !self.traffic.is_empty() || self.rollout.is_some() || self.traffic_move.is_some()
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }
}

/// Whether an app has ready pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// Scaled to zero.
    #[default]
    Asleep,
    /// Scaled from zero, no pod is ready yet.
    Waking,
    /// At least one pod is ready.
    Awake,
}

/// Where an app's VIP forwards to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// To an activator.
    #[default]
    Proxy,
    /// Directly to the pods.
    Serve,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asleep => "asleep",
            Self::Waking => "waking",
            Self::Awake => "awake",
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proxy => "proxy",
            Self::Serve => "serve",
        })
    }
}
