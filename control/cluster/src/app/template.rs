//! The template of an app: the fields that its pods run. A change of one of them is a new revision.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AppSpec, TERMINATION_GRACE_DEFAULT_S, termination_grace_default};

/// The fields of an app that its pods run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The container of each pod.
    pub container: Container,
    /// The port on which the container listens.
    pub target_port: u16,
    /// Labels that a node must have to run the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Seconds between the request to terminate a pod and SIGKILL.
    #[serde(default = "termination_grace_default")]
    pub termination_grace_period_seconds: u32,
}

impl Template {
    /// A hash of the template and of the uid of its app, 16 hexadecimal digits. It is stored with pods: neither the order of
    /// fields nor a field that is written with its default changes it.
    pub fn hash(&self, uid: &str) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if self.container.name.is_empty() {
            value["container"]["name"] = "app".into();
        }
        if self.termination_grace_period_seconds == TERMINATION_GRACE_DEFAULT_S
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("terminationGracePeriodSeconds");
        }
        let mut hash = Fnv::default();
        hash.write(uid.as_bytes());
        hash.value(&value);
        format!("{:016x}", hash.0)
    }
}

impl AppSpec {
    /// What the app's pods run.
    pub fn template(&self) -> Template {
        Template {
            container: self.container.clone(),
            target_port: self.target_port(),
            node_selector: self.node_selector.clone(),
            termination_grace_period_seconds: self.termination_grace_period_seconds,
        }
    }

    /// The same app with another template. A target port that is not set stays so if it is the port: it follows later changes of it.
    #[must_use]
    pub fn with_template(self, template: Template) -> Self {
        let is_port = self.target_port.is_none() && template.target_port == self.port;
        Self {
            container: template.container,
            target_port: Some(template.target_port).filter(|_| !is_port),
            node_selector: template.node_selector,
            termination_grace_period_seconds: template.termination_grace_period_seconds,
            ..self
        }
    }
}

/// FNV-1a with 64 bits: the same in every build, as it is stored.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // Ends each part, so that no two sequences of parts are the same bytes; no UTF-8 text contains it.
        self.0 = (self.0 ^ 0xff).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Adds a value, fields in the order of their names and without those that are empty.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let fields: BTreeMap<_, _> = fields
                    .iter()
                    .filter(|(_, value)| !is_empty(value))
                    .collect();
                self.write(b"{");
                for (name, value) in fields {
                    self.write(name.as_bytes());
                    self.value(value);
                }
                self.write(b"}");
            }
            Value::Array(items) => {
                self.write(b"[");
                for item in items {
                    self.value(item);
                }
                self.write(b"]");
            }
            Value::String(text) => {
                self.write(b"\"");
                self.write(text.as_bytes());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.write(value.to_string().as_bytes());
            }
        }
    }
}

/// Whether a field with this value is as one that is not set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(_) | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(spec: &str) -> String {
        let spec: AppSpec = serde_json::from_str(spec).unwrap();
        spec.template().hash("uid")
    }

    const SHORT: &str =
        r#"{"port": 80, "container": {"name": "app", "image": "a", "command": ["serve"]}}"#;

    #[test]
    fn the_hash_of_a_template_is_the_same_in_every_version() {
        // A pod's hash is stored: another value for the same template would replace every pod at an upgrade.
        assert_eq!(hash(SHORT), "a072a2c32ca6624f");
    }

    #[test]
    fn the_order_of_fields_and_defaults_do_not_change_the_hash() {
        let long = r#"{
            "terminationGracePeriodSeconds": 30, "nodeSelector": {}, "targetPort": 80, "port": 80,
            "container": {"command": ["serve"], "args": [], "env": [], "image": "a", "name": ""}
        }"#;
        assert_eq!(hash(SHORT), hash(long));
        let settings = r#"{
            "port": 80, "timeout": "7s", "scale": {"max": 9},
            "container": {"name": "app", "image": "a", "command": ["serve"]}
        }"#;
        assert_eq!(hash(SHORT), hash(settings), "no field of the template");
    }

    #[test]
    fn an_earlier_template_sets_the_target_port_only_if_it_is_another_than_the_port() {
        let spec: AppSpec = serde_json::from_str(SHORT).unwrap();
        let with_port = |target_port| {
            let template = Template {
                target_port,
                ..spec.template()
            };
            spec.clone().with_template(template).target_port
        };
        assert_eq!((with_port(80), with_port(81)), (None, Some(81)));
    }

    #[test]
    fn each_field_of_the_template_and_the_uid_change_the_hash() {
        let others = [
            r#"{"port": 81, "container": {"name": "app", "image": "a", "command": ["serve"]}}"#,
            r#"{"port": 80, "container": {"name": "app", "image": "b", "command": ["serve"]}}"#,
            r#"{"port": 80, "container": {"name": "app", "image": "a", "command": ["serve", ""]}}"#,
            r#"{"port": 80, "container": {"name": "app", "image": "a", "command": ["ser", "ve"]}}"#,
            r#"{"port": 80, "nodeSelector": {"a": "b"}, "container": {"name": "app", "image": "a", "command": ["serve"]}}"#,
            r#"{"port": 80, "terminationGracePeriodSeconds": 31, "container": {"name": "app", "image": "a", "command": ["serve"]}}"#,
        ];
        for other in others {
            assert_ne!(hash(SHORT), hash(other), "{other}");
        }
        let spec: AppSpec = serde_json::from_str(SHORT).unwrap();
        assert_ne!(spec.template().hash("a"), spec.template().hash("b"));
    }

    #[test]
    fn an_app_with_its_own_template_has_the_same_hash() {
        let spec: AppSpec = serde_json::from_str(SHORT).unwrap();
        let same = spec.clone().with_template(spec.template());
        assert_eq!(same.template().hash("uid"), spec.template().hash("uid"));
    }
}
