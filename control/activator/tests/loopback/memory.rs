//! The memory of connections and parked requests, which the budgets count.
//!
//! `cargo test -p dormouse-activator --test loopback -- --ignored --nocapture memory` prints the figures.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::rig::Rig;
use crate::streaming::resident_bytes;

const COUNT: usize = 2_000;
/// Streams of each HTTP/2 connection of the rows with many.
const STREAMS: usize = 100;

/// A frame of HTTP/2 without padding or priority.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Preface and empty SETTINGS.
fn preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes
}

/// `POST http://a/` on the given streams, each with `body` bytes of an unfinished body.
fn posts(streams: usize, body: usize) -> Vec<u8> {
    let mut bytes = preface();
    for index in 0..streams {
        let stream = u32::try_from(2 * index + 1).unwrap();
        bytes.extend(frame(1, 4, stream, &[0x83, 0x86, 0x84, 0x01, 1, b'a']));
        for chunk in vec![b'x'; body].chunks(16 * 1024) {
            bytes.extend(frame(0, 0, stream, chunk));
        }
    }
    bytes
}

/// Growth of the process by `count` connections that send `bytes`, until `parked` requests wait.
async fn growth(bytes: &[u8], count: usize, parked: usize) -> usize {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let before = resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(rig.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        clients.push(client);
    }
    rig.parked(u32::try_from(parked).unwrap()).await;
    sleep(std::time::Duration::from_millis(500)).await;
    resident_bytes().saturating_sub(before)
}

/// What each connection of a row sends, and the number of connections and parked requests.
fn rows() -> Vec<(&'static str, Vec<u8>, usize, usize)> {
    let get = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec();
    let mut post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n".to_vec();
    post.resize(60_000, b'x');
    let connections = COUNT / STREAMS;
    vec![
        ("connection without data", Vec::new(), COUNT, 0),
        (
            "HTTP/1.1 without a whole head",
            b"GET / HT".to_vec(),
            COUNT,
            0,
        ),
        ("HTTP/1.1, parked GET", get, COUNT, COUNT),
        ("HTTP/1.1, parked POST of 60 kB", post, COUNT, COUNT),
        ("HTTP/2 without streams", preface(), COUNT, 0),
        ("HTTP/2, a parked POST", posts(1, 0), COUNT, COUNT),
        (
            "HTTP/2, a parked POST of 60 kB",
            posts(1, 60_000),
            COUNT,
            COUNT,
        ),
        (
            "HTTP/2, one of 100 parked POSTs",
            posts(STREAMS, 0),
            connections,
            COUNT,
        ),
        (
            "HTTP/2, one of 100 parked POSTs of 600 bytes",
            posts(STREAMS, 600),
            connections,
            COUNT,
        ),
    ]
}

/// Each row in a process of its own: memory that one has freed would be reused by the next.
#[test]
#[ignore = "prints figures"]
fn memory_of_connections_and_parked_requests() {
    for row in 0..rows().len() {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--ignored", "--exact", "--nocapture", "memory::one_row"]);
        let output = process.env("ROW", row.to_string()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        eprint!(
            "{}",
            text.lines()
                .filter(|line| line.contains("bytes:"))
                .collect::<String>()
                + "\n"
        );
    }
}

#[tokio::test]
#[ignore = "one row of the figures"]
async fn one_row() {
    let Some(row) = std::env::var("ROW")
        .ok()
        .and_then(|row| row.parse::<usize>().ok())
    else {
        return;
    };
    let (name, bytes, count, parked) = rows().swap_remove(row);
    // The first connections allocate what all share.
    growth(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", 10, 10).await;
    let growth = growth(&bytes, count, parked).await / COUNT;
    eprintln!("bytes: {growth} {name}");
}
