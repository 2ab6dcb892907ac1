//! Kubernetes' words for invalid fields of its own kinds: `Invalid value: "x": …`, with the value as JSON.

use serde_json::{Value, json};

use crate::FieldError;
use crate::decode::CauseType;

/// A value that is not allowed.
pub(crate) fn invalid(
    field: impl Into<String>,
    value: impl Into<Value>,
    detail: impl std::fmt::Display,
) -> FieldError {
    FieldError::invalid(field, format!("Invalid value: {}: {detail}", value.into()))
}

/// A value that is missing.
pub(crate) fn required(field: impl Into<String>, detail: &str) -> FieldError {
    let separator = if detail.is_empty() { "" } else { ": " };
    FieldError::required(field, format!("Required value{separator}{detail}"))
}

/// A value that occurs twice.
pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
    let message = format!("Duplicate value: {}", value.into());
    FieldError::new(field, CauseType::Duplicate, message)
}

/// A value that is none of the supported ones.
pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> FieldError {
    let names: Vec<String> = supported
        .iter()
        .map(|name| json!(name).to_string())
        .collect();
    let message = format!(
        "Unsupported value: {}: supported values: {}",
        json!(value),
        names.join(", ")
    );
    FieldError::new(field, CauseType::NotSupported, message)
}

/// A field that must not be set.
pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
    FieldError::new(field, CauseType::Forbidden, format!("Forbidden: {detail}"))
}

/// A list that is too long.
pub(crate) fn too_many(field: impl Into<String>, has: usize, most: usize) -> FieldError {
    let message = format!("Too many: {has}: must have at most {most} items");
    FieldError::new(field, CauseType::TooMany, message)
}

/// The error of a port's number.
pub(crate) fn port(field: impl Into<String>, number: i32) -> Option<FieldError> {
    let is_port = (1..=65_535).contains(&number);
    (!is_port).then(|| invalid(field, number, "must be between 1 and 65535, inclusive"))
}
