//! Reads an object from JSON and refuses what it would otherwise silently ignore: a misspelt field must
//! be named with its path, not dropped.

mod near;
mod schema;

use std::fmt;

use schemars::JsonSchema;
use serde_json::Value;

use crate::Object;
use schema::Schema;

/// One field that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.container.ports[0].name`.
    pub field: String,
    /// What kind of mistake it is.
    pub fault: Fault,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Kinds of mistakes, with Kubernetes' names for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no such field.
    Unknown,
    /// The value is not allowed.
    Invalid,
    /// The value is missing.
    Required,
    /// The value belongs to another object.
    Duplicate,
}

impl Fault {
    /// The `reason` of a Kubernetes status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "FieldValueUnknown",
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }
}

impl FieldError {
    /// A mistake of the given kind.
    pub fn new(field: impl Into<String>, fault: Fault, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            fault,
            message: message.into(),
        }
    }

    /// A value that is not allowed.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Invalid, message)
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Required, message)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Reads an object of kind `K`; every unknown field, or the first unreadable one, is an error.
pub fn decode_strict<K: Object + JsonSchema>(value: &Value) -> Result<K, Vec<FieldError>> {
    let object: K =
        serde_path_to_error::deserialize(value).map_err(|error| vec![unreadable(&error)])?;
    let kept = serde_json::to_value(&object).map_err(|error| {
        vec![FieldError::invalid(
            "",
            format!("cannot be written back: {error}"),
        )]
    })?;
    let mut lost = Vec::new();
    find_lost(value, &kept, &mut Vec::new(), &mut lost);
    if lost.is_empty() {
        return Ok(object);
    }
    let schema = Schema::of::<K>();
    let errors: Vec<FieldError> = lost
        .iter()
        .filter_map(|path| unknown(&schema, path))
        .collect();
    if errors.is_empty() {
        Ok(object)
    } else {
        Err(errors)
    }
}

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// Paths of the fields in `given` that did not survive being read and written back.
fn find_lost(given: &Value, kept: &Value, path: &mut Vec<Step>, lost: &mut Vec<Vec<Step>>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (name, value) in given {
                path.push(Step::Field(name.clone()));
                match kept.get(name) {
                    Some(kept) => find_lost(value, kept, path, lost),
                    None => lost.push(path.clone()),
                }
                path.pop();
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (index, (value, kept)) in given.iter().zip(kept).enumerate() {
                path.push(Step::Item(index));
                find_lost(value, kept, path, lost);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The error for a lost field; `None` when the schema knows it, that is when it was merely empty.
fn unknown(schema: &Schema, path: &[Step]) -> Option<FieldError> {
    let (Step::Field(name), parent) = path.split_last()? else {
        return None;
    };
    let known = schema.fields(parent);
    if known.iter().any(|field| field == name) {
        return None;
    }
    let message = match near::nearest(name, &known) {
        Some(close) => format!(
            "unknown field; did you mean `{close}`? {}",
            near::listing(&known)
        ),
        None => format!("unknown field; {}", near::listing(&known)),
    };
    Some(FieldError::new(text(path), Fault::Unknown, message))
}

fn text(path: &[Step]) -> String {
    path.iter().fold(String::new(), |text, step| match step {
        Step::Field(name) if text.is_empty() => name.clone(),
        Step::Field(name) => format!("{text}.{name}"),
        Step::Item(index) => format!("{text}[{index}]"),
    })
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    let path = error.path().to_string();
    let path = if path == "." { String::new() } else { path };
    let message = error.inner().to_string();
    let missing = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    match missing {
        Some(name) if path.is_empty() => FieldError::required(name, "is required"),
        Some(name) => FieldError::required(format!("{path}.{name}"), "is required"),
        None => FieldError::invalid(path, message),
    }
}

#[cfg(test)]
mod tests;
