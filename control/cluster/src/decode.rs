//! Strict decoding of objects from JSON: an unknown field is an error with its path, not dropped.

mod dropped;
mod schema;
mod suggest;
mod words;

use std::fmt;

use schemars::JsonSchema;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::Object;
use schema::Schema;
pub use suggest::closest;

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.container.ports[0].name`.
    pub field: String,
    /// The type of the error.
    pub cause: CauseType,
    /// The error, and how to fix it.
    pub message: String,
}

/// Types of field errors; Kubernetes' `metav1.CauseType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseType {
    /// The field does not exist.
    Unknown,
    /// The value is not allowed.
    Invalid,
    /// The value is missing.
    Required,
    /// Another object, or another part of this one, has the value.
    Duplicate,
    /// The value is none of those that are allowed.
    NotSupported,
    /// The field must not be set.
    Forbidden,
    /// The list is too long.
    TooMany,
}

impl CauseType {
    /// The `reason` of a `StatusCause`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "FieldValueUnknown",
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooMany => "FieldValueTooMany",
        }
    }
}

impl FieldError {
    /// An error of the given type.
    pub fn new(field: impl Into<String>, cause: CauseType, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            cause,
            message: message.into(),
        }
    }

    /// A value that is not allowed.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, CauseType::Invalid, message)
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, CauseType::Required, message)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Decodes an object of kind `K`; the errors are the first unknown fields, or the first malformed one.
pub fn decode_strict<K: Object + JsonSchema>(value: &Value) -> Result<K, Vec<FieldError>> {
    let object: K =
        serde_path_to_error::deserialize(value).map_err(|error| vec![malformed::<K>(&error)])?;
    let decoded = serde_json::to_value(&object).map_err(|error| {
        vec![FieldError::invalid(
            "",
            format!("cannot be encoded: {error}"),
        )]
    })?;
    if !dropped::any(value, &decoded) {
        return Ok(object);
    }
    let schema = Schema::of::<K>();
    let errors = dropped::errors(&schema, value, &decoded);
    if errors.is_empty() {
        Ok(object)
    } else {
        Err(errors)
    }
}

/// One step of a path: a field of an object, or an item of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

fn text(path: &[Step]) -> String {
    path.iter().fold(String::new(), |text, step| match step {
        Step::Field(name) if text.is_empty() => name.clone(),
        Step::Field(name) => format!("{text}.{name}"),
        Step::Item(index) => format!("{text}[{index}]"),
    })
}

fn malformed<K: JsonSchema>(error: &serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    let steps: Vec<Step> = error.path().iter().filter_map(step).collect();
    let path = error.path().to_string();
    let path = if path == "." { String::new() } else { path };
    let message = error.inner().to_string();
    let missing = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    match missing {
        Some(name) if path.is_empty() => FieldError::required(name, "is required"),
        Some(name) => FieldError::required(format!("{path}.{name}"), "is required"),
        None => {
            let fields = Schema::of::<K>().fields(&steps);
            FieldError::invalid(path, words::plain(&message, &fields))
        }
    }
}

fn step(segment: &Segment) -> Option<Step> {
    match segment {
        Segment::Map { key } => Some(Step::Field(key.clone())),
        Segment::Seq { index } => Some(Step::Item(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
