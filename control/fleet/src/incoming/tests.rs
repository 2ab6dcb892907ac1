//! Handshakes of silent clients, places of clients without a certificate, idle connections: on real sockets of two addresses.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use dormouse_trust::{
    Authority, Clients, Credentials, Current, Identity, Validity, client, server,
};
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;
use crate::connection::Access;

/// Shorter than the timeout of a handshake: what waits for that fails.
const SOON: Duration = Duration::from_secs(8);
const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another host than [`SERVER`], which connects from that address, too.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Cluster(Authority);

impl Cluster {
    fn new() -> Self {
        Self(Authority::create(SystemTime::now()).unwrap())
    }

    fn listener(&self, clients: Clients) -> Arc<ServerConfig> {
        let identity = Identity::control("up").unwrap();
        let issued = self.0.server(&identity, &[SERVER.to_string()], day());
        let authorities = [self.0.certificate().clone()];
        server::config(current(issued.unwrap()), &authorities, clients).unwrap()
    }

    /// The TLS of a node, or of a client without a certificate.
    fn client(&self, node: Option<&str>) -> Arc<ClientConfig> {
        let node = node.map(|node| {
            let identity = Identity::node(node).unwrap();
            current(self.0.client(&identity, day()).unwrap())
        });
        client::config(&[self.0.certificate().clone()], node).unwrap()
    }
}

fn day() -> Validity {
    Validity::issued(SystemTime::now(), Duration::from_hours(24), None)
}

fn current(credentials: Credentials) -> Arc<Current> {
    Current::new(credentials).unwrap()
}

async fn listen() -> TcpListener {
    TcpListener::bind((SERVER, 0)).await.unwrap()
}

async fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

async fn handshake(
    config: Arc<ClientConfig>,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::from(std::net::IpAddr::V4(SERVER));
    TlsConnector::from(config).connect(name, stream).await
}

