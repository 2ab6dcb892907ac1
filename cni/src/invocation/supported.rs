//! The check for fields that the plugin does not support: they are refused, never ignored. Pure.

use serde_json::{Map, Value};

use super::role;
use crate::error::{CniError, code};

/// Keys of `runtimeConfig` that [`wanted`](super::wanted) reads.
const DONE: [&str; 5] = ["ips", "mac", "bandwidth", "cohort", "portMappings"];

/// Keys of `runtimeConfig` that describe the pod and ask for nothing.
const DESCRIPTIONS: [&str; 2] = ["cgroupPath", "io.kubernetes.cri.pod-annotations"];

/// Well-known capabilities that are not supported, each with the fix. A runtime sends only those that the configuration declares.
const CAPABILITIES: [(&str, &str); 5] = [
    ("ipRanges", "addresses come from the node's own prefix"),
    ("dns", "set `dns` in the configuration"),
    ("aliases", "names of pods are left to the cluster's DNS"),
    ("deviceID", "pods are wired by veth"),
    ("infinibandGUID", "pods are wired by veth"),
];

/// The fix for every other key.
const UNKNOWN: &str = "remove the capability from this plugin in the configuration";

/// Fails with the first unsupported field.
pub(super) fn check(conf: &Map<String, Value>, program: &str) -> Result<(), CniError> {
    if let Some(value) = conf.get("ipMasq").filter(|v| **v == Value::Bool(true)) {
        let why = "pods keep their addresses: there is no NAT";
        return Err(CniError::unsupported("ipMasq", value).details(why));
    }
    let is_other = |ipam: &Map<String, Value>| {
        let kind = ipam.get("type").and_then(Value::as_str);
        !ipam.is_empty() && !kind.is_some_and(|name| role::is_own(name, program))
    };
    if let Some(value) = conf
        .get("ipam")
        .filter(|v| v.as_object().is_some_and(is_other))
    {
        let why = "addresses come from the node's agent; remove `ipam`";
        return Err(CniError::unsupported("ipam", value).details(why));
    }
    check_runtime(conf.get("runtimeConfig"))
}

/// Whatever a runtime requests is refused unless it is done: the conventions let a plugin ignore only `args`.
fn check_runtime(config: Option<&Value>) -> Result<(), CniError> {
    let Some(config) = config.filter(|value| !value.is_null()) else {
        return Ok(());
    };
    let Value::Object(config) = config else {
        let msg = format!("`runtimeConfig` is not an object: {config}");
        return Err(CniError::new(code::DECODE, msg));
    };
    let is_read = |key: &str| DONE.contains(&key) || DESCRIPTIONS.contains(&key);
    for (key, value) in config {
        if !is_read(key) && !is_empty(value) {
            let known = CAPABILITIES.iter().find(|(name, _)| name == key);
            let fix = known.map_or(UNKNOWN, |(_, fix)| fix);
            return Err(CniError::unsupported(&format!("runtimeConfig.{key}"), value).details(fix));
        }
    }
    Ok(())
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
