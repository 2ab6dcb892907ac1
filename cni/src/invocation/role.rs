//! The plugin's role in a configuration: to wire pods, or to reserve addresses for another plugin (IPAM). Pure.

use serde_json::{Map, Value};

/// Names under which the plugin may be installed, beside the file name under which it was executed.
const OWN_NAMES: [&str; 2] = ["dormouse", "dormouse-cni"];

/// The plugin's role in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The plugin wires the pod.
    Main,
    /// Another plugin wires the pod and names this one as its `ipam.type`; this one only reserves an address.
    Ipam,
}

impl Role {
    pub(super) fn of(kind: &str, conf: &Map<String, Value>, program: &str) -> Self {
        let delegate = conf
            .get("ipam")
            .and_then(|ipam| ipam.get("type"))
            .and_then(Value::as_str);
        match delegate {
            Some(name) if is_own(name, program) && !is_own(kind, program) => Self::Ipam,
            _ => Self::Main,
        }
    }

    /// The object with the plugin's own keys: the configuration, or its `ipam`.
    pub(super) fn options(self, conf: &Map<String, Value>) -> &Map<String, Value> {
        match self {
            Self::Main => conf,
            Self::Ipam => conf.get("ipam").and_then(Value::as_object).unwrap_or(conf),
        }
    }
}

pub(super) fn is_own(name: &str, program: &str) -> bool {
    name == program || OWN_NAMES.contains(&name)
}
