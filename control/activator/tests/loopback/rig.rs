//! A test rig: an activator on its own port, plain HTTP/1.1 clients, and backends.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use bytes::Bytes;
use dormouse_activator::{Config, Handle, Report, Route, Stat};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Timeout of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The VIP index of `::1`.
pub(crate) const VIP: u32 = 1;

pub(crate) type AnyBody = BoxBody<Bytes, hyper::Error>;

pub(crate) struct Rig {
    pub(crate) handle: Handle,
    pub(crate) reports: mpsc::Receiver<Report>,
    pub(crate) address: SocketAddrV6,
    pub(crate) shutdown: CancellationToken,
    pub(crate) running: JoinHandle<()>,
    /// Bound but not listening: reserves the port until the activator listens on it.
    _reserved: Socket,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::start_with(|_config| {})
    }

    pub(crate) fn start_with(adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(Ipv6Addr::UNSPECIFIED);
        adjust(&mut config);
        let (handle, reports) = dormouse_activator::new(config);
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(dormouse_activator::run(handle.clone(), shutdown.clone()));
        let (reserved, port) = reserve();
        handle.listen(&BTreeSet::from([port]));
        let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0);
        Self {
            handle,
            reports,
            address,
            shutdown,
            running,
            _reserved: reserved,
        }
    }

    /// A route without backends and without a concurrency limit.
    pub(crate) fn route(&self) -> Route {
        Route {
            name: "default/test".to_owned(),
            tenant: "default".to_owned(),
            version: 1,
            port: self.address.port(),
            container_concurrency: 0,
            timeout: TIMEOUT,
            serving: false,
            wake_timeout: TIMEOUT,
            problem: None,
            split: None,
            backends: Vec::new(),
        }
    }

    pub(crate) fn configure(&self, adjust: impl FnOnce(&mut Route)) {
        let mut route = self.route();
        adjust(&mut route);
        self.handle.configure(VIP, route);
    }

    pub(crate) fn stat(&self) -> Stat {
        let stats = self.handle.take_stats();
        stats
            .into_iter()
            .find(|(vip, _)| *vip == VIP)
            .map(|(_, stat)| stat)
            .unwrap_or_default()
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> i64 {
        let mut registry = Registry::default();
        self.handle.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    }

    pub(crate) async fn parked(&self, count: u32) {
        until(&format!("{count} parked"), || self.stat().parked == count).await;
    }

    pub(crate) async fn report(&mut self) -> Report {
        timeout(TIMEOUT, self.reports.recv())
            .await
            .expect("no report within the timeout")
            .unwrap()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client {
            stream: TcpStream::connect(self.address).await.unwrap(),
        }
    }

    /// One GET on a new connection.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        let mut client = self.connect().await;
        client
            .send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .await;
        client.reply().await
    }

    pub(crate) fn spawn_get(&self, path: &str) -> JoinHandle<Reply> {
        let (address, path) = (self.address, path.to_owned());
        tokio::spawn(async move {
            let mut client = Client {
                stream: TcpStream::connect(address).await.unwrap(),
            };
            client
                .send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            client.reply().await
        })
    }
}

/// A reserved port on which connections are refused.
pub(crate) fn reserve() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket
        .bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into())
        .unwrap();
    let port = socket
        .local_addr()
        .unwrap()
        .as_socket_ipv6()
        .unwrap()
        .port();
    (socket, port)
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TIMEOUT, wait)
        .await
        .unwrap_or_else(|_| panic!("timeout: {what}"));
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.head
            .to_ascii_lowercase()
            .lines()
            .any(|each| each == line)
    }
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn head(&mut self) -> String {
        let mut head = Vec::new();
        let read = async {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(
                    self.stream
                        .read_u8()
                        .await
                        .expect("the connection closed before a head"),
                );
            }
        };
        timeout(TIMEOUT, read)
            .await
            .expect("no response within the timeout");
        String::from_utf8(head).unwrap()
    }

    /// Reads a response with a `content-length` body, or without a body.
    pub(crate) async fn reply(&mut self) -> Reply {
        let head = self.head().await;
        let length = head.to_ascii_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length: ")
                .map(|length| length.parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        timeout(TIMEOUT, self.stream.read_exact(&mut body))
            .await
            .expect("no body within the timeout")
            .unwrap();
        Reply {
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// Whether the activator closes the connection.
    pub(crate) async fn closes(&mut self) -> bool {
        let mut rest = Vec::new();
        timeout(TIMEOUT, self.stream.read_to_end(&mut rest))
            .await
            .is_ok()
    }
}

pub(crate) fn text(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into())
        .map_err(|never: Infallible| match never {})
        .boxed()
}

/// A pod that serves HTTP/1.1 and h2c by `answer`.
pub(crate) async fn backend<A, F>(answer: A) -> SocketAddrV6
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = answer(request);
                    async move { Ok::<_, Infallible>(response.await) }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// A pod that responds with the request's path.
pub(crate) async fn path_backend() -> SocketAddrV6 {
    backend(|request: Request<Incoming>| async move {
        Response::new(text(request.uri().path().to_owned()))
    })
    .await
}

pub(crate) type Http2Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// A client's HTTP/2 connection, driven by a task.
pub(crate) async fn http2_client(
    address: SocketAddrV6,
) -> (Http2Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    (sender, tokio::spawn(connection))
}
