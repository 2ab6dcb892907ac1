//! The webhook's client: reviews over TLS, by the authority of the tests.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::cluster::{World, fixture};

/// A connection.
pub(crate) struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
    /// The certificate that the server has shown.
    pub(crate) certificate: CertificateDer<'static>,
}

/// The review of a pod's creation, with more fields of the request.
pub(crate) fn review(pod: &Value, more: &Value) -> Value {
    let mut request = json!({"uid": "r", "operation": "CREATE", "namespace": "default", "object": pod,
        "resource": {"group": "", "version": "v1", "resource": "pods"}});
    for (field, value) in more.as_object().unwrap() {
        request[field] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn tls() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(fixture("ca.pem")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots);
    TlsConnector::from(Arc::new(config.with_no_client_auth()))
}

impl Client {
    pub(crate) async fn connect(world: &World) -> Self {
        let stream = TcpStream::connect(("::1", world.port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = tls().connect(name, stream).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap();
        let certificate = shown[0].clone().into_owned();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self {
            sender,
            certificate,
        }
    }

    /// Sends a review, which is allowed.
    pub(crate) async fn allowed(&mut self, review: &Value) {
        let (status, text) = self.send(review.to_string().into()).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["response"], json!({"uid": "r", "allowed": true}));
    }

    /// Sends a body; returns the status and the text of the answer.
    pub(crate) async fn send(&mut self, body: Bytes) -> (StatusCode, String) {
        let request =
            Request::post("https://localhost/admit").header("content-type", "application/json");
        self.request(request.body(Full::new(body)).unwrap()).await
    }

    pub(crate) async fn request(&mut self, request: Request<Full<Bytes>>) -> (StatusCode, String) {
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}
