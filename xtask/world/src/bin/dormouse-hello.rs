//! An app for demos and tests: answers over HTTP/1.1 with its pod's name and the client's address.
//!
//! `GET /any/path[?delay=MS]` answers `{"pod", "node", "client", "path"}`; `delay` makes it work that long.
//! Listens on `[::]:$PORT`. At SIGTERM it finishes what runs, asks idle clients to reconnect and ends.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

/// Connections served at one time, a thread each; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 2_000;
/// A request's head may be this long.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
/// Bodies are read and thrown away up to this length; a longer one ends its connection.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest delay that a client may ask for.
const DELAY_MS_MAX: u64 = 600_000;
/// At SIGTERM, what is already on its way is still accepted and answered for this long.
const LINGER: Duration = Duration::from_millis(300);
/// A connection's thread needs little.
const STACK_BYTES: usize = 128 * 1024;

fn main() -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    // Before any thread is made, so that all inherit it and the signal comes by descriptor only.
    signals.thread_block()?;
    let stop = SignalFd::new(&signals)?;
    let port = env::var("PORT").unwrap_or_else(|_unset| "8080".to_owned());
    let port: u16 = port.parse().map_err(|error| {
        io::Error::other(format!("PORT is {port:?}, which is no port: {error}"))
    })?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    listener.set_nonblocking(true)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let server = Arc::new(Server::new());
    accept_until(&listener, &stop, &server, PollTimeout::NONE)?;
    server.draining.store(true, Ordering::Release);
    thread::sleep(LINGER);
    accept_until(&listener, &stop, &server, PollTimeout::ZERO)?;
    drop(listener);
    server.drain();
    Ok(())
}

/// Accepts until a signal comes, or, with a timeout of zero, what has already arrived.
fn accept_until(
    listener: &TcpListener,
    stop: &SignalFd,
    server: &Arc<Server>,
    timeout: PollTimeout,
) -> io::Result<()> {
    loop {
        let mut sources = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut sources, timeout)?;
        let [arrived, stopped] = sources.map(|source| source.any().unwrap_or(false));
        if arrived {
            match listener.accept() {
                Ok((stream, _client)) => server.serve(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => eprintln!("failed to accept a connection: {error}"),
            }
        } else if stopped || timeout == PollTimeout::ZERO {
            return Ok(());
        }
    }
}

struct Server {
    pod: String,
    node: String,
    draining: AtomicBool,
    /// Open connections by number, so that idle ones can be ended at the end.
    open: Mutex<HashMap<u64, TcpStream>>,
    closed: Condvar,
}

impl Server {
    fn new() -> Self {
        let name = |variable| env::var(variable).unwrap_or_default();
        Self {
            pod: name("POD_NAME"),
            node: name("NODE_NAME"),
            draining: AtomicBool::new(false),
            open: Mutex::default(),
            closed: Condvar::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: &Arc<Self>, stream: TcpStream) -> io::Result<()> {
        static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open();
        while open.len() >= CONNECTIONS_MAX {
            open = self
                .closed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        open.insert(number, stream.try_clone()?);
        drop(open);
        let server = Arc::clone(self);
        let spawned = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // A client that breaks off is its own affair.
                drop(server.converse(&stream));
                server.open().remove(&number);
                server.closed.notify_all();
            });
        if spawned.is_err() {
            self.open().remove(&number);
        }
        Ok(())
    }

    /// Ends idle connections and waits for all.
    fn drain(&self) {
        let mut open = self.open();
        for stream in open.values() {
            // Requests that have arrived are still read; after them comes the end.
            drop(stream.shutdown(Shutdown::Read));
        }
        while !open.is_empty() {
            open = self
                .closed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers a connection's requests, one after the other.
    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        // A socket accepted from a non-blocking listener blocks on Linux; say so all the same.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let client = stream.peer_addr()?.ip().to_string();
        let mut reader = BufReader::new(stream);
        while let Some(request) = Request::read(&mut reader)? {
            io::copy(&mut (&mut reader).take(request.body_bytes), &mut io::sink())?;
            thread::sleep(request.delay());
            let body = self.describe(&client, &request.target);
            let close = request.close || self.draining.load(Ordering::Acquire);
            let connection = if close { "close" } else { "keep-alive" };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: {connection}\r\n\r\n"
            );
            let body = if request.headless { "" } else { &body };
            (&*stream).write_all(format!("{head}{body}").as_bytes())?;
            if close {
                break;
            }
        }
        stream.shutdown(Shutdown::Write)
    }

    fn describe(&self, client: &str, target: &str) -> String {
        let path = target.split('?').next().unwrap_or_default();
        let fields = [
            ("pod", &*self.pod),
            ("node", &self.node),
            ("client", client),
            ("path", path),
        ];
        let fields = fields.map(|(name, value)| format!("{}: {}", quote(name), quote(value)));
        format!("{{{}}}\n", fields.join(", "))
    }
}

struct Request {
    target: String,
    body_bytes: u64,
    /// The connection ends after the answer.
    close: bool,
    /// HEAD: the answer has no body.
    headless: bool,
}

impl Request {
    /// The next request's head; `None` when there is none, or none that we can read.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = reader.take(HEAD_BYTES_MAX);
        let mut line = String::new();
        head.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Ok(None);
        };
        let mut request = Self {
            target: target.to_owned(),
            body_bytes: 0,
            close: words.next() != Some("HTTP/1.1"),
            headless: method == "HEAD",
        };
        loop {
            let mut line = String::new();
            if head.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim_end();
            if line.is_empty() {
                return Ok(Some(request));
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            request.heed(name, value.trim());
        }
    }

    fn heed(&mut self, name: &str, value: &str) {
        if name.eq_ignore_ascii_case("content-length") {
            let announced = value.parse().unwrap_or(u64::MAX);
            self.body_bytes = announced.min(BODY_BYTES_MAX);
            self.close |= announced > BODY_BYTES_MAX;
        } else if name.eq_ignore_ascii_case("connection") {
            self.close |= value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            // Its body is not read: what follows on the connection is no request.
            self.close = true;
        }
    }

    fn delay(&self) -> Duration {
        let query = self
            .target
            .split_once('?')
            .map_or("", |(_path, query)| query);
        let delay = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("delay=")?.parse().ok());
        Duration::from_millis(delay.unwrap_or(0).min(DELAY_MS_MAX))
    }
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Request> {
        Request::read(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn a_request_says_its_delay_and_whether_it_is_the_last() {
        let request = read("GET /a?x=1&delay=20 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(request.delay(), Duration::from_millis(20));
        assert!(!request.close);
        assert!(read("GET / HTTP/1.0\r\n\r\n").unwrap().close);
        assert!(
            read("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
                .unwrap()
                .close
        );
    }

    #[test]
    fn what_is_no_request_is_not_answered() {
        assert!(read("").is_none());
        assert!(read("nonsense\r\n\r\n").is_none());
        assert!(read("GET / HTTP/1.1\r\nhost: never ends").is_none());
        assert!(read(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000))).is_none());
    }

    #[test]
    fn a_path_is_quoted_as_json_wants_it() {
        assert_eq!(quote("a\"b\\c\u{1}ü"), "\"a\\\"b\\\\c\\u0001ü\"");
    }
}
