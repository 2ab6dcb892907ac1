//! CNI errors as the runtime receives them: a code of the specification, a message, details.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::version::{SpecVersion, UnknownVersion};

/// Error codes: the specification's, one that its reference library added (8), and the plugin's own from 100.
pub mod code {
    /// The configuration's `cniVersion` is not supported.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field asks for something that the plugin does not do; the message names key and value.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown or gone: the runtime need not call DEL.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// An environment variable is missing or invalid; the message names it.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO: u32 = 5;
    /// Standard input is not JSON of the expected form.
    pub const DECODE: u32 = 6;
    /// The configuration is invalid.
    pub const INVALID_CONFIG: u32 = 7;
    /// `CNI_NETNS` is the plugin's own namespace (the reference library's code).
    pub const INVALID_NETNS: u32 = 8;
    /// A temporary failure: the runtime should try again.
    pub const TRY_AGAIN: u32 = 11;
    /// STATUS: ADD cannot succeed now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// STATUS: ADD cannot succeed and existing pods suffer too.
    pub const NOT_AVAILABLE_LIMITED: u32 = 51;
    /// The attachment, or its interface, exists already.
    pub const EXISTS: u32 = 100;
    /// CHECK found the pod's wiring changed.
    pub const DIFFERS: u32 = 101;
    /// An operation on the node failed.
    pub const NODE: u32 = 102;
}

/// An error for the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg} (code {code})")]
pub struct CniError {
    /// One of [`code`].
    pub code: u32,
    /// The operation that failed, and its object.
    pub msg: String,
    /// The cause, or the fix.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// Adds the cause, or the fix.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Code 4; the message names the variable.
    pub(crate) fn invalid_environment(msg: impl Into<String>) -> Self {
        Self::new(code::INVALID_ENVIRONMENT, msg)
    }

    /// Code 7; the message names the key.
    pub(crate) fn invalid_config(msg: impl Into<String>) -> Self {
        Self::new(code::INVALID_CONFIG, msg)
    }

    /// Code 2, with key and value.
    pub fn unsupported(key: &str, value: &Value) -> Self {
        let msg = format!("unsupported field `{key}` with value {value}");
        Self::new(code::UNSUPPORTED_FIELD, msg)
    }

    /// Code 1, with the supported versions.
    pub(crate) fn unknown_version(error: &UnknownVersion) -> Self {
        let known = SpecVersion::ALL.map(SpecVersion::text).join(", ");
        Self::new(code::INCOMPATIBLE_VERSION, error.to_string())
            .details(format!("supported versions: {known}"))
    }

    /// The error object of the specification, for standard output.
    pub fn json(&self, version: SpecVersion) -> Value {
        let mut json = serde_json::json!({
            "cniVersion": version.text(),
            "code": self.code,
            "msg": self.msg,
        });
        if !self.details.is_empty() {
            json["details"] = self.details.clone().into();
        }
        json
    }
}
