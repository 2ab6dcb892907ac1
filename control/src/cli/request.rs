//! Requests to the API server, and the errors that its replies become.

use dormouse_command::{CommandError, Exit, root_cause};
use http::Method;

use super::codes::Code;

/// Media type of a table, which the server fills for people.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";
/// Media type of an object or a list of objects.
pub(super) const OBJECT: &str = "application/json";

/// One request to the API server.
#[derive(Debug)]
pub(super) struct ApiRequest<'a> {
    /// The HTTP method.
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: &'a str,
    /// Accepted media types of the reply: [`TABLE`] or [`OBJECT`].
    pub(super) accept: &'a str,
    /// Media type of `body`.
    pub(super) media_type: &'a str,
    /// The body; empty if there is none.
    pub(super) body: Vec<u8>,
    /// What the request is for, as `cannot …:` continues in an error.
    pub(super) action: &'a str,
}

impl<'a> ApiRequest<'a> {
    /// A request without a body, answered by objects.
    pub(super) fn new(method: Method, path: &'a str, action: &'a str) -> Self {
        Self {
            method,
            path,
            accept: OBJECT,
            media_type: OBJECT,
            body: Vec::new(),
            action,
        }
    }
}

/// The error of a request that was made to `action`. `origin` says where the server's address comes from.
pub(super) fn request_error(error: &kube::Error, action: &str, origin: &str) -> CommandError {
    match error {
        kube::Error::Api(status) => status_error(status, action),
        kube::Error::SerdeError(error) => {
            let message = format!("cannot {action}: the server's reply cannot be parsed: {error}");
            let hint = "use the same version of command and server";
            CommandError::new(Code::Output, Exit::No, message, hint)
        }
        _ => {
            let cause = root_cause(error);
            let hint = if cause.contains("certificate") {
                "use the kubeconfig of that cluster: export KUBECONFIG=FILE"
            } else {
                "is `dormouse up` running there?"
            };
            let message = format!("cannot {action}: {cause}");
            CommandError::new(Code::Unreachable, Exit::Unreachable, message, hint).note(origin)
        }
    }
}

/// The command that lists the objects of the kind of which one is missing.
fn list_of(status: &kube::core::Status) -> &'static str {
    let details = status.details.as_ref();
    match details.map_or("", |details| details.kind.as_str()) {
        "pods" => "dormouse get pods -A",
        "nodes" => "dormouse get nodes",
        "revisions" => "dormouse get revisions -A",
        "events" => "dormouse get events -A",
        "namespaces" => "dormouse get namespaces",
        "configmaps" => "dormouse get configmaps -A",
        "jointokens" | "usertokens" => "dormouse token list",
        _ => "dormouse get apps -A",
    }
}

/// The error that a Kubernetes `Status` stands for, one note per cause.
fn status_error(status: &kube::core::Status, action: &str) -> CommandError {
    let (code, exit, hint) = match status.reason.as_str() {
        "NotFound" => (Code::NotFound, Exit::NotFound, list_of(status)),
        "Forbidden" | "Unauthorized" => {
            (Code::NotAllowed, Exit::NotAllowed, "use another --context")
        }
        "Conflict" | "AlreadyExists" => (Code::Conflict, Exit::No, "try again"),
        "Invalid" | "BadRequest" => (
            Code::Refused,
            Exit::No,
            "correct the field that is named and apply again",
        ),
        _ => (Code::Server, Exit::No, "look at the server's log"),
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let notes: Vec<String> = causes
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    // With causes, the part of the message after the first colon repeats them in one long line.
    let summary = match notes.as_slice() {
        [] => status.message.as_str(),
        _ => status.message.split(": ").next().unwrap_or_default(),
    };
    let error = CommandError::new(code, exit, format!("cannot {action}: {summary}"), hint);
    notes.into_iter().fold(error, CommandError::note)
}
