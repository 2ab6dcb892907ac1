//! Readiness probes: frequent at first, so that a wake waits for the app and not for its next probe.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::spec::Check;

/// Pauses between two probes of a starting pod: the first ones, and those of pods that start slowly.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// A starting pod is probed again after this part of the time that it has taken so far: the probes add little to any start, and their
/// number grows with its logarithm.
const PAUSE_PART: u32 = 8;
/// Timeout of a probe.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of failures in a row that make a ready pod unready, as in Kubernetes.
const FAILURES_MAX: u32 = 3;

/// Resolves when the pod is ready. Cancel safe.
pub(super) async fn ready(check: &Check, address: Ipv6Addr) {
    let began = Instant::now();
    while !answers(check, address).await {
        let pause = began.elapsed() / PAUSE_PART;
        tokio::time::sleep(pause.clamp(PAUSES.0, PAUSES.1)).await;
    }
}

/// Resolves when a ready pod is no longer ready. Cancel safe.
pub(super) async fn unready(check: &Check, address: Ipv6Addr, period: Duration) {
    let mut failures = 0;
    while failures < FAILURES_MAX {
        tokio::time::sleep(period).await;
        failures = if answers(check, address).await {
            0
        } else {
            failures + 1
        };
    }
}

async fn answers(check: &Check, address: Ipv6Addr) -> bool {
    let (port, path) = match check {
        Check::None => return true,
        Check::Connect(port) => (*port, None),
        Check::Get { port, path } => (*port, Some(path)),
    };
    let socket = SocketAddrV6::new(address, port, 0, 0);
    let tried = timeout(TRY_TIMEOUT, async {
        let mut stream = TcpStream::connect(socket).await.ok()?;
        let Some(path) = path else { return Some(true) };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: [{address}]:{port}\r\nUser-Agent: dormouse-probe\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.ok()?;
        Some(is_success(&start))
    });
    matches!(tried.await, Ok(Some(true)))
}

/// Whether a response begins like `HTTP/1.1 200`, with a status of 200 to 399.
fn is_success(start: &[u8; 12]) -> bool {
    start.starts_with(b"HTTP/1.") && matches!(start[9], b'2' | b'3')
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_status_200_to_399_is_ready() {
        assert!(is_success(b"HTTP/1.1 200"));
        assert!(is_success(b"HTTP/1.0 302"));
        assert!(!is_success(b"HTTP/1.1 503"));
        assert!(!is_success(b"SSH-2.0-Open"));
    }

    #[tokio::test]
    async fn a_pod_becomes_ready_when_its_port_is_opened() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let check = Check::Connect(listener.local_addr().unwrap().port());
        timeout(Duration::from_secs(5), ready(&check, Ipv6Addr::LOCALHOST))
            .await
            .unwrap();
        drop(listener);
        let gone = unready(&check, Ipv6Addr::LOCALHOST, Duration::from_millis(1));
        timeout(Duration::from_secs(5), gone).await.unwrap();
    }

    #[tokio::test]
    async fn an_error_response_is_not_ready() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = Check::Get {
            port,
            path: "/".into(),
        };
        let served = tokio::spawn(async move {
            for answer in ["HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 204 Fine\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 256];
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        timeout(Duration::from_secs(5), ready(&check, Ipv6Addr::LOCALHOST))
            .await
            .unwrap();
        served.await.unwrap();
    }
}
