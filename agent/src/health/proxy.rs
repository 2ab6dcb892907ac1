//! Health of this service proxy: healthy while it keeps up with changes (`/livez`), and eligible for traffic while its node
//! is not about to be removed (`/healthz`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{answer, server};

/// A change that is pending for longer means that the proxy is stuck; kube-proxy uses the same limit.
pub const PENDING_MAX: Duration = Duration::from_mins(1);

/// The taint of a node that the cluster autoscaler is about to remove.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The proxy's state, written by the node's loop and read by the servers.
#[derive(Debug)]
pub struct ProxyHealth {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Arrival of the oldest change that is not programmed yet.
    pending_since: Option<Instant>,
    last_updated: Timestamp,
    is_eligible: bool,
}

impl ProxyHealth {
    /// The state at start: healthy until a change is late, eligible until the Node object says otherwise.
    pub fn new() -> Self {
        let state = State {
            pending_since: None,
            last_updated: Timestamp::now(),
            is_eligible: true,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Records the arrival of a change.
    pub fn queued(&self, now: Instant) {
        self.state.lock().pending_since.get_or_insert(now);
    }

    /// Records that all changes are programmed.
    pub fn updated(&self) {
        let mut state = self.state.lock();
        state.pending_since = None;
        state.last_updated = Timestamp::now();
    }

    /// Sets whether the node may get new traffic; see [`is_eligible`].
    pub fn set_eligible(&self, is_eligible: bool) {
        self.state.lock().is_eligible = is_eligible;
    }

    /// Whether no change has been pending for [`PENDING_MAX`].
    pub fn is_healthy(&self, now: Instant) -> bool {
        self.state.lock().is_healthy(now)
    }
}

impl Default for ProxyHealth {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn is_healthy(&self, now: Instant) -> bool {
        let late = |since| now.saturating_duration_since(since) >= PENDING_MAX;
        !self.pending_since.is_some_and(late)
    }
}

/// Whether the node (`v1 Node`) may get new traffic: it is neither being deleted nor about to be removed by the cluster
/// autoscaler.
pub fn is_eligible(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints.into_iter().flatten();
    node.metadata.deletion_timestamp.is_none() && !taints.any(|taint| taint.key == TO_BE_DELETED)
}

/// Binds this address (kube-proxy's port is 10256). Returns the bound address, and the server of `/healthz` and `/livez`,
/// which runs until `shutdown`.
pub fn serve(
    address: SocketAddr,
    health: Arc<ProxyHealth>,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + 'static)> {
    let listener = server::listen(address)?;
    let bound = listener.local_addr()?;
    let respond = move |request: &Request<_>| respond(&health, request.uri().path());
    Ok((bound, server::answer(listener, respond, shutdown)))
}

fn respond(health: &ProxyHealth, path: &str) -> Response<Full<Bytes>> {
    let state = health.state.lock();
    let eligible = match path {
        "/healthz" => Some(state.is_eligible),
        "/livez" => None,
        _ => return answer::nothing(),
    };
    let is_healthy = state.is_healthy(Instant::now()) && eligible != Some(false);
    let now = Timestamp::now();
    // Always recent while healthy, even without changes: clients take an old time for a fault.
    let last_updated = if is_healthy { now } else { state.last_updated };
    answer::proxy(is_healthy, last_updated, now, eligible)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{NodeSpec, Taint};

    use super::*;

    #[test]
    fn the_proxy_is_unhealthy_while_a_change_is_late() {
        let (health, start) = (ProxyHealth::new(), Instant::now());
        assert!(health.is_healthy(start + 10 * PENDING_MAX));
        health.queued(start);
        health.queued(start + PENDING_MAX / 2);
        assert!(health.is_healthy(start + PENDING_MAX.saturating_sub(Duration::from_nanos(1))));
        assert!(!health.is_healthy(start + PENDING_MAX));
        health.updated();
        assert!(health.is_healthy(start + PENDING_MAX));
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        server::tests::get(address, path).await.unwrap()
    }

    #[tokio::test]
    async fn healthz_depends_on_the_node_and_livez_does_not() {
        let (health, shutdown) = (Arc::new(ProxyHealth::new()), CancellationToken::new());
        let any = "127.0.0.1:0".parse().unwrap();
        let (address, server) = serve(any, Arc::clone(&health), shutdown.clone()).unwrap();
        let server = tokio::spawn(server);
        let good = get(address, "/healthz").await;
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
        assert!(good.contains("{\"lastUpdated\": \"20"), "{good}");
        assert!(good.ends_with(", \"nodeEligible\": true}"), "{good}");
        health.set_eligible(false);
        let bad = get(address, "/healthz").await;
        assert!(bad.starts_with("HTTP/1.1 503 "), "{bad}");
        assert!(bad.ends_with(", \"nodeEligible\": false}"), "{bad}");
        let live = get(address, "/livez").await;
        assert!(live.starts_with("HTTP/1.1 200 OK\r\n"), "{live}");
        assert!(!live.contains("nodeEligible"), "{live}");
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
        shutdown.cancel();
        server.await.unwrap();
    }

    #[test]
    fn a_node_about_to_be_removed_is_not_eligible() {
        let mut node = Node::default();
        assert!(is_eligible(&node));
        let taint = Taint {
            key: TO_BE_DELETED.to_owned(),
            ..Taint::default()
        };
        node.spec = Some(NodeSpec {
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        });
        assert!(!is_eligible(&node));
    }
}
