//! Error responses of the activator. Each names the app and the reason.

use std::net::Ipv6Addr;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proxy::ForwardError;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::config::Problem;
use crate::host::HostError;
use crate::metrics::Reason;
use crate::park::LimitReached;
use crate::report::{Fault, FaultKind, Unanswered};

/// The response to a connection above the limit, sent before a request is read.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 40\r\n\r\ndormouse: too many connections are open\n";

/// `Retry-After` of an app whose start goes on, seconds.
const RETRY_STARTING_S: u64 = 5;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{address} is not the address of any app")]
    OutsidePrefix { address: Ipv6Addr },
    #[error("no app has VIP index {vip}")]
    Unknown { vip: u32 },
    #[error(
        "VIP index {vip}: the control plane has not answered within {limit:?}, try again later"
    )]
    Unanswered { vip: u32, limit: Duration },
    #[error("app {app} is served on port {port}, not on this one")]
    WrongPort { app: String, port: u16 },
    #[error("app {app} was removed while the request was parked")]
    Removed { app: String },
    #[error("the method CONNECT is not supported")]
    Connect,
    #[error("the request's body has a transfer coding besides chunked, which is not supported")]
    Coded,
    #[error(transparent)]
    Host(HostError),
    #[error("app {app} has too many requests parked")]
    TooMany { app: String },
    #[error("app {app} has too many bytes of requests parked")]
    TooLarge { app: String },
    #[error("app {app} had no free slot for the request within {limit:?}")]
    ParkedTooLong { app: String, limit: Duration },
    #[error("app {app} has no ready pod after {waited:?}{}", because(.problem.as_ref()))]
    NotReady {
        app: String,
        waited: Duration,
        problem: Option<Problem>,
    },
    #[error("app {app} does not start{}", because(.problem.as_ref()))]
    Failing {
        app: String,
        problem: Option<Problem>,
    },
    #[error("app {app} did not respond within {limit:?}")]
    Timeout { app: String, limit: Duration },
    #[error("app {app} failed: {}", chain(.source))]
    Backend { app: String, source: ForwardError },
}

impl Refusal {
    pub(crate) fn limit(app: &str, limit: LimitReached) -> Self {
        let app = app.to_owned();
        match limit {
            LimitReached::Count => Self::TooMany { app },
            LimitReached::Bytes => Self::TooLarge { app },
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::OutsidePrefix { .. }
            | Self::Unknown { .. }
            | Self::WrongPort { .. }
            | Self::Removed { .. } => StatusCode::NOT_FOUND,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            // RFC 9112, 6.1.
            Self::Coded => StatusCode::NOT_IMPLEMENTED,
            Self::Host(_) => StatusCode::BAD_REQUEST,
            Self::Unanswered { .. }
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::ParkedTooLong { .. }
            | Self::NotReady { .. }
            | Self::Failing { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Backend { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// The label in the metrics, for refusals before any backend was tried.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::TooMany { .. } => Some(Reason::count),
            Self::TooLarge { .. } => Some(Reason::bytes),
            Self::ParkedTooLong { .. } | Self::Unanswered { .. } | Self::NotReady { .. } => {
                Some(Reason::age)
            }
            Self::Failing { .. } => Some(Reason::failing),
            _ => None,
        }
    }

    /// How a request is unanswered that was not parked any longer when it was refused.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        match self {
            Self::TooMany { .. } | Self::TooLarge { .. } => Some(Unanswered::Refused),
            Self::Timeout { .. } => Some(Unanswered::TimedOut),
            Self::Backend { .. } => Some(Unanswered::Failed),
            _ => None,
        }
    }

    /// How the pod failed that had the request; none: that is no failure of a pod.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let (kind, message) = match self {
            Self::Timeout { limit, .. } => {
                let message = format!("did not respond within {limit:?}");
                (FaultKind::NoResponse, message)
            }
            Self::Backend { source, .. } => (
                kind_of(source)?,
                format!("failed a request: {}", chain(source)),
            ),
            _ => return None,
        };
        Some(Fault { kind, message })
    }

    /// Seconds after which the client may repeat the request.
    fn retry_after_s(&self) -> u64 {
        match self {
            Self::NotReady { .. } => RETRY_STARTING_S,
            Self::Failing { problem, .. } => {
                let after = problem.as_ref().and_then(|problem| problem.retry_after);
                after.map_or(RETRY_STARTING_S, |after| after.as_secs().max(1))
            }
            _ => 1,
        }
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let status = self.status();
        let mut response = Response::new(Full::from(format!("dormouse: {self}\n")));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after_s()));
        }
        response
    }
}

/// The reason of an app without a ready pod, as the end of a sentence.
fn because(problem: Option<&Problem>) -> String {
    let message = problem.map(|problem| problem.message.as_str());
    message.map_or_else(String::new, |message| format!(": {message}"))
}

/// None: the activator itself has no connection left.
fn kind_of(error: &ForwardError) -> Option<FaultKind> {
    match error {
        ForwardError::ConnectionLimit { .. } => None,
        ForwardError::Connect { .. }
        | ForwardError::ConnectTimeout { .. }
        | ForwardError::Deadline { .. } => Some(FaultKind::NoResponse),
        ForwardError::Lost { .. }
        | ForwardError::UnexpectedUpgrade { .. }
        | ForwardError::Coded { .. } => Some(FaultKind::BadResponse),
    }
}

/// An error with its sources in one line, because a client cannot read the activator's log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_above_the_connection_limit_is_well_formed() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.ends_with(&format!("content-length: {}", body.len())),
            "{head} {}",
            body.len()
        );
    }

    #[test]
    fn a_full_queue_is_answered_503_with_retry_after() {
        let response = Refusal::limit("default/docs", LimitReached::Count).response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
}
