//! The load of `cargo xtask bench dataplane`: short TCP connections as fast as they go, and the server that answers them.
//!
//! A program of its own, so that it can live in a pod's namespace and cgroup, and is optimised like what it measures.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

/// Both messages: what fits one segment on any link.
const MESSAGE_BYTES: usize = 64;
/// A connection that takes longer has failed; on a link without losses none takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a server without clients looks whether its time is over.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A thread needs little.
const STACK_BYTES: usize = 128 * 1024;

/// Asks, or answers.
#[derive(Parser)]
enum Arguments {
    /// Connects, asks, reads the answer to its end and closes, again and again.
    Ask {
        /// For how long.
        #[arg(long)]
        milliseconds: u64,
        /// By how many threads, each with one connection at a time.
        #[arg(long)]
        threads: usize,
        /// Where to, in turns.
        #[arg(required = true)]
        targets: Vec<SocketAddr>,
    },
    /// Answers, and ends by itself after some time, so that none outlives its bench for long.
    Answer {
        /// Where to listen.
        #[arg(long)]
        port: u16,
        /// For how long.
        #[arg(long)]
        seconds: u64,
        /// How many connections at a time.
        #[arg(long)]
        threads: usize,
    },
}

fn main() -> io::Result<()> {
    match Arguments::parse() {
        Arguments::Ask {
            milliseconds,
            threads,
            targets,
        } => {
            let outcome = ask(&targets, threads, Duration::from_millis(milliseconds));
            writeln!(io::stdout(), "{}", outcome.json())
        }
        Arguments::Answer {
            port,
            seconds,
            threads,
        } => answer(port, threads, Duration::from_secs(seconds)),
    }
}

/// What became of the connections.
#[derive(Default)]
struct Outcome {
    connections: u64,
    failures: u64,
    reason: Option<String>,
    seconds: f64,
}

impl Outcome {
    fn count(&mut self, exchanged: io::Result<()>) {
        match exchanged {
            Ok(()) => self.connections += 1,
            Err(error) => {
                self.failures += 1;
                self.reason.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.failures += other.failures;
        self.reason = self.reason.take().or(other.reason);
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "connections": self.connections,
            "failures": self.failures,
            "reason": self.reason,
            "seconds": self.seconds,
        })
    }
}

fn ask(targets: &[SocketAddr], threads: usize, length: Duration) -> Outcome {
    let turn = AtomicUsize::new(0);
    let began = Instant::now();
    let work = || {
        let mut outcome = Outcome::default();
        while began.elapsed() < length {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            outcome.count(exchange(targets[turn % targets.len()]));
        }
        outcome
    };
    let mut total = Outcome::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in running {
            let died = |_| Outcome {
                failures: 1,
                reason: Some("a thread panicked".to_owned()),
                ..Outcome::default()
            };
            total.add(thread.join().unwrap_or_else(died));
        }
    });
    total.seconds = began.elapsed().as_secs_f64();
    total
}

/// One connection. The server closes first, so that the client's ports are free again at once.
fn exchange(target: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[b'?'; MESSAGE_BYTES])?;
    let mut answer = [0; MESSAGE_BYTES];
    stream.read_exact(&mut answer)?;
    if stream.read(&mut answer)? == 0 {
        return Ok(());
    }
    Err(io::Error::other("the answer is too long"))
}

fn answer(port: u16, threads: usize, length: Duration) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    for _ in 0..threads {
        let listener = listener.try_clone()?;
        // A thread is never waited for: it may sit in accept(2) when the time is over.
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || accept(&listener))?;
    }
    let began = Instant::now();
    while began.elapsed() < length {
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn accept(listener: &TcpListener) {
    loop {
        match listener.accept() {
            // A client that breaks off is its own affair, and counted there.
            Ok((stream, _client)) => drop(converse(stream)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

fn converse(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut question = [0; MESSAGE_BYTES];
    stream.read_exact(&mut question)?;
    stream.write_all(&[b'!'; MESSAGE_BYTES])
}
