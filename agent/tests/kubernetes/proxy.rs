//! A proxy between the agent and the API that does to requests and responses what bad networks and busy servers do: it refuses, cuts,
//! delays, repeats, and ends watches in the middle of a line.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::control::API;

/// Longest delay of a response, and of a part of it: responses of different kinds overtake each other.
const DELAY_MAX_MS: u64 = 40;
const PART_DELAY_MAX_US: u64 = 2_000;
/// Most bytes of a part.
const PART_MAX: usize = 700;
/// Most bytes before a response ends early: some events.
const CUT_MAX: usize = 6_000;
/// Most lines before an error ends a watch.
const LINES_MAX: usize = 6;
/// Most lines of a watch of which some come twice.
const TWICE_MAX: usize = 30;

/// What happens to a request or to its response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mishap {
    /// The connection is closed without a response.
    Refused,
    /// The response has this status.
    Status(u16),
    /// The response breaks off.
    Cut,
    /// The response ends early, as if it were whole.
    Ended,
    /// Lines come twice.
    Repeated,
    /// An ERROR event of 410 ends the watch.
    Expired,
}

impl Mishap {
    const ALL: [Self; 9] = [
        Self::Refused,
        Self::Status(410),
        Self::Status(429),
        Self::Status(500),
        Self::Status(503),
        Self::Cut,
        Self::Ended,
        Self::Repeated,
        Self::Expired,
    ];

    /// One of all, or none. A watch ends in any case: undisturbed ones would stay, and nothing more would happen.
    fn draw(random: &mut Rng, watches: bool) -> Option<Self> {
        let drawn = Self::ALL.get(random.usize(0..=Self::ALL.len())).copied();
        let drawn = drawn.or_else(|| watches.then_some(Self::Ended));
        drawn.filter(|drawn| watches || !matches!(drawn, Self::Repeated | Self::Expired))
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
    /// How often each has happened.
    mishaps: Mutex<BTreeMap<Mishap, u64>>,
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
                thread::spawn(move || drop(serve(&shared, client, random)));
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
        self.shared.mishaps.lock().values().sum()
    }

    /// Whether each kind of mishap has happened.
    pub(crate) fn has_done_all(&self) -> bool {
        self.shared.mishaps.lock().len() == Mishap::ALL.len()
    }
}

impl Shared {
    fn note(&self, mishap: Mishap) {
        *self.mishaps.lock().entry(mishap).or_default() += 1;
    }
}

fn serve(shared: &Shared, mut client: TcpStream, mut random: Rng) -> io::Result<()> {
    let target = read_target(&client)?;
    let mut mishap = None;
    if !shared.is_calm.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(random.u64(0..DELAY_MAX_MS)));
        mishap = Mishap::draw(&mut random, target.contains("watch="));
    }
    match mishap {
        Some(Mishap::Refused) => {
            shared.note(Mishap::Refused);
            Ok(())
        }
        Some(Mishap::Status(code)) => {
            shared.note(Mishap::Status(code));
            refuse(&mut client, code)
        }
        _ => Relay::new(shared, client, mishap, random).run(&target),
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
    let target = first.split(' ').nth(1).map(str::to_owned);
    target.ok_or_else(missing)
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

/// A response that is passed on to the agent.
struct Relay<'a> {
    shared: &'a Shared,
    client: TcpStream,
    mishap: Option<Mishap>,
    random: Rng,
    sent: usize,
}

impl<'a> Relay<'a> {
    fn new(shared: &'a Shared, client: TcpStream, mishap: Option<Mishap>, random: Rng) -> Self {
        Self {
            shared,
            client,
            mishap,
            random,
            sent: 0,
        }
    }

    fn run(&mut self, target: &str) -> io::Result<()> {
        let mut server = TcpStream::connect(API)?;
        // By HTTP/1.0 the body ends with the connection, and is cut into other parts here.
        write!(
            server,
            "GET {target} HTTP/1.0\r\nhost: localhost\r\naccept: application/json\r\n\r\n"
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
            Some(mishap @ (Mishap::Cut | Mishap::Ended)) => self.pass_some(server, mishap),
            Some(Mishap::Repeated) => self.pass_twice(server),
            Some(Mishap::Expired) => self.pass_lines(server),
            _ => self.pass_all(server),
        }
    }

    fn pass_all(&mut self, mut server: impl Read) -> io::Result<()> {
        let mut buffer = [0; PART_MAX];
        loop {
            match server.read(&mut buffer)? {
                0 => return self.end(),
                length => self.send(&buffer[..length])?,
            }
        }
    }

    /// Passes a part of the body.
    fn pass_some(&mut self, mut server: impl Read, mishap: Mishap) -> io::Result<()> {
        let most = self.random.usize(0..CUT_MAX);
        let mut buffer = [0; PART_MAX];
        loop {
            let length = server.read(&mut buffer)?;
            if length == 0 {
                return self.end();
            }
            let room = most - self.sent;
            self.send(&buffer[..length.min(room)])?;
            if length > room {
                self.shared.note(mishap);
                let is_cut = mishap == Mishap::Cut;
                return if is_cut { Ok(()) } else { self.end() };
            }
        }
    }

    /// Passes some lines, of which about half come twice.
    fn pass_twice(&mut self, server: impl BufRead) -> io::Result<()> {
        for line in server.split(b'\n').take(TWICE_MAX) {
            let mut line = line?;
            line.push(b'\n');
            self.send(&line)?;
            if self.random.bool() {
                self.shared.note(Mishap::Repeated);
                self.send(&line)?;
            }
        }
        self.end()
    }

    /// Passes some lines, and an error after them.
    fn pass_lines(&mut self, server: impl BufRead) -> io::Result<()> {
        let most = self.random.usize(0..LINES_MAX);
        for line in server.split(b'\n').take(most) {
            let mut line = line?;
            line.push(b'\n');
            self.send(&line)?;
        }
        self.shared.note(Mishap::Expired);
        let error = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";
        self.send(error.as_bytes())?;
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
