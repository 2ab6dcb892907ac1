//! Refusals of the API server, and responses that cannot be understood.

use std::time::Duration;

use serde::Deserialize;

/// Maximum length of a refusal's body that is read, in bytes.
const BODY_MAX: usize = 16 << 10;
/// Maximum length of a refusal's text that is reported, in characters.
const TEXT_MAX: usize = 300;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The server does not accept the credentials.
    #[error(
        "the API server does not accept the credentials (401 {message}): they have expired, or belong to another cluster"
    )]
    Unauthorized {
        /// The server's reason.
        message: String,
    },
    /// The credentials do not permit the request.
    #[error(
        "the API server denies the request (403): {message}; grant get, list and watch on services, endpointslices and nodes"
    )]
    Forbidden {
        /// The server's reason.
        message: String,
    },
    /// Another refusal.
    #[error("the API server answered {code}: {message}")]
    Status {
        /// The HTTP status, or the code of an ERROR event.
        code: u16,
        /// The server's reason.
        message: String,
    },
    /// The response is not what the API promises.
    #[error("the response cannot be understood: {what}")]
    Malformed {
        /// What is wrong.
        what: String,
    },
}

impl Fault {
    /// A refusal with this code.
    pub(crate) fn status(code: u16, message: String) -> Self {
        match code {
            401 => Self::Unauthorized { message },
            403 => Self::Forbidden { message },
            _ => Self::Status { code, message },
        }
    }

    /// A response that cannot be understood.
    pub(crate) fn malformed(what: &(impl ToString + ?Sized)) -> Self {
        Self::Malformed {
            what: what.to_string(),
        }
    }
}

/// The `Status` object of a refusal or of an ERROR event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) details: Option<Details>,
}

/// The part of a Status' details that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Details {
    retry_after_seconds: u64,
}

/// A refusal, by HTTP status or by an ERROR event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
    /// The server asks for this pause.
    pub(crate) retry_after: Option<Duration>,
    /// Whether it came as an event of a response with status 200.
    pub(crate) by_event: bool,
}

impl Refusal {
    /// The refusal of an ERROR event.
    pub(crate) fn of_event(status: Status) -> Self {
        let seconds = status
            .details
            .map_or(0, |details| details.retry_after_seconds);
        Self {
            code: status.code,
            message: status.message,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
            by_event: true,
        }
    }

    /// The refusal of a response with this status; the body is a Status, or text.
    pub(crate) fn of_response(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let message = match serde_json::from_slice::<Status>(body) {
            Ok(status) if !status.message.is_empty() => status.message,
            _ => String::from_utf8_lossy(body).trim().to_owned(),
        };
        Self {
            code,
            message: message.chars().take(TEXT_MAX).collect(),
            retry_after,
            by_event: false,
        }
    }
}

/// Adds a part of a refusal's body; what is too long is dropped.
pub(crate) fn append(body: &mut Vec<u8>, bytes: &[u8]) {
    let room = BODY_MAX.saturating_sub(body.len());
    body.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_plain_text_is_reported_as_it_is() {
        let text = b"Too many requests, please try again later.\n";
        let refusal = Refusal::of_response(429, Some(Duration::from_secs(1)), text);
        assert_eq!(
            refusal.message,
            "Too many requests, please try again later."
        );
        let status = br#"{"kind":"Status","message":"no","code":403}"#;
        assert_eq!(Refusal::of_response(403, None, status).message, "no");
    }

    #[test]
    fn a_long_body_is_cut() {
        let mut body = Vec::new();
        for _ in 0..3 {
            append(&mut body, &[b'x'; BODY_MAX]);
        }
        assert_eq!(body.len(), BODY_MAX);
        let refusal = Refusal::of_response(500, None, &body);
        assert_eq!(refusal.message.len(), TEXT_MAX);
    }
}
