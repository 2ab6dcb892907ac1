//! The end of responses that take long, when their request would be refused now: a token was deleted or has expired, or a node was revoked.

use std::future::pending;
use std::time::{Duration, SystemTime};

use axum::{body::Body, response::Response};
use futures::StreamExt;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::sleep;

/// Ended credentials that a response has not compared with its own yet. With more, it ends: its client requests again, and is checked.
const ENDED_MAX: usize = 64;
/// Longest pause between looks at the clock: it may be set.
const LOOK: Duration = Duration::from_mins(1);

/// What a request has shown that can end before its response does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::api) enum Credential {
    /// The token of a user.
    Token {
        /// Its id.
        id: String,
        /// When it expires.
        expires: SystemTime,
    },
    /// The certificate of a node.
    Node(String),
}

/// The id of a token, or the name of a node.
#[derive(Clone, Debug)]
enum Ended {
    Token(String),
    Node(String),
}

/// Ends responses.
#[derive(Clone, Debug)]
pub(in crate::api) struct Ends(broadcast::Sender<Ended>);

/// The ends after the request has begun.
pub(super) struct Watched(broadcast::Receiver<Ended>);

impl Default for Ends {
    fn default() -> Self {
        Self(broadcast::channel(ENDED_MAX).0)
    }
}

impl Ends {
    /// Ends the responses to a token that was deleted.
    pub(in crate::api) fn end_token(&self, id: &str) {
        self.end(Ended::Token(id.to_owned()));
    }

    /// Ends the responses to a node that was revoked.
    pub(in crate::api) fn end_node(&self, name: &str) {
        self.end(Ended::Node(name.to_owned()));
    }

    fn end(&self, ended: Ended) {
        // An error: there is no response that takes long.
        drop(self.0.send(ended));
    }

    /// To be called before the credential of a request is checked: it may end while it is.
    pub(super) fn watch(&self) -> Watched {
        Watched(self.0.subscribe())
    }
}

impl Watched {
    /// The response, which ends with its credential.
    pub(super) fn limit(self, response: Response, credential: Credential) -> Response {
        let end = Box::pin(self.ended(credential));
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(end)))
    }

    async fn ended(mut self, credential: Credential) {
        let told = async {
            loop {
                match self.0.recv().await {
                    Ok(ended) if credential.is(&ended) => return,
                    Ok(_other) => {}
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => pending().await,
                }
            }
        };
        tokio::select! {
            () = told => {}
            () = credential.expired() => {}
        }
    }
}

impl Credential {
    fn is(&self, ended: &Ended) -> bool {
        match (self, ended) {
            (Self::Token { id, .. }, Ended::Token(ended)) => id == ended,
            (Self::Node(name), Ended::Node(ended)) => name == ended,
            _ => false,
        }
    }

    async fn expired(&self) {
        // A node's certificate is renewed while its watches are open.
        let Self::Token { expires, .. } = self else {
            return pending().await;
        };
        while let Ok(rest) = expires.duration_since(SystemTime::now()) {
            sleep(rest.clamp(Duration::from_millis(1), LOOK)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn token(id: &str, life: Duration) -> Credential {
        Credential::Token {
            id: id.to_owned(),
            expires: SystemTime::now() + life,
        }
    }

    #[tokio::test]
    async fn a_response_ends_with_its_own_credential_and_no_other() {
        let ends = Ends::default();
        let hour = Duration::from_hours(1);
        let open = |credential| Box::pin(ends.watch().ended(credential));
        let mut a = open(token("a", hour));
        let mut node = open(Credential::Node("a".to_owned()));
        ends.end_token("b");
        ends.end_node("b");
        assert!(a.as_mut().now_or_never().is_none());
        assert!(node.as_mut().now_or_never().is_none());
        ends.end_token("a");
        assert!(a.now_or_never().is_some());
        assert!(node.as_mut().now_or_never().is_none());
        ends.end_node("a");
        assert!(node.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_response_that_missed_ends_is_ended_and_a_token_ends_with_its_time() {
        let ends = Ends::default();
        let missed = ends.watch().ended(token("a", Duration::from_hours(1)));
        for number in 0..=ENDED_MAX {
            ends.end_token(&number.to_string());
        }
        assert!(missed.now_or_never().is_some());
        let short = ends.watch().ended(token("a", Duration::from_millis(20)));
        short.await;
    }
}
