//! The parts of a write request: the object's key, the options, the headers and the body.

use std::sync::Arc;

use axum::{
    RequestExt,
    body::Bytes,
    extract::{FromRequest, Request},
};
use dormouse_cluster::Key;
use dormouse_rbac::{Attributes, User};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::protobuf;
use crate::api::{
    Api, BODY_BYTES_MAX, Failure, negotiate, patch,
    query::{Names, Options, WriteQuery},
};

/// A write request whose response the client accepts.
pub(in crate::api) struct WriteRequest {
    /// The user, whom the gate has admitted.
    pub(in crate::api) user: User,
    /// The attributes by which the gate has decided.
    pub(super) attributes: Attributes,
    /// The key in the path; a create has no name in it.
    pub(in crate::api) key: Key,
    /// Validate only, store nothing.
    pub(in crate::api) dry_run: bool,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl WriteRequest {
    /// Whether the body has the protobuf form of Kubernetes, which typed clients send. Only options and the kinds of `protobuf` are decoded from it.
    pub(super) fn is_protobuf(&self) -> bool {
        negotiate::content_type(&self.headers) == "application/vnd.kubernetes.protobuf"
    }

    /// The body as JSON, from JSON or YAML, or from the protobuf form of one of these kinds.
    pub(in crate::api) fn json(&self) -> Result<Value, Failure> {
        if self.is_protobuf()
            && let Some(object) = protobuf::object(&self.body)?
        {
            return Ok(object);
        }
        match negotiate::content_type(&self.headers) {
            "application/json" => patch::json(&self.body),
            "application/yaml" => patch::yaml(&self.body),
            other => Err(Failure::unsupported_media(
                other,
                "application/json or application/yaml",
            )),
        }
    }
}

impl FromRequest<Arc<Api>> for WriteRequest {
    type Rejection = Failure;

    async fn from_request(mut request: Request, api: &Arc<Api>) -> Result<Self, Failure> {
        let names = request.extract_parts::<Names>().await?;
        let Options(query) = request.extract_parts::<Options<WriteQuery>>().await?;
        let dry_run = query.is_dry_run(request.method())?;
        let headers = request.headers().clone();
        let (Some(user), Some(attributes)) = (
            request.extensions_mut().remove::<User>(),
            request.extensions_mut().remove::<Attributes>(),
        ) else {
            return Err(Failure::unauthorized("Unauthorized"));
        };
        let body = Bytes::from_request(request, api).await;
        let body = body.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Failure::too_large(BODY_BYTES_MAX),
            _ => Failure::bad_request(error.body_text()),
        })?;
        negotiate::form(&headers)?;
        Ok(Self {
            user,
            attributes,
            key: names.key(),
            dry_run,
            headers,
            body,
        })
    }
}
