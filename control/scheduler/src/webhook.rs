//! A ValidatingWebhook: kube-apiserver sends pods that are being created, so that they are in the queue before the watch
//! shows them.
//!
//! Each review is answered at once, and allowed. A pod is only announced by it: it is bound once the watch shows it.

mod review;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_trust::folder::FolderError;
use dormouse_trust::{CertificateFiles, FileCertificate};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, Reviewed};
use crate::source::Seen;
use review::review;

/// The path of the webhook's URL.
pub const PATH: &str = "/admit";
/// Longest body: kube-apiserver takes objects of at most 3 MiB, and a review has one of them.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Reviews that are being read; further ones are refused at once, and kube-apiserver goes on without the webhook.
const REVIEWS_MAX: usize = 64;
/// Open connections; further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 256;
/// Announced pods that the scheduler has not taken yet; further ones come by the watch alone.
const PODS_MAX: usize = 4_096;
/// Longest handshake, and longest time for a request's head.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of HTTP/2 pings: a client that does not answer them loses its connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Pause after an accept that failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The protocols that the server offers, in its order.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Files that make no TLS server.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// They cannot be used.
    #[error(transparent)]
    Files(#[from] FolderError),
    /// No TLS can be configured.
    #[error("TLS cannot be configured")]
    Parameters(#[from] rustls::Error),
}

/// A webhook that does not run yet.
#[derive(Debug)]
pub struct Webhook {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
}

/// What the connections share.
struct Shared {
    reviews: Semaphore,
    announced: mpsc::Sender<Arc<Pod>>,
    metrics: Metrics,
}

/// A request that is answered with an error.
type Refusal = (StatusCode, String);

impl Webhook {
    /// A webhook with the certificate of the files, which are read again when they change.
    pub fn new(listener: TcpListener, files: CertificateFiles) -> Result<Self, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let certificate = FileCertificate::load(files, Arc::clone(&provider))?;
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        tls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        let tls = Arc::new(tls);
        Ok(Self { listener, tls })
    }

    /// Serves until `shutdown`; pods go to the scheduler's source.
    pub(crate) fn start(
        self,
        seen: mpsc::Sender<Vec<Seen>>,
        metrics: Metrics,
        shutdown: &CancellationToken,
    ) {
        let (announced, pods) = mpsc::channel(PODS_MAX);
        let shared = Shared {
            reviews: Semaphore::new(REVIEWS_MAX),
            announced,
            metrics,
        };
        let serve = serve(self, Arc::new(shared), shutdown.clone());
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(serve));
        tokio::spawn(
            shutdown
                .clone()
                .run_until_cancelled_owned(forward(pods, seen)),
        );
    }
}

/// Forwards announced pods, as many at a time as there are.
async fn forward(mut pods: mpsc::Receiver<Arc<Pod>>, seen: mpsc::Sender<Vec<Seen>>) {
    let mut batch = Vec::new();
    while pods.recv_many(&mut batch, PODS_MAX).await > 0 {
        let batch = batch.drain(..).map(Seen::Announced).collect();
        if seen.send(batch).await.is_err() {
            return;
        }
    }
}

async fn serve(webhook: Webhook, shared: Arc<Shared>, shutdown: CancellationToken) {
    let tls = TlsAcceptor::from(webhook.tls);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Never an error: the semaphore is not closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match webhook.listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, tls.clone(), Arc::clone(&shared), slot);
                tokio::spawn(shutdown.clone().run_until_cancelled_owned(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "the webhook cannot accept a connection");
                time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Serves one connection; its client sees how it fails.
async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    _slot: OwnedSemaphorePermit,
) {
    let Ok(Ok(stream)) = time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(u32::try_from(REVIEWS_MAX).ok());
    let ended = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!(error, "a connection of the webhook ended");
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, media_type, body) = match shared.review(request).await {
        Ok(answer) => (StatusCode::OK, "application/json", answer),
        Err((status, reason)) => {
            shared.metrics.reviewed(Reviewed::refused);
            tracing::debug!(%status, reason, "a review was refused");
            (status, "text/plain", reason.into_bytes())
        }
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(response)
}

impl Shared {
    /// Announces the pod of a review; returns the answer, which allows it.
    async fn review(&self, request: Request<Incoming>) -> Result<Vec<u8>, Refusal> {
        check(&request)?;
        let busy = format!("{REVIEWS_MAX} reviews are being read");
        let reading = self.reviews.try_acquire();
        let _slot = reading.map_err(|_full| (StatusCode::SERVICE_UNAVAILABLE, busy))?;
        let body = read(request.into_body()).await?;
        let reviewed =
            review(&body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        let outcome = match reviewed
            .pod
            .map(|pod| self.announced.try_send(Arc::new(pod)))
        {
            None => Reviewed::ignored,
            Some(Ok(())) => Reviewed::announced,
            Some(Err(_full)) => Reviewed::dropped,
        };
        self.metrics.reviewed(outcome);
        Ok(reviewed.answer)
    }
}

/// Refuses what is no review by its head.
fn check(request: &Request<Incoming>) -> Result<(), Refusal> {
    let path = request.uri().path();
    if path != PATH {
        let reason = format!("there is no {path}: reviews are sent to {PATH}");
        return Err((StatusCode::NOT_FOUND, reason));
    }
    if request.method() != Method::POST {
        let reason = format!("{} is no method of {PATH}: use POST", request.method());
        return Err((StatusCode::METHOD_NOT_ALLOWED, reason));
    }
    let media_type = request.headers().get(CONTENT_TYPE);
    let is_json = media_type.is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !is_json {
        let reason = "a review is application/json".to_owned();
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    Ok(())
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let limited = Limited::new(body, BODY_BYTES_MAX).collect();
    let late = || {
        let reason = format!("no whole body within {BODY_TIMEOUT:?}");
        (StatusCode::REQUEST_TIMEOUT, reason)
    };
    let read = time::timeout(BODY_TIMEOUT, limited).await;
    match read.map_err(|_elapsed| late())? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let reason = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            Err((StatusCode::PAYLOAD_TOO_LARGE, reason))
        }
        Err(error) => Err((StatusCode::BAD_REQUEST, error.to_string())),
    }
}
