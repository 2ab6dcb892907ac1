//! One followed kind: sends the follower's requests, passes on what it finds out, and waits between failures.

use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_follow::{Ended, Event, Fault, Follower, Head, Request};
use dormouse_fleet::client::{Backoff, jitter};
use http_body_util::BodyExt;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, RETRY_AFTER};
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{info, warn};

use super::access::{Servers, describe};
use super::state::KubernetesState;
use crate::source::object::{Change, Key, Kind, Object};

/// Maximum wait for a response, and between the parts of one that does not last. The server ends requests after a minute.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// A watch lasts between this time and twice as long; then the server is checked. Spread, so that the nodes of a cluster do
/// not ask at the same time.
const WATCH_MIN: Duration = Duration::from_mins(5);

/// What a follower passes on.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) changes: Vec<Change>,
    /// All objects of this kind were passed on.
    pub(super) listed: Option<Kind>,
}

/// A kind that is followed.
pub(super) trait Followed:
    DeserializeOwned + Metadata<Ty = ObjectMeta> + Into<Object> + Send + 'static
{
    const OF: Kind;
}

impl Followed for Node {
    const OF: Kind = Kind::Node;
}

impl Followed for Service {
    const OF: Kind = Kind::Service;
}

impl Followed for EndpointSlice {
    const OF: Kind = Kind::EndpointSlice;
}

/// Why the exchange of a request failed without an answer.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error("{}", describe(.0))]
    Send(#[from] kube::Error),
    #[error("no answer within {} s", SILENCE_MAX.as_secs())]
    Silent,
}

/// One followed kind.
struct Following<T> {
    follower: Follower<T>,
    servers: Servers,
    state: Arc<KubernetesState>,
    sender: mpsc::Sender<Message>,
    backoff: Backoff,
    /// The last problem that was logged: each is logged once, until the server answers again.
    logged: Option<String>,
}

/// Follows one kind until all messages are dropped.
pub(super) async fn run<T: Followed>(
    follower: Follower<T>,
    servers: Servers,
    state: Arc<KubernetesState>,
    sender: mpsc::Sender<Message>,
) {
    let mut following = Following {
        follower,
        servers,
        state,
        sender,
        backoff: Backoff::new(),
        logged: None,
    };
    while !following.sender.is_closed() {
        let pause = following.turn().await;
        tokio::time::sleep(pause).await;
    }
}

impl<T: Followed> Following<T> {
    /// One request. Returns the pause before the next one.
    async fn turn(&mut self) -> Duration {
        let (client, server) = match self.servers.client().await {
            Ok(client) => client,
            Err(error) => {
                let text = describe(&error);
                self.failed(&text, "");
                self.servers.turn();
                return self.backoff.next(jitter());
            }
        };
        let request = self.follower.request(WATCH_MIN.mul_f64(1.0 + jitter()));
        if let Some(reason) = request.relist {
            self.state.listed(T::OF, reason);
            info!(kind = T::OF.name(), %reason, server, "listing");
        }
        let exchanged = self.exchange(&client, &request).await;
        let mut message = Message::default();
        let whole = matches!(exchanged, Ok(true));
        let ended = self
            .follower
            .end(whole, &mut |event| take(event, &mut message));
        self.send(message).await;
        match exchanged {
            Ok(_) => self.ended(&ended, &server),
            Err(error) => {
                self.failed(&error.to_string(), &server);
                self.servers.turn();
            }
        }
        if ended.progress {
            self.backoff = Backoff::new();
        }
        let pause = self.backoff.next(jitter());
        pause.max(ended.retry_after.unwrap_or_default())
    }

    /// Sends a request and receives its response. Returns whether the response is complete.
    async fn exchange(
        &mut self,
        client: &Client,
        request: &Request,
    ) -> Result<bool, ExchangeError> {
        let get = hyper::Request::get(&request.target)
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "gzip")
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        let response = timeout(SILENCE_MAX, client.send(get)).await;
        let (head, mut body) = response
            .map_err(|_elapsed| ExchangeError::Silent)??
            .into_parts();
        let head = response_head(head.status.as_u16(), &head.headers);
        if head.status == 200 {
            self.state.connected(T::OF, true);
        }
        self.follower.head(head);
        let silence = request.lasts.unwrap_or_default() + SILENCE_MAX;
        loop {
            let frame = match timeout(silence, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(true),
                // It broke off: the follower continues where it ended, so the cause does not matter.
                Ok(Some(Err(_))) | Err(_) => return Ok(false),
            };
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            self.state.received(T::OF);
            let mut message = Message::default();
            let goes_on = self
                .follower
                .body(bytes, &mut |event| take(event, &mut message));
            self.send(message).await;
            if !goes_on {
                return Ok(false);
            }
        }
    }

    async fn send(&mut self, message: Message) {
        if message.changes.is_empty() && message.listed.is_none() {
            return;
        }
        // The receiver is dropped only when the agent stops.
        let _ = self.sender.send(message).await;
    }

    /// Draws the conclusions from the end of a response.
    fn ended(&mut self, ended: &Ended, server: &str) {
        let Some(fault) = &ended.fault else {
            if ended.progress && self.logged.take().is_some() {
                info!(kind = T::OF.name(), server, "the API server answers again");
            }
            return;
        };
        self.failed(&fault.to_string(), server);
        match fault {
            Fault::Unauthorized { .. } => self.servers.renew(),
            Fault::Status { code: 500.., .. } => self.servers.turn(),
            _ => {}
        }
    }

    fn failed(&mut self, problem: &str, server: &str) {
        self.state.connected(T::OF, false);
        if self.logged.as_deref() != Some(problem) {
            let kind = T::OF.name();
            warn!(
                kind,
                server, problem, "cannot be followed; what is programmed stays"
            );
            self.logged = Some(problem.to_owned());
        }
    }
}

fn response_head(status: u16, headers: &HeaderMap) -> Head {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = text(RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
    Head {
        status,
        gzip: text(CONTENT_ENCODING) == Some("gzip"),
        retry_after: seconds.map(Duration::from_secs),
    }
}

/// Adds an event to a message.
fn take<T: Followed>(event: Event<T>, message: &mut Message) {
    match event {
        Event::Applied(mut object) => {
            // The largest part of many objects, and not used.
            object.metadata_mut().managed_fields = None;
            object.metadata_mut().annotations = None;
            message.changes.push(Change::Applied(object.into()));
        }
        Event::Deleted(key) => {
            let key = Key {
                kind: T::OF,
                namespace: key.namespace.into(),
                name: key.name.into(),
            };
            message.changes.push(Change::Deleted(key.object()));
        }
        Event::Listed { objects } => {
            info!(kind = T::OF.name(), objects, "listed");
            message.listed = Some(T::OF);
        }
        Event::Unreadable { key, what } => {
            let (kind, namespace, name) = (T::OF.name(), key.namespace, key.name);
            warn!(kind, %namespace, %name, what, "an object cannot be parsed; its previous state stays");
        }
    }
}
