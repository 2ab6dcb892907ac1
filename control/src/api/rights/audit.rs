//! The audit event of a request, in the format of `audit.k8s.io/v1` at the level Metadata: no bodies, and no headers but the user agent.

use axum::{extract::Request, response::Response};
use dormouse_cluster::random_uid;
use dormouse_fleet::http::hold;
use dormouse_rbac::{Attributes, Target, User};
use http::{HeaderValue, header};
use k8s_openapi::jiff::{Timestamp, fmt::temporal::DateTimePrinter};
use serde_json::{Value, json};

use super::{attributes, origin::Origin};
use crate::api::failure::Reported;
use crate::audit::Audit;

/// Bytes of a URI and of a user agent that are recorded.
const TEXT_BYTES_MAX: usize = 4_096;
/// The response header with the ID of the event.
const ID_HEADER: &str = "audit-id";
/// Times have microseconds, as in Kubernetes.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// The event of a request that is being served.
pub(super) struct Event {
    audit: Audit,
    id: String,
    /// Whether the response takes long.
    is_long: bool,
    fields: Value,
}

impl Event {
    /// The event of a request that was received now.
    pub(super) fn begin(
        audit: &Audit,
        origin: &Origin,
        request: &Request,
        attributes: &Attributes,
    ) -> Self {
        let id = random_uid().unwrap_or_default();
        let uri = request.uri().path_and_query();
        let agent = request.headers().get(header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok());
        let mut fields = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": id, "stage": "ResponseComplete",
            "requestURI": cut(uri.map_or("", |uri| uri.as_str())), "verb": attributes.verb, "user": {},
            "requestReceivedTimestamp": now(),
        });
        if let Some(agent) = agent {
            fields["userAgent"] = json!(cut(agent));
        }
        if let Some(address) = origin.address() {
            fields["sourceIPs"] = json!([address]);
        }
        if let Target::Resource(resource) = &attributes.target {
            let all = [
                ("apiGroup", &resource.group),
                ("apiVersion", &resource.version),
                ("namespace", &resource.namespace),
                ("resource", &resource.resource),
                ("subresource", &resource.subresource),
                ("name", &resource.name),
            ];
            let set = all.into_iter().filter(|(_, value)| !value.is_empty());
            fields["objectRef"] = set
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect();
        }
        Self {
            audit: audit.clone(),
            id,
            is_long: attributes::is_long(attributes),
            fields,
        }
    }

    /// Records the sender of the request.
    pub(super) fn set_user(&mut self, user: &User) {
        self.fields["user"] = as_json(user);
    }

    /// Records the user as whom the request is sent, if that is another one.
    pub(super) fn set_impersonated(&mut self, user: &User) {
        let user = as_json(user);
        if self.fields["user"] != user {
            self.fields["impersonatedUser"] = user;
        }
    }

    /// Records the decision.
    pub(super) fn set_decision(&mut self, allowed: bool, reason: &str) {
        let decision = if allowed { "allow" } else { "forbid" };
        self.fields["annotations"] = json!({
            "authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason,
        });
    }

    /// Records the response. Its event is complete when its body is sent.
    pub(super) fn answered(mut self, mut response: Response) -> Response {
        let code = response.status().as_u16();
        let mut status = json!({"metadata": {}, "code": code});
        if let Some(Reported { reason, message }) = response.extensions_mut().remove() {
            status["status"] = json!("Failure");
            status["reason"] = json!(reason);
            status["message"] = json!(cut(&message));
        }
        self.fields["responseStatus"] = status;
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert(ID_HEADER, id);
        }
        if !self.is_long {
            return response;
        }
        response.map(|body| hold(body, self))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.fields["stageTimestamp"] = json!(now());
        let mut line = self.fields.to_string().into_bytes();
        line.push(b'\n');
        self.audit.add(line);
    }
}

fn as_json(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}

fn now() -> String {
    PRINTER.timestamp_to_string(&Timestamp::now())
}

/// The begin of a text that a client has chosen.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
