//! An HTTP server on one listening socket, with a limit on connections: its port is reachable by every host that reaches the
//! node.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections, enough for the probes of a few load balancers; further connections wait.
const CONNECTIONS_MAX: usize = 64;

/// An idle connection is closed after this time: load balancers probe every few seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Backlog of the listening socket.
const BACKLOG: i32 = 128;

/// Pause after a failed accept (no descriptor left), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on this address. `[::]` is IPv6 only, so that `0.0.0.0` can have the same port.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of a previous agent, or of the port's previous Service, may still be in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until `end`; when this returns, the listening socket is closed, and open connections finish their request.
pub(super) async fn answer<F>(listener: TcpListener, respond: F, end: CancellationToken)
where
    F: Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static,
{
    let respond = Arc::new(respond);
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = async {
            let permit = Arc::clone(&free).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = end.cancelled() => return,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (respond, end) = (Arc::clone(&respond), end.clone());
        tokio::spawn(async move {
            connection(stream, &*respond, end).await;
            drop(permit);
        });
    }
}

/// Serves one connection; its errors concern its client only.
async fn connection<F>(stream: TcpStream, respond: &F, end: CancellationToken)
where
    F: Fn(&Request<Incoming>) -> Response<Full<Bytes>>,
{
    let service = service_fn(async |request| Ok::<_, Infallible>(respond(&request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = end.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // A client that does not read its response is not waited for.
    let _ = tokio::time::timeout(SILENCE_MAX, connection).await;
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::health::answer::nothing;

    /// The whole response, as text.
    pub(in crate::health) async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn idle_connections_end_with_the_server() {
        let end = CancellationToken::new();
        let listener = listen("[::1]:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(answer(listener, |_| nothing(), end.clone()));
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0];
        idle.read_exact(&mut first).await.unwrap();
        end.cancel();
        server.await.unwrap();
        let mut rest = Vec::new();
        let rest = tokio::time::timeout(Duration::from_secs(20), idle.read_to_end(&mut rest));
        rest.await.expect("it stays open").unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn no_more_connections_than_the_limit_are_served_at_once() {
        let end = CancellationToken::new();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(answer(listener, |_| nothing(), end.clone()));
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asked = tokio::spawn(async move { get(address, "/").await });
        let early = tokio::time::timeout(Duration::from_millis(50), &mut asked).await;
        assert!(early.is_err(), "{early:?}");
        idle.pop();
        let late = tokio::time::timeout(Duration::from_secs(20), asked)
            .await
            .unwrap();
        assert!(late.unwrap().unwrap().starts_with("HTTP/1.1 404 "));
        end.cancel();
        server.await.unwrap();
    }
}
