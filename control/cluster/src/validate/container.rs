//! Validation of containers, which nodes run as processes without images.

use k8s_openapi::api::core::v1::Container;

use crate::FieldError;

/// Adds the errors of the container at `field`.
pub(super) fn check(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    let command = container.command.as_deref().unwrap_or_default();
    if command.first().is_none_or(String::is_empty) {
        errors.push(FieldError::required(
            format!("{field}.command"),
            "is required, such as [python3, -m, http.server]: without images there is no default",
        ));
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() || variable.name.contains(['=', '\0']) {
            let message = format!(
                "`{}` is not a valid environment variable name",
                variable.name
            );
            errors.push(FieldError::invalid(
                format!("{field}.env[{index}].name"),
                message,
            ));
        }
        if variable.value_from.is_some() {
            let message = "is not supported: set value instead";
            errors.push(FieldError::invalid(
                format!("{field}.env[{index}].valueFrom"),
                message,
            ));
        }
    }
    let words = command.iter().chain(container.args.iter().flatten());
    if words.into_iter().any(|word| word.contains('\0')) {
        errors.push(FieldError::invalid(
            format!("{field}.command"),
            "contains a NUL character",
        ));
    }
}
