//! Servers that send their name and the client's address as they see it, and echo.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;

use crate::sockets::Sockets;

/// How often a server looks whether it is dropped.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The largest datagram.
const DATAGRAM_LEN_MAX: usize = 65_536;
/// A datagram that begins so comes back as it is.
pub const PLAIN: u8 = b'!';
/// Connections that the light server keeps open while others come.
pub const OPEN_LEN: usize = 64;
/// What the light server sends.
pub const LIGHT: &[u8] = b"light\n";

/// A server of TCP and UDP; ends when dropped.
#[derive(Debug)]
pub struct Server {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Greets every connection with its name and the client's address and echoes what comes; answers every datagram
    /// with the same line and the datagram.
    pub fn start(sockets: &Sockets, name: &str, port: u16) -> Self {
        let (streams, datagrams) = sockets.listen(port);
        let over = Arc::new(AtomicBool::new(false));
        let accepting = {
            let (over, name) = (Arc::clone(&over), name.to_owned());
            std::thread::spawn(move || {
                accept(streams, &over, |stream| {
                    if let Some(stream) = stream {
                        greet(stream, &name);
                    }
                });
            })
        };
        let answering = {
            let (over, name) = (Arc::clone(&over), name.to_owned());
            std::thread::spawn(move || answer(&datagrams, &name, &over))
        };
        Self {
            over,
            threads: vec![accepting, answering],
        }
    }

    /// Sends one line to every connection, and ends it a good while after the client has.
    ///
    /// This avoids two harmless resets. A server that ends first keeps the connection in TIME_WAIT for
    /// a minute, and acknowledges a segment from the node's address and the same port. The last two segments of a server
    /// that ends right after the client can overtake each other between two processors.
    pub fn light(sockets: &Sockets, port: u16) -> Self {
        let (streams, _) = sockets.listen(port);
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let accepting = std::thread::spawn(move || {
            let (mut open, mut idle) = (VecDeque::new(), 0);
            accept(streams, &ends, |stream| {
                // By then the last client has ended long ago.
                idle = if stream.is_some() { 0 } else { idle + 1 };
                let left = if idle > 1 { 0 } else { OPEN_LEN };
                if let Some(mut stream) = stream {
                    // A client may be gone.
                    let _ = stream.write_all(LIGHT);
                    open.push_back(stream);
                }
                while open.len() > left && open.front().is_some_and(has_ended) {
                    open.pop_front();
                }
            });
        });
        Self {
            over,
            threads: vec![accepting],
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves every connection, and none when none came for a while.
fn accept(streams: Socket, over: &AtomicBool, mut serve: impl FnMut(Option<TcpStream>)) {
    // An accept that waits ends with the time to look.
    streams.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let listener = TcpListener::from(streams);
    while !over.load(Ordering::Relaxed) {
        serve(listener.accept().ok().map(|(stream, _)| stream));
    }
}

/// Whether the client has ended the connection.
fn has_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).is_ok() && stream.peek(&mut [0]).is_ok()
}

fn greet(mut stream: TcpStream, name: &str) {
    let line = stream.peer_addr().map(|peer| greeting(name, peer));
    std::thread::spawn(move || -> io::Result<()> {
        // An accepted socket inherits the listener's timeout.
        stream.set_read_timeout(None)?;
        stream.write_all(line?.as_bytes())?;
        io::copy(&mut stream.try_clone()?, &mut stream)?;
        Ok(())
    });
}

fn answer(datagrams: &Socket, name: &str, over: &AtomicBool) {
    datagrams.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let datagrams = UdpSocket::from(datagrams.try_clone().unwrap());
    let mut bytes = vec![0; DATAGRAM_LEN_MAX];
    while !over.load(Ordering::Relaxed) {
        let Ok((length, peer)) = datagrams.recv_from(&mut bytes) else {
            continue;
        };
        let asked = &bytes[..length];
        // A client may be gone.
        let _ = if asked.first() == Some(&PLAIN) {
            datagrams.send_to(asked, peer)
        } else {
            let line = greeting(name, peer);
            datagrams.send_to(&[line.as_bytes(), asked].concat(), peer)
        };
    }
}

fn greeting(name: &str, peer: SocketAddr) -> String {
    let ip: IpAddr = peer.ip().to_canonical();
    format!("{name} {}\n", SocketAddr::new(ip, peer.port()))
}
