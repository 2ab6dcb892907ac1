//! The HTTP endpoints `/metrics` and `/healthz`.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use dormouse_activator::Handle;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The text format's media type (openmetrics.io).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `registry` until `shutdown`. With an activator in this process, `/healthz` is 503 and the reason while nodes must
/// not send connections to it.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    activator: Option<Handle>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
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
    let router = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(async move || health(activator.as_ref())));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
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
    use tokio::net::TcpStream;

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
        let served = serve(listener, Registry::default(), health, shutdown.clone());
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
}
