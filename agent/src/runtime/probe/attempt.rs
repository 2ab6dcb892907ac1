//! One attempt of a probe.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::runtime::spec::{Check, Probe};

/// Limit of the part of a response that is read, in bytes.
const RESPONSE_MAX: u64 = 4096;
/// Limit of the part of a response's body that is reported, in characters.
const BODY_MAX: usize = 120;

/// Why a probe failed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::runtime) enum Failed {
    /// No connection.
    Closed,
    /// No response within this time.
    Silent(Duration),
    /// Another response than one of HTTP with a status of 200 to 399: its status, and the begin of its body.
    Status { status: String, body: String },
}

pub(super) async fn attempt(probe: &Probe, address: Ipv6Addr) -> Result<(), Failed> {
    let Some(port) = probe.check.port() else {
        return Ok(());
    };
    let socket = SocketAddrV6::new(address, port, 0, 0);
    let connected = timeout(probe.timeout, TcpStream::connect(socket)).await;
    let Ok(Ok(stream)) = connected else {
        return Err(Failed::Closed);
    };
    let Check::Get { port, path } = &probe.check else {
        return Ok(());
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: [{address}]:{port}\r\nUser-Agent: dormouse-probe\r\nConnection: close\r\n\r\n"
    );
    let mut response = Vec::new();
    let read = timeout(probe.timeout, exchange(stream, &request, &mut response)).await;
    if is_success(&response) {
        return Ok(());
    }
    if response.is_empty() && read.is_err() {
        return Err(Failed::Silent(probe.timeout));
    }
    let (status, body) = failure(&response);
    Err(Failed::Status { status, body })
}

/// Sends a request, and reads its response until its status is known, or to its end if that is not a success.
async fn exchange(
    mut stream: TcpStream,
    request: &str,
    response: &mut Vec<u8>,
) -> std::io::Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut rest = stream.take(RESPONSE_MAX);
    while !is_success(response) && rest.read_buf(response).await? > 0 {}
    Ok(())
}

/// Whether a response begins like `HTTP/1.1 200`, with a status of 200 to 399.
fn is_success(response: &[u8]) -> bool {
    response.starts_with(b"HTTP/1.") && matches!(response.get(9), Some(b'2' | b'3'))
}

/// The status and the begin of the body of a response that is not a success.
fn failure(response: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    let status = match status.strip_prefix("HTTP/1.") {
        // The version's last digit and a space.
        Some(rest) => printable(rest.get(2..).unwrap_or_default()),
        None if response.is_empty() => "by closing the connection".to_owned(),
        None => "by something else than HTTP".to_owned(),
    };
    let is_chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = match body.split_once("\r\n") {
        Some((_length, chunk)) if is_chunked => chunk,
        _ => body,
    };
    let line = body.lines().find(|line| !line.trim().is_empty());
    (status, printable(line.unwrap_or_default()))
}

fn printable(text: &str) -> String {
    let shown = text.trim().chars().filter(|one| !one.is_control());
    shown.take(BODY_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_200_to_399_is_a_success() {
        assert!(is_success(b"HTTP/1.1 200"));
        assert!(is_success(b"HTTP/1.0 302 Found"));
        for other in [&b"HTTP/1.1 503"[..], b"SSH-2.0-Open", b"HTTP/1.1", b""] {
            assert!(!is_success(other));
        }
    }

    #[test]
    fn a_failure_has_its_status_and_the_first_line_of_its_body() {
        let check = |response: &str, status: &str, body: &str| {
            let expected = (status.to_owned(), body.to_owned());
            assert_eq!(failure(response.as_bytes()), expected, "{response}");
        };
        check(
            "HTTP/1.1 503 Busy\r\nA: b\r\n\r\n\ndb is\u{7} down\nmore",
            "503 Busy",
            "db is down",
        );
        check("HTTP/1.0 500\r\n\r\n", "500", "");
        let chunked = "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndown\r\n0\r\n\r\n";
        check(chunked, "500 No", "down");
        check("SSH-2.0-Open", "by something else than HTTP", "");
        check("", "by closing the connection", "");
        let long = format!("HTTP/1.1 500 No\r\n\r\n{}", "é".repeat(500));
        check(&long, "500 No", &"é".repeat(BODY_MAX));
    }
}
