//! Requests to the API of `dormouse up`, over connections that are opened once.

use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use dormouse_world::Host;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::objects;

/// Connections: enough that none of the API's threads waits for the load.
const CONNECTIONS: usize = 32;

/// Open connections to the API.
pub(crate) struct Api {
    connections: Vec<Arc<Mutex<SendRequest<Full<Bytes>>>>>,
    next: AtomicU32,
}

impl Api {
    /// Connects from a host.
    pub(crate) async fn connect(host: &Host, api: SocketAddr) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = host.enter(|| StdStream::connect(api))??;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let stream = TokioIo::new(TcpStream::from_std(stream)?);
            let (sender, connection) = handshake(stream).await?;
            tokio::spawn(connection);
            connections.push(Arc::new(Mutex::new(sender)));
        }
        Ok(Self {
            connections,
            next: AtomicU32::new(0),
        })
    }

    /// Creates the objects of Services with these numbers.
    pub(crate) async fn create(&self, services: u32, endpoints: u32) -> Result<()> {
        let next = &AtomicU32::new(0);
        let workers = self.connections.iter().map(|connection| async move {
            let mut connection = connection.lock().await;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= services {
                    return anyhow::Ok(());
                }
                let (service, slice) =
                    (objects::service(number), objects::slice(number, endpoints));
                for (path, object) in [(objects::services(), service), (objects::slices(), slice)] {
                    let sent = send(&mut connection, (Method::POST, JSON), &path, &object);
                    sent.await?;
                }
            }
        });
        try_join_all(workers).await.map(drop)
    }

    /// Replaces the first endpoint of a Service by that of another turn.
    pub(crate) async fn change(&self, service: u32, endpoints: u32, turn: u32) -> Result<()> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) as usize % self.connections.len();
        let change = objects::patch(service, endpoints, turn);
        let mut connection = self.connections[place].lock().await;
        let slice = objects::slice_path(service);
        send(
            &mut connection,
            (Method::PATCH, MERGE_PATCH),
            &slice,
            &change,
        )
        .await
    }
}

/// Media types of bodies.
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Sends a request, and fails unless it succeeds.
async fn send(
    connection: &mut SendRequest<Full<Bytes>>,
    (method, media): (Method, &str),
    path: &str,
    object: &Value,
) -> Result<()> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, media)
        .body(Full::from(object.to_string()))?;
    connection.ready().await?;
    let response = connection.send_request(request).await;
    let response = response.with_context(|| format!("the API did not answer for {path}"))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    ensure!(status.is_success(), "{path}: {status}: {text}");
    Ok(())
}
