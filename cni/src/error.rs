//! Errors in the form that a container runtime reads: a code of the specification, one sentence, details.

use serde::{Deserialize, Serialize};

use crate::version::SpecVersion;

/// The codes that the specification reserves, and one that its reference library added.
pub mod code {
    /// The configuration's version is not spoken.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field asks for something that is not done here; the message names key and value.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown or gone: the runtime need not call DEL.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable is missing or wrong; the message names it.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO: u32 = 5;
    /// Standard input is no JSON of the expected form.
    pub const DECODE: u32 = 6;
    /// The configuration says something impossible.
    pub const INVALID_CONFIG: u32 = 7;
    /// `CNI_NETNS` is the plugin's own namespace (the reference library's code).
    pub const INVALID_NETNS: u32 = 8;
    /// A passing trouble: the runtime should try again.
    pub const TRY_AGAIN: u32 = 11;
    /// STATUS: ADD cannot succeed now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// STATUS: ADD cannot succeed and existing pods suffer too.
    pub const NOT_AVAILABLE_LIMITED: u32 = 51;
    /// The attachment, or its interface, exists already.
    pub const EXISTS: u32 = 100;
    /// CHECK found the pod's wiring changed.
    pub const DIFFERS: u32 = 101;
    /// The node could not do it.
    pub const NODE: u32 = 102;
}

/// An error for the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg} (code {code})")]
pub struct CniError {
    /// One of [`code`].
    pub code: u32,
    /// What failed, on what.
    pub msg: String,
    /// Why, or what to do.
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

    /// Adds why, or what to do.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The JSON that the specification wants on standard output.
    pub fn json(&self, version: SpecVersion) -> serde_json::Value {
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
