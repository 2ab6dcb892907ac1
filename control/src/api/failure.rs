//! Failures as Kubernetes `Status` objects: with a reason, a message, and a cause per invalid field.

mod refusal;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use dormouse_cluster::{
    ClientError, FieldError, Key, claim::ClaimError, decode::CauseType, service::ServiceError,
};
use dormouse_command::error_chain;
use dormouse_rbac::{Attributes, Target};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::Kind;

/// Most errors of fields that a failure names: each is in its message and in its causes.
const CAUSES_MAX: usize = 50;
/// The detail with the seconds after which a client may try again.
const RETRY_AFTER: &str = "retryAfterSeconds";

/// The failure of a request. Boxed because it is large and rare.
#[derive(Debug)]
pub(super) struct Failure(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Failure {
    fn new(
        code: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
        details: Value,
    ) -> Self {
        Self(Box::new(Parts {
            code,
            reason,
            message: message.into(),
            details,
        }))
    }

    /// What the client reads.
    pub(super) fn message(&self) -> &str {
        &self.0.message
    }

    /// The request is malformed.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message, Value::Null)
    }

    /// The credentials of the request are not valid.
    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        let code = StatusCode::UNAUTHORIZED;
        Self::new(code, "Unauthorized", message, Value::Null)
    }

    /// The user has no right to send the request.
    pub(super) fn unauthorized_action(user: &str, attributes: &Attributes, reason: &str) -> Self {
        let verb = &attributes.verb;
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let (message, details) = match &attributes.target {
            Target::Path(path) => {
                let message =
                    format!("forbidden: User {user:?} cannot {verb} path {path:?}{reason}");
                (message, json!({}))
            }
            Target::Resource(one) => {
                let place = match one.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let mut kind = one.resource.clone();
                let mut details = json!({"kind": one.resource});
                if !one.group.is_empty() {
                    kind = format!("{kind}.{}", one.group);
                    details["group"] = json!(one.group);
                }
                if !one.name.is_empty() {
                    kind = format!("{kind} {:?}", one.name);
                    details["name"] = json!(one.name);
                }
                let message = format!(
                    "{kind} is forbidden: User {user:?} cannot {verb} resource {:?} in API group {:?} {place}{reason}",
                    one.combined(),
                    one.group
                );
                (message, details)
            }
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message, details)
    }

    /// Nobody may send the request.
    pub(super) fn forbidden_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message, Value::Null)
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, Value::Null)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message,
            Value::Null,
        )
    }

    pub(super) fn not_acceptable(accepted: &str) -> Self {
        let message = format!(
            "the server supports only JSON, but the client accepts {accepted}: accept application/json"
        );
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            message,
            Value::Null,
        )
    }

    pub(super) fn unsupported_media(sent: &str, supported: &str) -> Self {
        let message = format!("the server does not support {sent}: send {supported}");
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
            Value::Null,
        )
    }

    pub(super) fn too_large(bytes_max: usize) -> Self {
        let message = format!("the body is larger than {bytes_max} bytes: send less");
        Self::of_large_entity(message)
    }

    /// The request asks for more than the server does at once.
    pub(super) fn entity_too_large(why: &str) -> Self {
        Self::of_large_entity(format!("Request entity too large: {why}"))
    }

    fn of_large_entity(message: String) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
            Value::Null,
        )
    }

    /// An option of a list or a watch does not go with the others.
    pub(super) fn list_option(option: &str, detail: &str) -> Self {
        let message = format!("{option} {detail}");
        let causes =
            json!([{"reason": "FieldValueForbidden", "message": message, "field": option}]);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {option}: Forbidden: {message}"),
            json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}),
        )
    }

    /// The value of an option of a write is not the one that is supported.
    pub(super) fn unsupported_option(kind: &str, option: &str, value: &str, only: &str) -> Self {
        let message = format!("Unsupported value: {value:?}: supported values: {only:?}");
        let cause = CauseType::NotSupported.reason();
        let causes = json!([{"reason": cause, "message": message, "field": option}]);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind}.meta.k8s.io \"\" is invalid: {option}: {message}"),
            json!({"group": "meta.k8s.io", "kind": kind, "causes": causes}),
        )
    }

    /// The client knows a newer version than the store has: another store, or one that was restored from a backup.
    pub(super) fn too_large_version(known: u64, current: u64) -> Self {
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {known}, current: {current}"),
            json!({"causes": [cause], RETRY_AFTER: 1}),
        )
    }

    /// An error of the server itself.
    pub(super) fn internal(message: &str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            message,
            Value::Null,
        )
    }

    /// There is no place for the request now: Kubernetes' clients try again by themselves.
    pub(super) fn too_many_requests(message: impl Into<String>) -> Self {
        Self::without_room(message, json!({ RETRY_AFTER: 1 }))
    }

    /// There is no room for what the request stores.
    pub(super) fn full(message: impl Into<String>) -> Self {
        Self::without_room(message, Value::Null)
    }

    fn without_room(message: impl Into<String>, details: Value) -> Self {
        let code = StatusCode::TOO_MANY_REQUESTS;
        Self::new(code, "TooManyRequests", message, details)
    }

    /// What the request needs cannot be reached now.
    pub(super) fn unavailable(message: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
            Value::Null,
        )
    }

    /// Whether the write conflicted with another client's.
    pub(super) fn is_conflict(&self) -> bool {
        self.0.reason == "Conflict"
    }

    pub(super) fn not_found<K: Kind>(name: &str) -> Self {
        let message = format!("{} {name:?} not found", K::resource());
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            message,
            details::<K>(name, &[]),
        )
    }

    pub(super) fn no_token(kind: &str, id: &str) -> Self {
        let message = format!("{kind}.dormouse.dev {id:?} not found");
        let details = json!({"name": id, "group": "dormouse.dev", "kind": kind});
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, details)
    }

    pub(super) fn already_exists<K: Kind>(name: &str) -> Self {
        let message = format!("{} {name:?} already exists", K::resource());
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            message,
            details::<K>(name, &[]),
        )
    }

    pub(super) fn conflict<K: Kind>(name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to the latest version and try again",
            K::resource()
        );
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            message,
            details::<K>(name, &[]),
        )
    }

    /// The object does not allow the request.
    pub(super) fn forbidden<K: Kind>(name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", K::resource());
        Self::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            message,
            details::<K>(name, &[]),
        )
    }

    /// The object is invalid; each error has a field and a fix.
    pub(super) fn invalid<K: Kind>(name: &str, errors: &[FieldError]) -> Self {
        let named = &errors[..errors.len().min(CAUSES_MAX)];
        let mut all: Vec<String> = named.iter().map(ToString::to_string).collect();
        if errors.len() > named.len() {
            all.push(format!("and {} more errors", errors.len() - named.len()));
        }
        let kind = K::kind(&());
        let group = K::group(&());
        let kind = if group.is_empty() {
            kind.into_owned()
        } else {
            format!("{kind}.{group}")
        };
        let message = format!("{kind} {name:?} is invalid: {}", all.join("; "));
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            message,
            details::<K>(name, named),
        )
    }

    /// The controller has not seen the object yet.
    pub(super) fn not_yet<K: Kind>(name: &str) -> Self {
        let message = format!(
            "{} {name:?} was not seen by the controller yet: try again in a second",
            K::resource()
        );
        let mut details = details::<K>(name, &[]);
        details[RETRY_AFTER] = json!(1);
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
            details,
        )
    }

    /// The failure of a request on `key` by an error of the store's client.
    pub(super) fn of_client<K: Kind>(error: &ClientError, key: &Key) -> Self {
        match error {
            ClientError::AlreadyExists { .. } => Self::already_exists::<K>(&key.name),
            ClientError::NotFound { .. } => Self::not_found::<K>(&key.name),
            ClientError::Conflict { .. } => Self::conflict::<K>(&key.name),
            ClientError::Compacted { .. }
            | ClientError::NoSuchRevision { .. }
            | ClientError::RevisionRegressed { .. } => {
                let message = format!("{error}: list again");
                Self::new(StatusCode::GONE, "Expired", message, Value::Null)
            }
            ClientError::Unreachable(_) | ClientError::Timeout { .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                error_chain(error),
                Value::Null,
            ),
            ClientError::Refused(refusal) => Self::of_refusal(refusal, error_chain(error)),
            ClientError::Fenced { .. } | ClientError::Malformed { .. } => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                error_chain(error),
                Value::Null,
            ),
        }
    }

    /// The failure of a write of a Service.
    pub(super) fn of_service<K: Kind>(error: &ServiceError, key: &Key) -> Self {
        match error {
            ServiceError::Invalid(errors) => Self::invalid::<K>(&key.name, errors),
            ServiceError::Client(error) => Self::of_client::<K>(error, key),
        }
    }

    /// The failure of a request on `key` by an error of a VIP claim.
    pub(super) fn of_claim<K: Kind>(error: &ClaimError, key: &Key) -> Self {
        let (cause, fix) = match error {
            ClaimError::Client(error) => return Self::of_client::<K>(error, key),
            ClaimError::Taken { .. } => (
                CauseType::Duplicate,
                "choose another, or omit vip to have one allocated",
            ),
            ClaimError::Outside { .. } => (
                CauseType::Invalid,
                "choose an address inside, or omit vip to have one allocated",
            ),
            ClaimError::Exhausted(_) => (
                CauseType::Invalid,
                "delete an app, or add a --vip-range to the control plane",
            ),
        };
        Self::invalid::<K>(
            &key.name,
            &[FieldError::new(
                "spec.vip",
                cause,
                format!("{error}: {fix}"),
            )],
        )
    }

    /// The response's body.
    pub(super) fn status(&self) -> Value {
        let Parts {
            code,
            reason,
            message,
            details,
        } = &*self.0;
        let mut status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        if !details.is_null() {
            status["details"] = details.clone();
        }
        status
    }
}

/// Why a request has failed, for the audit: an extension of the response.
#[derive(Debug, Clone)]
pub(super) struct Reported {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.0.code, Json(self.status())).into_response();
        let is_soon = self.0.code == StatusCode::TOO_MANY_REQUESTS;
        if let Some(seconds) = self.0.details[RETRY_AFTER].as_u64().filter(|_| is_soon) {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Reported {
            reason: self.0.reason,
            message: self.0.message,
        });
        response
    }
}

/// The details of a status about one object.
pub(super) fn details<K: Kind>(name: &str, errors: &[FieldError]) -> Value {
    let cause = |error: &FieldError| json!({"reason": error.cause.reason(), "message": error.message, "field": error.field});
    let mut details = json!({"name": name, "kind": K::PLURAL});
    if !K::group(&()).is_empty() {
        details["group"] = json!(K::group(&()));
    }
    if !errors.is_empty() {
        details["causes"] = errors.iter().map(cause).collect();
    }
    details
}

#[cfg(test)]
mod tests;
