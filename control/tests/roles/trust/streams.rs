//! The streams that a client may have on one connection: each port says a limit in its first frame. And those of one user of the API.

use std::net::Ipv6Addr;
use std::sync::Arc;

use dormouse_fleet::{Callers, join};
use dormouse_trust::{Current, client, folder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Trusted;
use super::api::{bearer, bind, kubectl};
use crate::world::{TIMEOUT, in_namespace, until};

/// How a client begins, with empty settings (RFC 9113, 3.4).
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The same, with no room for the bodies of responses.
const BEGIN_UNREAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
/// Types of frames (RFC 9113, 6), and flags.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
/// The setting of the streams (RFC 9113, 6.5.2).
const STREAMS: u16 = 3;
/// The code with which a stream beyond the limit ends (RFC 9113, 7).
const REFUSED_STREAM: u32 = 7;
/// The path of the lists of the test of a user's requests.
const NAMESPACES: &str = "/api/v1/namespaces";
/// Streams that a client opens in spite of the limit, and by how much control's memory may grow meanwhile: without a limit, it is a gigabyte.
const MANY: u32 = 100_000;
const GROWTH_KIB_MAX: u64 = 64 << 10;

type Connection = TlsStream<TcpStream>;

/// Opens a connection to a port; its settings.
async fn begin(port: u16, config: &Arc<ClientConfig>) -> (Connection, Vec<u8>) {
    begin_with(BEGIN, port, config).await
}

async fn begin_with(first: &[u8], port: u16, config: &Arc<ClientConfig>) -> (Connection, Vec<u8>) {
    let stream = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
    let name = ServerName::try_from("::1").unwrap();
    let connector = TlsConnector::from(Arc::clone(config));
    let mut stream = connector.connect(name, stream.unwrap()).await.unwrap();
    stream.write_all(first).await.unwrap();
    let (kind, settings) = frame(&mut stream).await;
    assert_eq!(kind, SETTINGS, "{settings:?}");
    (stream, settings)
}

/// The type and the payload of the next frame.
async fn frame(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut payload).await.unwrap();
    (head[3], payload)
}

/// The streams that a port allows; none: as many as there can be.
async fn streams_max(port: u16, config: &Arc<ClientConfig>) -> Option<u32> {
    let (_stream, settings) = begin(port, config).await;
    let (settings, _) = settings.as_chunks::<6>();
    let of = settings
        .iter()
        .find(|setting| setting[..2] == STREAMS.to_be_bytes());
    of.map(|&[_, _, a, b, c, d]| u32::from_be_bytes([a, b, c, d]))
}

/// The frame of a call of a join without a body so far, as this stream.
fn join_of(stream: u32) -> Vec<u8> {
    let fields = [
        (&[0x04][..], "/dormouse.join.v1.Join/Sign"),
        (&[0x01], "[::1]"),
        (&[0x0f, 0x10], "application/grpc"),
    ];
    headers(stream, END_HEADERS, 0x83, &fields)
}

/// The frame of a request, as this stream, with the index of its method (RFC 7541: indexed fields, and literal ones without indexing).
fn headers(stream: u32, flags: u8, method: u8, fields: &[(&[u8], &str)]) -> Vec<u8> {
    let mut block = vec![method, 0x87];
    for (name, value) in fields {
        block.extend(*name);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value.as_bytes());
    }
    let len = u8::try_from(block.len()).unwrap();
    let head = [0, 0, len, HEADERS, flags];
    [&head, &stream.to_be_bytes()[..], &block].concat()
}

#[test]
fn a_request_of_a_join_whose_body_does_not_come_ends() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let authorities = folder::load_certificates(control.pki("ca.crt").as_ref()).unwrap();
        let config = client::config(&authorities, None).unwrap();
        let (mut stream, _) = begin(7445, &config).await;
        stream.write_all(&join_of(1)).await.unwrap();
        let answered = async {
            loop {
                let (kind, payload) = frame(&mut stream).await;
                if kind == HEADERS {
                    return payload;
                }
            }
        };
        let answer = timeout(TIMEOUT, answered).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(!answer.is_empty());
    });
}

