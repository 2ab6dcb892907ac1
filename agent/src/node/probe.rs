//! Probes of the activators, for [`dormouse_fleet::Stale`].

use std::net::SocketAddr;
use std::time::Duration;

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

/// Whether one of the endpoints accepts a connection within `timeout`.
async fn one_answers(endpoints: Vec<SocketAddr>, timeout: Duration) -> bool {
    let mut attempts = JoinSet::new();
    for endpoint in endpoints {
        attempts.spawn(tokio::time::timeout(timeout, TcpStream::connect(endpoint)));
    }
    while let Some(attempt) = attempts.join_next().await {
        if matches!(attempt, Ok(Ok(Ok(_)))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_listening_endpoint_answers_and_a_closed_one_does_not() {
        let listener = tokio::net::TcpListener::bind("[::1]:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = {
            let other = tokio::net::TcpListener::bind("[::1]:0").await.unwrap();
            other.local_addr().unwrap()
        };
        assert!(one_answers(vec![closed, open], SECOND).await);
        assert!(!one_answers(vec![closed], SECOND).await);
    }
}
