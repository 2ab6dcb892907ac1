//! Which form a client can read and which it sends: JSON, Tables of JSON, YAML for apply; never protobuf.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use http::{HeaderMap, StatusCode, header};

use super::{BODY_BYTES_MAX, Failure};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The object or list itself.
    Object,
    /// Rows for people: `meta.k8s.io/v1 Table`.
    Table,
}

/// The first acceptable form that we can write.
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

/// A request's body, whole.
pub(super) struct Sent(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let body = Bytes::from_request(request, state).await;
        body.map(Self).map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Failure::too_large(BODY_BYTES_MAX),
            _ => Failure::bad_request(error.body_text()),
        })
    }
}

/// What a client sends, without its parameters; JSON when it does not say.
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
    fn the_first_form_that_we_can_write_wins() {
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
    fn a_client_that_reads_only_protobuf_is_told_so() {
        check("application/vnd.kubernetes.protobuf", None);
        check(
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            None,
        );
    }
}
