//! The HTTP endpoints `/metrics` and `/healthz`. Health needs no identity; the metrics are for those whom the policy of the cluster names, or, in a
//! role of its own, which has no policy, for administrators and the roles of the control plane.

use std::sync::Arc;
use std::time::SystemTime;

use axum::{
    Router,
    extract::{ConnectInfo, Request},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use dormouse_activator::Handle;
use dormouse_fleet::{Access, Incoming, Peer, http};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio_util::sync::CancellationToken;

/// Open connections to a port of metrics, of the descriptors that are reserved; further ones wait. Without the control plane, each node probes the
/// health of an activator once a second, with a connection that is open for milliseconds.
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// The text format's media type (openmetrics.io).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics` as given, and `/healthz`, until `shutdown`. With an activator in this process, health is 503 and the reason while nodes must
/// not send connections to it.
pub async fn serve(
    incoming: Incoming,
    metrics: Router,
    activator: Option<Handle>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let health = get(async move || health(activator.as_ref()));
    let router = Router::new().route("/healthz", health).merge(metrics);
    http::serve(incoming, router, shutdown).await
}

/// `/metrics` for every client.
pub fn page(registry: Registry) -> Router {
    let registry = Arc::new(registry);
    let page = move || {
        let mut text = String::new();
        let written = encode(&mut text, &registry);
        async move {
            match written {
                Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
                Err(error) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
                }
            }
        }
    };
    Router::new().route("/metrics", get(page))
}

/// `/metrics` of a role in a process of its own.
pub(crate) fn of_role(registry: Registry) -> Router {
    page(registry).route_layer(from_fn(admit))
}

async fn admit(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    if may_read(&peer, SystemTime::now()) {
        return next.run(request).await;
    }
    let reason = "the metrics are for administrators and roles of the control plane, by their certificates; without TLS, for clients on this host";
    (StatusCode::FORBIDDEN, reason).into_response()
}

/// Whether a client may read the metrics of a role.
fn may_read(peer: &Peer, now: SystemTime) -> bool {
    let is_here = |address: std::net::SocketAddr| address.ip().to_canonical().is_loopback();
    match &peer.access {
        Access::Trusted => peer.address.is_some_and(is_here),
        access => access.administers(now),
    }
}

fn health(activator: Option<&Handle>) -> (StatusCode, &'static str) {
    match activator.and_then(Handle::unready) {
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        None => (StatusCode::OK, "ok"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use dormouse_activator::{Config, link};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn healthz(address: SocketAddr) -> String {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: up\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn the_process_is_healthy_when_its_activator_listens_and_has_all_routes_until_it_drains()
    {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let (activator, reports) =
            dormouse_activator::new(Config::new("2001:db8:a1::".parse().unwrap()));
        let health = Some(activator.clone());
        let pages = page(Registry::default());
        let served = serve(listener.into(), pages, health, shutdown.clone());
        tokio::spawn(served);
        assert!(healthz(address).await.starts_with("HTTP/1.1 503"));

        let (hub, _events) = link::start(1);
        let attachment = link::Attachment::new(activator.clone(), reports, "up".to_owned());
        tokio::spawn(attachment.follow(hub.clone(), shutdown.clone()));
        let free = TcpListener::bind("[::1]:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        hub.ports(BTreeSet::from([port]));
        let unready = healthz(address).await;
        assert!(unready.contains("503") && unready.contains("not got all routes"));

        hub.complete();
        activator.ready().await;
        assert!(healthz(address).await.starts_with("HTTP/1.1 200"));
        TcpStream::connect(("::1", port)).await.unwrap();

        shutdown.cancel();
        let drained = CancellationToken::new();
        drained.cancel();
        dormouse_activator::run(activator.clone(), drained).await;
        assert_eq!(health_status(&activator), StatusCode::SERVICE_UNAVAILABLE);
    }

    fn health_status(activator: &Handle) -> StatusCode {
        health(Some(activator)).0
    }

    #[test]
    fn without_tls_the_metrics_of_a_role_are_for_its_host() {
        let peer = |address: &str, access| Peer {
            address: Some(address.parse().unwrap()),
            access,
            ..Peer::default()
        };
        let now = SystemTime::now();
        for here in ["[::1]:1", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
            assert!(may_read(&peer(here, Access::Trusted), now), "{here}");
            assert!(!may_read(&peer(here, Access::Anonymous), now), "{here}");
        }
        assert!(!may_read(&peer("[2001:db8::1]:1", Access::Trusted), now));
        assert!(!may_read(&Peer::default(), now));
    }
}
