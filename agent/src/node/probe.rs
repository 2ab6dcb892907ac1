//! Probes of the activators, for [`dormouse_fleet::Stale`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// A probe of all activators in progress; dropping it ends it.
#[derive(Debug)]
pub struct Probe {
    task: JoinHandle<bool>,
}

impl Probe {
    /// Begins a probe after `wait`.
    pub(super) fn begin(activators: Vec<SocketAddr>, wait: Duration, timeout: Duration) -> Self {
        let task = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            one_answers(activators, timeout).await
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
async fn one_answers(endpoints: Vec<SocketAddr>, timeout: Duration) -> bool {
    let mut attempts = JoinSet::new();
    for endpoint in endpoints {
        attempts.spawn(tokio::time::timeout(timeout, answers(endpoint)));
    }
    while let Some(attempt) = attempts.join_next().await {
        if matches!(attempt, Ok(Ok(Ok(true)))) {
            return true;
        }
    }
    false
}

/// Whether `/healthz` is 200. A connection alone is no answer: a process that starts listens before it serves.
async fn answers(endpoint: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(endpoint).await?;
    let request = b"GET /healthz HTTP/1.1\r\nhost: activator\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn an_endpoint_answers_when_it_is_ready_and_not_when_it_starts_only_listens_or_is_closed()
    {
        let listener = || tokio::net::TcpListener::bind("[::1]:0");
        let serving = listener().await.unwrap();
        let served = serving.local_addr().unwrap();
        let silent = listener().await.unwrap();
        let listens = silent.local_addr().unwrap();
        let closed = listener().await.unwrap().local_addr().unwrap();
        let unready = listener().await.unwrap();
        let starts = unready.local_addr().unwrap();
        tokio::spawn(respond(serving, b"HTTP/1.1 200 OK\r\n\r\n"));
        let respond_unready = respond(unready, b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
        tokio::spawn(respond_unready);
        assert!(one_answers(vec![closed, listens, served], SECOND).await);
        assert!(!one_answers(vec![closed, listens, starts], SECOND / 10).await);
    }

    async fn respond(listener: tokio::net::TcpListener, answer: &[u8]) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(answer).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }
}
