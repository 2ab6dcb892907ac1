//! The check for fields that the plugin does not support: they are refused, never ignored. Pure.

use serde_json::{Map, Value};

use super::role;
use crate::error::CniError;

/// Capabilities that are not supported, each with the fix. A runtime sends only those that the configuration declares.
const CAPABILITIES: [(&str, &str); 5] = [
    (
        "portMappings",
        "there is no NAT; chain the portmap plugin and remove the capability from this one",
    ),
    ("ipRanges", "addresses come from the node's own prefix"),
    ("dns", "set `dns` in the configuration"),
    ("deviceID", "pods are wired by veth"),
    ("infinibandGUID", "pods are wired by veth"),
];

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
    for (key, why) in CAPABILITIES {
        let value = conf.get("runtimeConfig").and_then(|r| r.get(key));
        if let Some(value) = value.filter(|value| !is_empty(value)) {
            return Err(CniError::unsupported(&format!("runtimeConfig.{key}"), value).details(why));
        }
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
