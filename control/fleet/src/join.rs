//! Joining: a process sends the request for a certificate of its key with a token, and renews it with the certificate that it has. The
//! server decides nothing: its [`Registrar`] does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_trust::authority::{self, AuthorityError};
use dormouse_trust::credentials::CredentialsError;
use dormouse_trust::server::TlsError;
use dormouse_trust::{Client, Credentials, Current, JoinLine, Token, client};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::client::{LinkError, Target, connect};
use crate::connection::Access;
use crate::incoming::Incoming;
use crate::join_proto::join_client::JoinClient;
use crate::join_proto::join_server::{Join, JoinServer};
use crate::join_proto::{SignRequest, Signed};
use crate::server::peer;
use crate::transport::Callers;

/// Longest time of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// Most bytes of a call's message: a token, a name, and a request for a certificate of one key.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// What a client asks for.
#[derive(Debug)]
pub struct Asked {
    /// Its token; none: it renews its certificate.
    pub token: Option<Token>,
    /// The name that it has as a node; empty: it is none.
    pub node: String,
    /// PKCS#10, in DER.
    pub request: Vec<u8>,
    /// The certificate that it has shown.
    pub client: Option<Arc<Client>>,
    /// Its address.
    pub from: Option<IpAddr>,
}

/// Decides who gets which certificate.
pub trait Registrar: Send + Sync + 'static {
    /// Signs a request, or refuses it.
    fn sign(&self, asked: Asked) -> impl Future<Output = Result<Signed, Status>> + Send;
}

struct Service<R>(R);

#[tonic::async_trait]
impl<R: Registrar> Join for Service<R> {
    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<Signed>, Status> {
        let peer = peer(&request);
        let SignRequest {
            token,
            node,
            request,
        } = request.into_inner();
        let token = match token.as_str() {
            "" => None,
            text => Some(
                text.parse()
                    .map_err(|error: dormouse_trust::token::TokenError| {
                        Status::invalid_argument(error.to_string())
                    })?,
            ),
        };
        let asked = Asked {
            token,
            node,
            request,
            client: match peer.access {
                Access::Certificate(client) => Some(client),
                _ => None,
            },
            from: peer.address.map(|address| address.ip()),
        };
        self.0.sign(asked).await.map(Response::new)
    }
}

/// Serves joining processes until `shutdown`.
pub async fn serve(
    incoming: Incoming,
    registrar: impl Registrar,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let service = JoinServer::new(Service(registrar)).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Callers::Joining
        .server()
        // Also of a call whose message does not come.
        .timeout(TIMEOUT)
        // A process joins with one call. Idle connections would use up the listener's limit.
        .max_connection_age(CONNECTION_MAX)
        .max_connection_age_grace(TIMEOUT)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming.connections(), shutdown.cancelled_owned())
        .await
}

/// Errors of joining.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Control cannot be reached, or refuses.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The key and its request cannot be made.
    #[error("failed to make a key")]
    Key(#[from] AuthorityError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What control has signed cannot be used.
    #[error("control sent a certificate that cannot be used")]
    Signed(#[from] CredentialsError),
}

/// A process that has joined.
#[derive(Debug)]
pub struct Joined {
    /// Its certificate and key.
    pub credentials: Credentials,
    /// The authorities of the cluster.
    pub authorities: Vec<CertificateDer<'static>>,
    /// URL of the fleet stream.
    pub control: String,
}

/// Joins as a node of this name, or, if it is empty, as what the token names.
pub async fn join(line: &JoinLine, node: &str) -> Result<Joined, JoinError> {
    let url = format!("https://{}", line.address);
    let target = Target::secured(&url, client::joining(line.authority)?)?;
    let token = line.token.reveal();
    sign(target, token.as_str(), node).await
}

/// Renews a certificate with a new key, at the address of joins.
pub async fn renew(
    url: &str,
    authorities: &[CertificateDer<'static>],
    current: Arc<Current>,
    node: &str,
) -> Result<Joined, JoinError> {
    let config = client::config(authorities, Some(current))?;
    sign(Target::secured(url, config)?, "", node).await
}

async fn sign(target: Target, token: &str, node: &str) -> Result<Joined, JoinError> {
    let (key, request) = authority::request()?;
    let channel = connect(target.clone()).await?;
    let asked = SignRequest {
        token: token.to_owned(),
        node: node.to_owned(),
        request,
    };
    let mut asked = Request::new(asked);
    asked.set_timeout(TIMEOUT);
    let signed = JoinClient::new(channel).sign(asked).await;
    let signed = signed.map_err(|status| target.explained(status.into()));
    let signed = signed?.into_inner();
    let certificates = |list: Vec<Vec<u8>>| list.into_iter().map(CertificateDer::from).collect();
    Ok(Joined {
        credentials: Credentials::new(certificates(signed.chain), &key)?,
        authorities: certificates(signed.authorities),
        control: signed.control,
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::*;

    struct Nobody;

    impl Registrar for Nobody {
        async fn sign(&self, _asked: Asked) -> Result<Signed, Status> {
            Err(Status::permission_denied("nobody joins"))
        }
    }

    #[tokio::test]
    async fn a_larger_message_than_any_join_needs_is_refused_before_it_is_decoded() {
        let incoming = Incoming::from(TcpListener::bind("[::1]:0").await.unwrap());
        let url = incoming.url().unwrap();
        tokio::spawn(serve(incoming, Nobody, CancellationToken::new()));
        let mut client = JoinClient::connect(url).await.unwrap();
        let mut code = async |bytes| {
            let request = SignRequest {
                request: vec![0; bytes],
                ..SignRequest::default()
            };
            client.sign(request).await.unwrap_err().code()
        };
        assert_eq!(code(MESSAGE_BYTES_MAX / 2).await, Code::PermissionDenied);
        assert_eq!(code(MESSAGE_BYTES_MAX).await, Code::OutOfRange);
    }
}