#[test]
fn each_port_limits_the_streams_of_a_connection_and_that_of_joins_to_a_few() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let authorities = folder::load_certificates(control.pki("ca.crt").as_ref()).unwrap();
        let admin = Current::new(control.user("root", "system:masters")).unwrap();
        let known = client::config(&authorities, Some(admin)).unwrap();
        let unknown = client::config(&authorities, None).unwrap();
        for (port, config, most) in [
            (7445, &unknown, 4),
            (7443, &known, 64),
            (7444, &known, 256),
            (10259, &known, 256),
            (6443, &unknown, 256),
            (9090, &unknown, 256),
            (2379, &known, 16_384),
        ] {
            let read = timeout(TIMEOUT, streams_max(port, config)).await.unwrap();
            let found = read.unwrap_or(u32::MAX);
            assert!(found <= most, "{port}: {found}");
        }
    });
}

#[test]
fn lists_that_a_user_does_not_read_keep_only_that_user_out_until_they_end() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        bind(&control).await;
        // More than the server gives a connection ahead of its client.
        let label = format!("annotate namespace default text={}", "x".repeat(65_536));
        let (ok, said) = kubectl(&control, &label).await;
        assert!(ok, "{said}");
        let ann = control.user("ann", "dev");
        let shown = control.certificate(&ann);
        let eve = control.user_token("eve", &["--group", "dev"]).await;
        let eve = bearer(eve.as_str());
        let lists = async |user: &[String]| {
            control
                .get(NAMESPACES, user)
                .await
                .contains("NamespaceList")
        };
        until("the binding is in force", async || lists(&shown).await).await;

        let authorities = folder::load_certificates(control.pki("ca.crt").as_ref()).unwrap();
        let config = client::config(&authorities, Some(Current::new(ann).unwrap())).unwrap();
        let (mut stream, _) = begin_with(BEGIN_UNREAD, 6443, &config).await;
        for n in 0..10 {
            let fields = [(&[0x04][..], NAMESPACES), (&[0x01], "[::1]")];
            let list = headers(2 * n + 1, END_HEADERS | END_STREAM, 0x82, &fields);
            stream.write_all(&list).await.unwrap();
        }
        let mut answers = 0;
        while answers < 10 {
            let (kind, _) = timeout(TIMEOUT, frame(&mut stream)).await.unwrap();
            answers += u32::from(kind == HEADERS);
        }
        let refused = control.get(NAMESPACES, &shown).await;
        for part in ["\"code\":429", "TooManyRequests", "ann", "limit"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(lists(&eve).await);
        drop(stream);
        until("the lists have ended", async || lists(&shown).await).await;
    });
}

/// The memory of a process, in KiB.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = resident.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[test]
fn a_client_that_opens_streams_beyond_the_limit_has_them_refused_and_takes_no_memory() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        let process = control.process.id().unwrap();
        let before = resident_kib(process);
        let authorities = folder::load_certificates(control.pki("ca.crt").as_ref()).unwrap();
        let config = client::config(&authorities, None).unwrap();
        let (stream, _) = begin(7445, &config).await;
        let (mut answers, mut requests) = split(stream);
        let opens = async {
            for batch in (0..MANY).collect::<Vec<_>>().chunks(1_000) {
                // A client's streams have odd numbers.
                let frames: Vec<u8> = batch.iter().flat_map(|n| join_of(2 * n + 1)).collect();
                requests.write_all(&frames).await.unwrap();
            }
        };
        let refusals = async {
            let mut refused = 0;
            while refused < MANY - Callers::Joining.streams_max() {
                let (kind, payload) = frame(&mut answers).await;
                refused += u32::from(kind == RST_STREAM && payload == REFUSED_STREAM.to_be_bytes());
            }
        };
        let all = async { tokio::join!(opens, refusals) };
        timeout(TIMEOUT, all).await.unwrap();
        // The kernel sums its counts at times only: even the highest one may shrink.
        let growth = resident_kib(process).saturating_sub(before);
        assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
        // Others are served meanwhile.
        join::join(&line, "a").await.unwrap();
    });
}
