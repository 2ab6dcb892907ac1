//! Single writes at the API server: patches of objects, and new ones.

use std::time::Duration;

use http_body_util::{BodyExt, Collected, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, StatusCode};
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use super::access::{Access, Servers, describe};

/// Maximum time of a write. The server ends requests after a minute.
const WRITE_MAX: Duration = Duration::from_secs(75);
/// Bytes of an answer that are read.
const ANSWER_MAX: usize = 1 << 20;
/// Characters of an answer that is not a Status which go to the log.
const TEXT_MAX: usize = 200;

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A new object.
    Create,
    /// A strategic merge patch.
    Merge,
    /// A JSON patch.
    Patch,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Kind.
    pub method: Method,
    /// Path of the object, or of its kind for a new one.
    pub path: String,
    /// The object or the patch.
    pub body: Value,
}

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No server could be reached, or there was no answer.
    #[error("{0}")]
    Unreachable(String),
    /// The server refused the write.
    #[error("the server answered {status}: {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its reason.
        text: String,
        /// The time after which it wants to be asked again.
        retry_after: Option<Duration>,
    },
}

/// A client that writes.
pub struct Writer {
    servers: Servers,
}

impl Writer {
    /// A client of these servers.
    pub fn new(access: Access) -> Self {
        Self {
            servers: Servers::new(access),
        }
    }

    /// Carries out a write.
    pub async fn send(&mut self, write: &Write) -> Result<(), WriteError> {
        let sent = timeout(WRITE_MAX, self.attempt(write)).await;
        let sent =
            sent.unwrap_or_else(|_| Err(WriteError::Unreachable("no answer in time".to_owned())));
        match &sent {
            Err(WriteError::Refused { status: 401, .. }) => self.servers.renew(),
            Err(WriteError::Unreachable(_) | WriteError::Refused { status: 500.., .. }) => {
                self.servers.turn();
            }
            _ => {}
        }
        sent
    }

    async fn attempt(&mut self, write: &Write) -> Result<(), WriteError> {
        let unreachable = |error: &dyn std::error::Error| WriteError::Unreachable(describe(error));
        let client = self
            .servers
            .client()
            .await
            .map_err(|error| unreachable(&error))?;
        let request = request(write).map_err(|error| unreachable(&error))?;
        let response = client
            .0
            .send(request)
            .await
            .map_err(|error| unreachable(&error))?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(());
        }
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let bytes = body.map(Collected::to_bytes).unwrap_or_default();
        let seconds = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        Err(WriteError::Refused {
            status: head.status.as_u16(),
            text: text(head.status, &bytes),
            retry_after: seconds
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs),
        })
    }
}

fn request(write: &Write) -> Result<Request<Body>, kube::Error> {
    let (method, kind) = match write.method {
        Method::Create => ("POST", "application/json"),
        Method::Merge => ("PATCH", "application/strategic-merge-patch+json"),
        Method::Patch => ("PATCH", "application/json-patch+json"),
    };
    Request::builder()
        .method(method)
        .uri(&write.path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, kind)
        .body(Body::from(write.body.to_string().into_bytes()))
        .map_err(kube::Error::HttpError)
}

/// The message of a Status, or what else the server wrote: not every refusal is a Status.
fn text(status: StatusCode, body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let message = parsed.and_then(|value| value["message"].as_str().map(str::to_owned));
    let written = || {
        String::from_utf8_lossy(body)
            .trim()
            .chars()
            .take(TEXT_MAX)
            .collect::<String>()
    };
    let text = message.unwrap_or_else(written);
    if text.is_empty() {
        return status.canonical_reason().unwrap_or_default().to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_whether_or_not_it_is_a_status() {
        let of = |body: &str| text(StatusCode::TOO_MANY_REQUESTS, body.as_bytes());
        assert_eq!(of(r#"{"kind":"Status","message":"no"}"#), "no");
        assert_eq!(
            of("Too many requests, please try again later.\n"),
            "Too many requests, please try again later."
        );
        assert_eq!(of(""), "Too Many Requests");
    }
}
