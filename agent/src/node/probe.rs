//! Probes of the activators, for [`dormouse_fleet::Stale`]. An answer is a hint, which only keeps the node from using its last entries alone: a host on
//! the path can suppress it, and one that could forge it would send connections to an activator that does not answer. So over TLS each server of the
//! cluster's authority is believed, also after its certificate has expired: the control plane, which would renew it, is away.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::activators::Endpoint;

/// A probe of all activators in progress; dropping it ends it.
#[derive(Debug)]
pub struct Probe {
    task: JoinHandle<bool>,
}

impl Probe {
    /// Begins a probe after `wait`.
    pub(super) fn begin(
        activators: Vec<Endpoint>,
        tls: Option<Arc<ClientConfig>>,
        (wait, timeout): (Duration, Duration),
    ) -> Self {
        let task = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            one_answers(activators, tls, timeout).await
        });
        Self { task }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Resolves with the result of a probe. Cancel safe.
pub(super) async fn probed(probe: &mut Option<Probe>) -> bool {
    match probe {
        Some(probe) => (&mut probe.task).await.unwrap_or(false),
        None => std::future::pending().await,
    }
}

/// Whether one of the endpoints answers within `timeout`.
async fn one_answers(
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
) -> bool {
    let mut attempts = JoinSet::new();
    for endpoint in endpoints {
        attempts.spawn(tokio::time::timeout(
            timeout,
            answers(endpoint, tls.clone()),
        ));
    }
    while let Some(attempt) = attempts.join_next().await {
        if matches!(attempt, Ok(Ok(Ok(true)))) {
            return true;
        }
    }
    false
}

/// Whether an endpoint answers that its activator serves.
async fn answers(endpoint: Endpoint, tls: Option<Arc<ClientConfig>>) -> io::Result<bool> {
    let stream = TcpStream::connect(endpoint.address).await?;
    if !endpoint.is_secured {
        return is_healthy(stream).await;
    }
    // A node that has not joined cannot verify an answer.
    let tls = TlsConnector::from(tls.ok_or(io::ErrorKind::Unsupported)?);
    let name = ServerName::from(endpoint.address.ip());
    is_healthy(tls.connect(name, stream).await?).await
}

/// Whether `/healthz` is 200. A connection alone is no answer: a process that starts listens before it serves.
async fn is_healthy(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<bool> {
    let request = b"GET /healthz HTTP/1.1\r\nhost: activator\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use dormouse_fleet::Incoming;
    use dormouse_trust::client::probing;
    use dormouse_trust::{Authority, Clients, Current, Identity, Validity, server};
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::pki_types::CertificateDer;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn listener() -> TcpListener {
        TcpListener::bind("[::1]:0").await.unwrap()
    }

    fn plain(listener: &TcpListener) -> Endpoint {
        listener.local_addr().unwrap().to_string().parse().unwrap()
    }

    #[tokio::test]
    async fn an_endpoint_answers_when_it_is_ready_and_not_when_it_starts_only_listens_or_is_closed()
    {
        let serving = listener().await;
        let served = plain(&serving);
        let silent = listener().await;
        let listens = plain(&silent);
        let closed = plain(&listener().await);
        let unready = listener().await;
        let starts = plain(&unready);
        tokio::spawn(respond(serving, b"HTTP/1.1 200 OK\r\n\r\n"));
        let respond_unready = respond(unready, b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
        tokio::spawn(respond_unready);
        assert!(one_answers(vec![closed, listens, served], None, SECOND).await);
        assert!(!one_answers(vec![closed, listens, starts], None, SECOND / 10).await);
    }

    /// An activator whose certificate was valid an hour ago, and its authority's.
    async fn expired() -> (Endpoint, CertificateDer<'static>) {
        let hour = Duration::from_hours(1);
        let long_ago = SystemTime::now() - 3 * hour;
        let authority = Authority::create(long_ago).unwrap();
        let validity = Validity::issued(long_ago, 2 * hour, None);
        let up = Identity::control("up").unwrap();
        let issued = authority.server(&up, &["::1".to_owned()], validity);
        let issued = Current::new(issued.unwrap()).unwrap();
        let authorities = [authority.certificate().clone()];
        let tls = server::config(issued, &authorities, Clients::Requested).unwrap();
        let mut incoming = Incoming::new(listener().await, 10).secured(tls);
        let endpoint = incoming.url().unwrap().parse().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = incoming.accept().await;
                // A client of another authority ends its connection.
                if stream.read(&mut [0; 200]).await.is_ok() {
                    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            }
        });
        (endpoint, authority.certificate().clone())
    }

    #[tokio::test]
    async fn an_activator_with_an_expired_certificate_answers_and_one_of_another_authority_does_not()
     {
        let (endpoint, own) = expired().await;
        let foreign = Authority::create(SystemTime::now()).unwrap();
        let tls = |authority| Some(probing(&[authority]).unwrap());
        assert!(answers(endpoint, tls(own)).await.unwrap());
        let forged = answers(endpoint, tls(foreign.certificate().clone())).await;
        assert!(forged.is_err(), "{forged:?}");
        assert!(answers(endpoint, None).await.is_err());
    }

    async fn respond(listener: TcpListener, answer: &[u8]) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(answer).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }
}
