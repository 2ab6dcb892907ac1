//! The error of an object or a profile that cannot be read: the field, and the reason.

use std::fmt;

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Malformed {
    /// The path of the field, such as `spec.containers[0].resources.requests[cpu]`.
    pub field: String,
    /// The reason, without the value of other fields.
    pub reason: String,
}

impl Malformed {
    pub(crate) fn new(field: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            field: field.to_string(),
            reason: reason.to_string(),
        }
    }
}

/// The text of several errors as Kubernetes joins them: one alone, several in brackets, each once.
pub(crate) fn joined(errors: &[String]) -> String {
    let mut once: Vec<&str> = Vec::new();
    for error in errors {
        if !once.contains(&error.as_str()) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_are_in_brackets_and_each_is_shown_once() {
        let errors =
            |all: &[&str]| joined(&all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(errors(&["a"]), "a");
        assert_eq!(errors(&["a", "a"]), "a");
        assert_eq!(errors(&["a", "b", "a"]), "[a, b]");
    }
}
