//! The status of an app.

use std::{fmt, net::Ipv6Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    /// Reason of the current problem in CamelCase, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable message about the current problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
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
