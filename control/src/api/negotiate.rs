//! Content negotiation: responses are JSON objects or Tables, bodies are JSON or YAML; of protobuf, only options and Namespaces.

use http::{HeaderMap, header};

use super::Failure;

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The object or list itself.
    Object,
    /// A `meta.k8s.io/v1` Table.
    Table,
}

/// The first supported form of the `Accept` header.
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Failure> {
    let accepted: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if accepted.is_empty() {
        return Ok(Form::Object);
    }
    let mut forms = accepted
        .iter()
        .flat_map(|value| value.split(','))
        .filter_map(one);
    forms
        .next()
        .ok_or_else(|| Failure::not_acceptable(&accepted.join(", ")))
}

fn one(media: &str) -> Option<Form> {
    let mut parts = media.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut kind, mut version) = ("", "v1");
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    match (kind, version) {
        ("", _) => Some(Form::Object),
        ("Table", "v1") => Some(Form::Table),
        _ => None,
    }
}

/// The media type of a request's body, without parameters; JSON by default.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("application/json");
    text.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(accept: &'static str, want: Option<Form>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(form(&headers).ok(), want, "{accept}");
    }

    #[test]
    fn the_first_supported_form_is_used() {
        check("application/json", Some(Form::Object));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some(Form::Table),
        );
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json",
            Some(Form::Object),
        );
        check(
            "application/vnd.kubernetes.protobuf, */*",
            Some(Form::Object),
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Some(Form::Object),
        );
    }

    #[test]
    fn a_client_that_accepts_only_protobuf_is_refused() {
        check("application/vnd.kubernetes.protobuf", None);
        check(
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            None,
        );
    }
}
