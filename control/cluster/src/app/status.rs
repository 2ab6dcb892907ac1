//! What the controller last saw and decided of an app.

use std::{fmt, net::Ipv6Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is true of an app now; written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AppStatus {
    /// The app's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<Ipv6Addr>,
    /// Whether the app sleeps.
    pub state: State,
    /// Where the VIP leads.
    pub mode: Mode,
    /// Pods that answer.
    pub ready: u32,
    /// Pods that should run.
    pub wanted: u32,
    /// When the app was last woken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Time>,
    /// Why the app is not well, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the app is not well, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether an app sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// No pod runs.
    #[default]
    Asleep,
    /// Pods were asked for, none answers yet.
    Waking,
    /// A pod answers.
    Awake,
}

/// Where an app's VIP leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// To an activator.
    #[default]
    Proxy,
    /// Straight to the pods.
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
