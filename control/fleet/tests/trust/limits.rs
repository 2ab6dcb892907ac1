//! Many handshakes at a time: silent, slow and broken ones of one host, and ten thousand, beside a stream that is served.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dormouse_fleet::client::Link;
use dormouse_fleet::proto::PodSpec;
use dormouse_trust::client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

use super::{Control, TESTS, TIMEOUT, certificate, control_alone, control_at, valid};

/// Shorter than the timeout of a handshake: what waits for that fails.
const SOON: Duration = Duration::from_secs(8);
/// Another host than the one from which agents connect, to [::1].
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Connections of that host in each state: more than may be in a handshake.
const BAD: usize = 60;
/// Clients at once, and descriptors that the test needs for others.
const MANY: u64 = 10_000;
const RESERVED: u64 = 2_000;
/// Longest time until all of them are answered.
const ALL: Duration = Duration::from_mins(5);

const ANYWHERE: &str = "[::]:0";

/// Control at [::] and 127.0.0.1, whose clients have different addresses.
async fn control(connections_max: usize) -> Control {
    control_at(ANYWHERE, connections_max).await
}

async fn connect(source: Ipv4Addr, control: &Control) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    let address: SocketAddr = control.address.parse().unwrap();
    let address = (Ipv4Addr::LOCALHOST, address.port()).into();
    timeout(TIMEOUT, socket.connect(address))
        .await
        .unwrap()
        .unwrap()
}

fn tls(control: &Control) -> Arc<ClientConfig> {
    let authorities = [control.authority.certificate().clone()];
    let certificate = certificate(&control.authority, "a", valid());
    client::config(&authorities, Some(certificate)).unwrap()
}

/// The first message of a handshake.
fn hello(control: &Control) -> Vec<u8> {
    let name = ServerName::try_from("::1").unwrap();
    let mut connection = ClientConnection::new(tls(control), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

/// The stream of a node is served: a pod for it arrives.
async fn is_served(control: &Control, link: &mut Link, pod: &str) {
    control.handle.run(
        "served",
        PodSpec {
            uid: pod.to_owned(),
            ..PodSpec::default()
        },
    );
    let received = async {
        loop {
            let down = link.receive().await.unwrap();
            if down.run.iter().any(|one| one.uid == pod) {
                return;
            }
        }
    };
    timeout(SOON, received).await.unwrap();
}

#[tokio::test]
async fn silent_slow_and_broken_handshakes_of_one_host_delay_no_client_of_another() {
    let control = control(100).await;
    let mut link = control
        .open(control.node("served"), "served")
        .await
        .unwrap();
    let (hello, mut bad) = (hello(&control), Vec::new());
    for _ in 0..BAD {
        bad.push(connect(OTHER, &control).await);
        let mut half = connect(OTHER, &control).await;
        half.write_all(&hello[..hello.len() / 2]).await.unwrap();
        bad.push(half);
        let mut unanswered = connect(OTHER, &control).await;
        unanswered.write_all(&hello).await.unwrap();
        bad.push(unanswered);
    }
    let mut slow = connect(OTHER, &control).await;
    let slow = tokio::spawn(async move {
        for byte in hello {
            // It ends when its place is needed.
            if slow.write_all(&[byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    let opened = timeout(SOON, control.open(control.node("a"), "a")).await;
    assert!(opened.unwrap().is_ok());
    is_served(&control, &mut link, "pod").await;
    slow.abort();
    drop(bad);
}

/// The descriptors of this process, raised as far as it may.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let raised = setrlimit(Resource::Nofile, raised).map(|()| limit.maximum);
    raised.unwrap_or(limit.current).unwrap_or(u64::MAX)
}

async fn shake(config: Arc<ClientConfig>, address: String) -> io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("::1").unwrap();
    TlsConnector::from(config).connect(name, stream).await?;
    Ok(())
}

#[tokio::test]
async fn ten_thousand_handshakes_at_once_are_answered_or_refused_and_a_served_stream_goes_on() {
    let _alone = TESTS.write().await;
    let control = control_alone(ANYWHERE, 10_000).await;
    let mut link = control
        .open(control.node("served"), "served")
        .await
        .unwrap();
    let config = tls(&control);
    // Clients have processors of their own.
    let theirs = Builder::new_multi_thread().enable_all().build().unwrap();
    let mut clients = JoinSet::new();
    for _ in 0..MANY.min(descriptors().saturating_sub(RESERVED)) {
        let client = shake(config.clone(), control.address.clone());
        clients.spawn_on(client, theirs.handle());
    }
    is_served(&control, &mut link, "meanwhile").await;
    let ended = async {
        let mut answered = 0;
        while let Some(ended) = clients.join_next().await {
            answered += usize::from(ended.unwrap().is_ok());
        }
        answered
    };
    let answered = timeout(ALL, ended).await.unwrap();
    assert!(answered > 0, "all were refused");
    theirs.shutdown_background();
    is_served(&control, &mut link, "afterwards").await;
    assert!(control.open(control.node("a"), "a").await.is_ok());
}
