//! A proxy between the agent and the API that does to requests and responses what bad networks and busy servers do: it refuses, cuts,
//! delays, repeats, and ends watches in the middle of a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::control::API;

/// Longest delay of a response, and of a part of it: requests of different kinds overtake each other.
const DELAY_MAX_MS: u64 = 40;
const PART_DELAY_MAX_US: u64 = 2_000;
/// Most bytes of a part.
const PART_MAX: usize = 700;
/// Most bytes before a response ends early: some events.
const CUT_MAX: usize = 6_000;
/// Most lines before an error ends a watch.
const LINES_MAX: usize = 6;

/// What happens to a request or to its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mishap {
    None,
    /// No response.
    Refused,
    /// This status.
    Status(u16),
    /// It ends after so many bytes: without its end, or as if it were whole.
    Cut(usize, bool),
    /// Lines come twice.
    Repeated,
    /// An ERROR event of 410 after so many lines.
    Expired(usize),
}

impl Mishap {
    fn random(random: &mut Rng, watches: bool) -> Self {
        match random.u8(0..10) {
            0 => Self::Refused,
            1 => Self::Status([410, 429, 500, 503][random.usize(0..4)]),
            2..=4 => Self::Cut(random.usize(0..CUT_MAX), false),
            5 => Self::Cut(random.usize(0..CUT_MAX), true),
            6 | 7 if watches => Self::Repeated,
            8 if watches => Self::Expired(random.usize(0..LINES_MAX)),
            _ => Self::None,
        }
    }
}

/// A running proxy.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_calm: AtomicBool,
    mishaps: AtomicU64,
}

impl Proxy {
    /// Starts it; `seed` decides on the mishaps.
    pub(crate) fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            let mut seeds = Rng::with_seed(seed);
            for client in listener.incoming().flatten() {
                let (shared, random) = (Arc::clone(&serving), seeds.fork());
                // A connection that breaks is what this proxy is for.
                thread::spawn(move || drop(shared.serve(client, random)));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://[::1]:{}", self.port)
    }

    /// From now on new requests are passed on as they are.
    pub(crate) fn calm(&self) {
        self.shared.is_calm.store(true, Ordering::Relaxed);
    }

    /// How many requests or responses it has disturbed.
    pub(crate) fn mishaps(&self) -> u64 {
        self.shared.mishaps.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream, mut random: Rng) -> io::Result<()> {
        let target = read_target(&client)?;
        let watches = target.contains("watch=");
        let mishap = if self.is_calm.load(Ordering::Relaxed) {
            Mishap::None
        } else {
            thread::sleep(Duration::from_millis(random.u64(0..DELAY_MAX_MS)));
            Mishap::random(&mut random, watches)
        };
        if mishap != Mishap::None {
            self.mishaps.fetch_add(1, Ordering::Relaxed);
        }
        match mishap {
            Mishap::Refused => Ok(()),
            Mishap::Status(code) => refuse(&mut client, code),
            _ => {
                let mut relay = Relay {
                    client,
                    mishap,
                    random,
                    sent: 0,
                    lines: 0,
                };
                relay.run(&target)
            }
        }
    }
}

/// Reads the head of a request.
fn read_target(client: &TcpStream) -> io::Result<String> {
    let mut lines = BufReader::new(client).lines();
    let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let first = lines.next().ok_or_else(missing)??;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    first
        .split(' ')
        .nth(1)
        .map(str::to_owned)
        .ok_or_else(missing)
}

/// As a busy server does: the body is plain text.
fn refuse(client: &mut TcpStream, code: u16) -> io::Result<()> {
    let body = "Too many requests, please try again later.\n";
    write!(
        client,
        "HTTP/1.1 {code} -\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A response on its way to the agent.
struct Relay {
    client: TcpStream,
    mishap: Mishap,
    random: Rng,
    sent: usize,
    lines: usize,
}

impl Relay {
    fn run(&mut self, target: &str) -> io::Result<()> {
        let mut server = TcpStream::connect(API)?;
        // By HTTP/1.0 the body ends with the connection, and is cut into other parts here.
        write!(
            server,
            "GET {target} HTTP/1.0\r\nhost: api\r\naccept: application/json\r\n\r\n"
        )?;
        let mut server = BufReader::new(server);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if server.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let status = head.split(' ').nth(1).unwrap_or_default();
        write!(
            self.client,
            "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )?;
        match self.mishap {
            Mishap::Repeated | Mishap::Expired(_) => self.pass_lines(server)?,
            _ => self.pass_bytes(server)?,
        }
        Ok(())
    }

    fn pass_bytes(&mut self, mut server: impl Read) -> io::Result<()> {
        let mut buffer = [0; PART_MAX];
        loop {
            let length = server.read(&mut buffer)?;
            if length == 0 {
                return self.end();
            }
            let part = &buffer[..length];
            if let Mishap::Cut(after, whole) = self.mishap
                && self.sent + length > after
            {
                self.send(&part[..after - self.sent])?;
                return if whole { self.end() } else { Ok(()) };
            }
            self.send(part)?;
        }
    }

    fn pass_lines(&mut self, mut server: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while server.read_until(b'\n', &mut line)? > 0 {
            if let Mishap::Expired(after) = self.mishap
                && self.lines == after
            {
                let error = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";
                self.send(error.as_bytes())?;
                return self.end();
            }
            self.send(&line)?;
            if self.mishap == Mishap::Repeated && self.random.bool() {
                self.send(&line)?;
            }
            self.lines += 1;
            line.clear();
        }
        self.end()
    }

    /// Sends bytes in parts, each after a moment.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = self.random.usize(1..=PART_MAX).min(rest.len());
            let (part, more) = rest.split_at(length);
            thread::sleep(Duration::from_micros(self.random.u64(0..PART_DELAY_MAX_US)));
            write!(self.client, "{length:x}\r\n")?;
            self.client.write_all(part)?;
            self.client.write_all(b"\r\n")?;
            self.sent += length;
            rest = more;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.client.write_all(b"0\r\n\r\n")
    }
}