/// Accepts until the listener is dropped; the connections are sent on.
fn accepting(mut incoming: Incoming) -> tokio::sync::mpsc::Receiver<Connection> {
    let (sender, receiver) = tokio::sync::mpsc::channel(100);
    tokio::spawn(async move {
        loop {
            let (connection, _) = incoming.accept().await;
            if sender.send(connection).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn is_closed(mut stream: TcpStream) -> bool {
    let read = timeout(SOON, stream.read(&mut [0])).await;
    read.is_ok_and(|read| read.is_err() || matches!(read, Ok(0)))
}

#[tokio::test]
async fn a_host_with_all_handshakes_keeps_no_other_out() {
    let cluster = Cluster::new();
    // Four of them may be in a handshake.
    let incoming = Incoming::new(listen().await, 16).secured(cluster.listener(Clients::Required));
    let address = incoming.local_addr().unwrap();
    let mut accepted = accepting(incoming);
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(connect_from(OTHER, address).await);
    }
    // A further one of that host has no place, and the server has taken the others by now.
    assert!(is_closed(connect_from(OTHER, address).await).await);
    let stream = connect_from(SERVER, address).await;
    let connected = timeout(SOON, handshake(cluster.client(Some("a")), stream));
    let _client = connected.await.unwrap().unwrap();
    let connection = timeout(SOON, accepted.recv()).await.unwrap().unwrap();
    assert!(matches!(connection.peer().access, Access::Certificate(_)));
    // The oldest one has given its place.
    assert!(is_closed(silent.remove(0)).await);
}

#[tokio::test]
async fn a_client_without_a_certificate_takes_no_place_of_one_with_it() {
    let cluster = Cluster::new();
    // Six places, of which clients without a certificate have three, and those of one source one.
    let incoming = Incoming::new(listen().await, 8).secured(cluster.listener(Clients::Requested));
    let address = incoming.local_addr().unwrap();
    let mut accepted = accepting(incoming);
    let anonymous = connect_from(OTHER, address).await;
    let _anonymous = handshake(cluster.client(None), anonymous).await.unwrap();
    let first = timeout(SOON, accepted.recv()).await.unwrap().unwrap();
    assert!(matches!(first.peer().access, Access::Anonymous));
    let waiting = connect_from(OTHER, address).await;
    let _waiting = handshake(cluster.client(None), waiting).await.unwrap();
    let mut known = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let stream = connect_from(OTHER, address).await;
        let client = handshake(cluster.client(Some(name)), stream).await.unwrap();
        let connection = timeout(SOON, accepted.recv()).await.unwrap().unwrap();
        assert!(matches!(connection.peer().access, Access::Certificate(_)));
        known.push((client, connection));
    }
    drop(first);
    drop(known);
    let last = timeout(SOON, accepted.recv()).await.unwrap().unwrap();
    assert!(matches!(last.peer().access, Access::Anonymous));
}

#[tokio::test]
async fn handshakes_that_all_fail_at_their_limit_make_room_for_others() {
    let cluster = Cluster::new();
    let config = cluster.listener(Clients::Required);
    let incoming = Incoming::new(listen().await, 16).secured_with_reason(config);
    let address = incoming.local_addr().unwrap();
    let mut accepted = accepting(incoming);
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(connect_from(SERVER, address).await);
    }
    assert!(is_closed(connect_from(SERVER, address).await).await);
    drop(silent);
    let plain = async {
        loop {
            let mut client = connect_from(SERVER, address).await;
            client.write_all(b"PRI").await.unwrap();
            tokio::select! {
                accepted = accepted.recv() => return (client, accepted.unwrap()),
                // The end of the others has not been seen yet.
                _ = client.read_u8() => {}
            }
        }
    };
    let (_client, connection) = timeout(SOON, plain).await.unwrap();
    assert!(matches!(connection.peer().access, Access::PlainText));
}

#[tokio::test]
async fn an_idle_connection_without_a_certificate_ends_and_others_do_not() {
    let cluster = Cluster::new();
    let idle = Duration::from_millis(50);
    let incoming = Incoming::new(listen().await, 100)
        .secured(cluster.listener(Clients::Requested))
        .closing_idle(idle);
    let address = incoming.local_addr().unwrap();
    let mut accepted = accepting(incoming);
    let mut connections = Vec::new();
    for node in [None, None, Some("a")] {
        let stream = connect_from(SERVER, address).await;
        let client = handshake(cluster.client(node), stream).await.unwrap();
        let connection = timeout(SOON, accepted.recv()).await.unwrap().unwrap();
        connections.push((client, connection));
    }
    let (_, known) = connections.last().unwrap();
    assert!(known.peer().requests.is_none());
    let open = connections[1].1.peer().requests.clone().unwrap();
    let open = open.begin();
    let ended = timeout(SOON, connections[0].1.read_u8()).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(timeout(4 * idle, connections[1].1.read_u8()).await.is_err());
    drop(open);
    let ended = timeout(SOON, connections[1].1.read_u8()).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(timeout(4 * idle, connections[2].1.read_u8()).await.is_err());
}

#[tokio::test]
async fn a_connection_above_the_limit_waits_until_another_is_closed() {
    let mut incoming = Incoming::new(listen().await, 1);
    let address = incoming.local_addr().unwrap();
    let _clients = [
        TcpStream::connect(address).await.unwrap(),
        TcpStream::connect(address).await.unwrap(),
    ];
    let (first, _) = incoming.accept().await;
    assert!(incoming.accept().now_or_never().is_none());
    drop(first);
    incoming.accept().await;
}

#[tokio::test]
async fn small_messages_are_sent_at_once_and_clients_that_are_gone_are_found() {
    let listener = listen().await;
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (stream, _) = accept(&listener).await;
    assert!(stream.nodelay().unwrap());
    let is_probed = nix::sys::socket::getsockopt(&stream, sockopt::KeepAlive);
    assert!(is_probed.unwrap());
    let longest = nix::sys::socket::getsockopt(&stream, sockopt::TcpUserTimeout);
    assert_eq!(longest.unwrap(), UNACKNOWLEDGED_MAX);
}
