//! Validation of names and labels, as in Kubernetes.

use std::collections::BTreeMap;

use dormouse_nodes::labels::{is_key, is_value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::FieldError;

/// Maximum length of an app's name: a pod's name adds up to 11 characters, and a DNS label has 63.
pub(super) const APP_LEN_MAX: usize = 52;
/// Maximum length of the name of any other object, as in Kubernetes.
pub(super) const LEN_MAX: usize = 253;

/// Maximum length of a DNS label.
pub(super) const LABEL_LEN_MAX: usize = 63;

const _: () = assert!(APP_LEN_MAX + 11 <= 63);

/// The errors of an object's name and namespace.
pub(super) fn object(meta: &ObjectMeta, len_max: usize) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match meta.name.as_deref() {
        None | Some("") => errors.push(FieldError::required("metadata.name", "is required")),
        Some(name) => errors.extend(check("metadata.name", name, len_max)),
    }
    errors.extend(
        meta.namespace
            .as_deref()
            .and_then(|name| check("metadata.namespace", name, 63)),
    );
    errors
}

/// The error of a name that is a DNS label with a letter first (RFC 1035), in Kubernetes' words.
pub(super) fn dns_1035(field: &str, name: &str) -> Option<FieldError> {
    let is_fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && check(field, name, LABEL_LEN_MAX).is_none();
    let detail = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
                  end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'), and have at most 63 characters";
    (!is_fine).then(|| super::words::invalid(field, name, detail))
}

/// The errors of the labels at `field` that a selector names.
pub(super) fn labels(field: &str, labels: &BTreeMap<String, String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        let field = format!("{field}.{key}");
        if !is_key(key) {
            let message = "is no label: use letters, digits, `-`, `_` and `.`, a letter or digit at both ends, at most 63 characters; \
                           before a `/` may be a domain";
            errors.push(FieldError::invalid(&field, message));
        }
        if !is_value(value) {
            let message = format!(
                "`{value}` is no value of a label: use letters, digits, `-`, `_` and `.`, a letter or digit at both ends, at most \
                 63 characters"
            );
            errors.push(FieldError::invalid(field, message));
        }
    }
    errors
}

/// The error of one name.
pub(super) fn check(field: &str, name: &str, len_max: usize) -> Option<FieldError> {
    // Names of up to 63 characters are a single label, without dots.
    let dots = len_max > 63;
    let inner =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || (dots && c == '.');
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fine = name.chars().all(inner) && name.starts_with(edge) && name.ends_with(edge);
    if !fine {
        let message = format!(
            "`{name}` is not a valid name: use lower-case letters, digits and dashes, and a letter or digit at both ends"
        );
        return Some(FieldError::invalid(field, message));
    }
    (name.len() > len_max).then(|| {
        FieldError::invalid(
            field,
            format!(
                "has {} characters, at most {len_max} are allowed",
                name.len()
            ),
        )
    })
}
