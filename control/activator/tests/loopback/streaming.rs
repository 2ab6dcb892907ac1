//! Bodies much larger than all buffers.

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{Rig, backend};

const BODY_BYTES: usize = 64 << 20;
/// Client, activator and pod live in this process, with other tests beside them.
const GROWTH_BYTES_MAX: usize = 40 << 20;

pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_streams_both_ways_in_bounded_memory() {
    let rig = Rig::start();
    let pod =
        backend(
            |request: Request<Incoming>| async move { Response::new(request.into_body().boxed()) },
        )
        .await;
    rig.configure(|route| route.backends = vec![pod]);
    let mut client = rig.connect().await;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY_BYTES}\r\nconnection: close\r\n\r\n"
    );
    client.send(&head).await;
    let before = resident_bytes();
    let (mut reading, mut writing) = client.stream.split();
    let upload = async {
        let chunk: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
        for _ in 0..BODY_BYTES / chunk.len() {
            writing.write_all(&chunk).await.unwrap();
        }
    };
    let download = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(reading.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        let (mut total, mut peak) = (0, 0);
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = reading.read(&mut chunk).await.unwrap();
            if count == 0 {
                break;
            }
            total += count;
            peak = peak.max(resident_bytes());
        }
        (total, peak, chunked)
    };
    let ((), (total, peak, chunked)) = tokio::join!(upload, download);
    assert!(
        if chunked {
            total > BODY_BYTES
        } else {
            total == BODY_BYTES
        },
        "{total} {chunked}"
    );
    assert!(
        peak < before + GROWTH_BYTES_MAX,
        "grew by {} bytes",
        peak - before
    );
}
