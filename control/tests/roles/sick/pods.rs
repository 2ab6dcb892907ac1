//! Servers of sick pods: one accepts connections and sends nothing, one delays its responses, one supports HTTP/1.1 only, one ends while
//! it has its second request.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::world::{TIMEOUT, address, ip};

pub(super) const SILENT: &str = "2001:db8:d0::1:0:8";
pub(super) const SLOW: &str = "2001:db8:d0::1:0:9";
pub(super) const HTTP1: &str = "2001:db8:d0::1:0:a";
pub(super) const FLEETING: &str = "2001:db8:d0::1:0:b";
/// The time that the slow one takes: longer than all stages of a wake here.
const SLOWNESS: Duration = Duration::from_secs(3);

/// Starts them.
pub(super) async fn start() {
    for address in [SILENT, SLOW, HTTP1, FLEETING] {
        ip(&format!("-6 addr add {address}/128 dev lo nodad")).await;
        let pod = TcpListener::bind((address, 8_000)).await.unwrap();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = pod.accept().await.unwrap();
                tokio::spawn(serve(address, connection, stream));
            }
        });
    }
}

async fn serve(address: &str, connection: usize, mut stream: TcpStream) {
    let mut request = [0; 1_024];
    while let Ok(1..) = stream.read(&mut request).await {
        let answer = match address {
            SILENT => continue,
            FLEETING if connection > 0 => return,
            FLEETING => "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nonce",
            SLOW => {
                sleep(SLOWNESS).await;
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow"
            }
            _ => "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The frames of the response to a GET over HTTP/2, as text.
pub(super) async fn get_http2(vip: u32) -> String {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // RFC 7541: GET, http and / are in the static table; `:authority: a` is a literal.
    const HEADERS: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
    let mut client = TcpStream::connect(address(vip)).await.unwrap();
    client
        .write_all(&[PREFACE, SETTINGS, HEADERS].concat())
        .await
        .unwrap();
    let mut reply = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&reply).contains("dormouse: ") {
            assert!(
                client.read_buf(&mut reply).await.unwrap() > 0,
                "the connection was closed"
            );
        }
    };
    timeout(TIMEOUT, read)
        .await
        .expect("no response within the timeout");
    String::from_utf8_lossy(&reply).into_owned()
}
