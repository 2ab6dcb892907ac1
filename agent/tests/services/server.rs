//! Servers that say who they are and whom they see, and echo.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;

use crate::place::Place;
use crate::stage::{NODE_PORT, POD_PORT, Stage};

/// How often a server looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The largest datagram.
const DATAGRAM_LEN_MAX: usize = 65_536;
/// A datagram that begins so comes back as it is.
pub(crate) const PLAIN: u8 = b'!';
/// Connections that the light server keeps open while others come.
const OPEN_LEN: usize = 64;
/// What the light server says.
pub(crate) const LIGHT: &[u8] = b"light\n";

/// A server of TCP and UDP; ends with its value.
pub(crate) struct Server {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Greets every connection with its name and the client's address and echoes what comes; answers every datagram
    /// with the same line and the datagram.
    pub(crate) fn start(place: &Place, name: &str, port: u16) -> Self {
        let (streams, datagrams) = place.listen(port);
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

    /// Says one word to every connection, and ends it a good while after the client has.
    ///
    /// Two resets are no fault, and shall not happen. Would the server be the first to end, it would keep the ends of the
    /// connection for a minute, and answer with an acknowledgement when the node's address comes again by the same port.
    /// Would it end at once when the client has, its last two segments could overtake each other between two processors.
    pub(crate) fn light(place: &Place, port: u16) -> Self {
        let (streams, _) = place.listen(port);
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let accepting = std::thread::spawn(move || {
            let (mut open, mut idle) = (VecDeque::new(), 0);
            accept(streams, &ends, |stream| {
                // Who has come last shall have ended long before.
                idle = if stream.is_some() { 0 } else { idle + 1 };
                let left = if idle > 1 { 0 } else { OPEN_LEN };
                if let Some(mut stream) = stream {
                    // A client that is gone needs no word.
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

/// A server in each pod and on each node.
pub(crate) fn servers(stage: &Stage) -> Vec<Server> {
    let mut servers = Vec::new();
    for (node, number) in stage.nodes.iter().zip(1..) {
        servers.push(Server::start(&node.place, &format!("h{number}"), NODE_PORT));
        for (pod, letter) in node.pods.iter().zip(["a", "b"]) {
            servers.push(Server::start(
                &pod.place,
                &format!("{number}{letter}"),
                POD_PORT,
            ));
        }
    }
    servers
}

/// Serves every connection, and nobody when nobody has come for a while.
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
        // An accepted socket takes the listener's patience over.
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
        // A client that is gone needs no answer.
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
