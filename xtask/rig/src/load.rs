//! Load that counts what goes wrong: connections that fail, datagrams that are lost, resets.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Type};

use crate::server::{LIGHT, PLAIN};
use crate::sockets::Sockets;
use crate::wait::wait;

/// Datagrams that leave at once.
const WINDOW: usize = 32;
/// Between questions over one connection, and between windows of datagrams: leaves the processor to an agent that starts.
const PAUSE: Duration = Duration::from_millis(1);
/// A datagram that is not back by then is lost: a datagram that is lost once never comes, however long the wait.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// A connection that takes longer has failed: it is less than the first segment's third repetition needs.
const CONNECT_LIMIT: Duration = Duration::from_millis(6_500);
/// A first segment is repeated after a second.
const REPEATED_AFTER: Duration = Duration::from_millis(900);
/// How many failures are described.
const FAILURES_MAX: usize = 10;

/// What a load has seen.
#[derive(Default, Debug)]
struct Tally {
    over: AtomicBool,
    done: AtomicU64,
    /// Of the connections, those that took as long as a repeated first segment takes.
    slow: AtomicU64,
    failed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Tally {
    fn fail(&self, what: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < FAILURES_MAX {
            failures.push(what);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A load that goes on until it is dropped.
#[derive(Debug)]
pub struct Load {
    what: &'static str,
    began: Instant,
    tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

/// What a load did.
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub what: &'static str,
    /// Connections, questions or datagrams that were answered.
    pub done: u64,
    /// Connections whose first segment was repeated.
    pub slow: u64,
    /// What was not answered, or wrongly.
    pub failed: u64,
    /// `done` by time.
    pub per_second: u128,
    /// The first failures.
    pub failures: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            done,
            slow,
            failed,
            per_second,
            failures,
        } = self;
        write!(f, "{what}: {done} done, {per_second} a second, ")?;
        write!(f, "{slow} slow, {failed} failed")?;
        failures
            .iter()
            .try_for_each(|failure| write!(f, "\n    {failure}"))
    }
}

impl Load {
    /// Connections to a light server, one after the other.
    pub fn connections(what: &'static str, sockets: &Sockets, to: SocketAddr) -> Self {
        Self::run(what, sockets, move |sockets, tally| {
            while !tally.is_over() {
                connect(sockets, to, tally);
            }
        })
    }

    /// One connection to an echoing server that is asked again and again.
    pub fn questions(what: &'static str, sockets: &Sockets, to: SocketAddr) -> Self {
        Self::held(what, sockets, to, 1)
    }

    /// Connections that stay open to an echoing server, all of them asked again and again.
    pub fn held(what: &'static str, sockets: &Sockets, to: SocketAddr, count: usize) -> Self {
        Self::run(what, sockets, move |sockets, tally| {
            if let Err(error) = ask_again(sockets, to, count, tally) {
                tally.fail(format!("{to}: {error}"));
            }
        })
    }

    /// Numbered datagrams of one socket to an echoing server, as many as come back.
    pub fn datagrams(what: &'static str, sockets: &Sockets, to: SocketAddr) -> Self {
        Self::run(what, sockets, move |sockets, tally| {
            let socket = sockets.datagrams(to).unwrap();
            Sockets::widen(&socket);
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            let mut flow = Datagrams {
                socket,
                to,
                next: 0,
                away: VecDeque::new(),
            };
            while !tally.is_over() {
                flow.fill(tally);
                while !flow.away.is_empty() {
                    flow.take(tally);
                }
                std::thread::sleep(PAUSE);
            }
        })
    }

    fn run(
        what: &'static str,
        sockets: &Sockets,
        work: impl Fn(&Sockets, &Tally) + Send + 'static,
    ) -> Self {
        let tally = Arc::new(Tally::default());
        let (own, counts) = (sockets.clone(), Arc::clone(&tally));
        let thread = std::thread::spawn(move || work(&own.stay(), &counts));
        Self {
            what,
            began: Instant::now(),
            tally,
            thread: Some(thread),
        }
    }

    /// How much was done so far.
    pub fn done(&self) -> u64 {
        self.tally.done.load(Ordering::Relaxed)
    }

    /// Waits until so much more is done, or something went wrong.
    pub fn go_on(&self, more: u64) {
        self.until(self.done() + more);
    }

    /// Waits until so much is done, or something went wrong.
    pub fn until(&self, goal: u64) {
        let failed = || self.tally.failed.load(Ordering::Relaxed) > 0;
        wait(&format!("the load of {} to go on", self.what), || {
            self.done() >= goal || failed()
        });
    }

    /// Ends it.
    pub fn end(mut self) -> Outcome {
        let took = self.began.elapsed();
        self.stop();
        let tally = &self.tally;
        let done = self.done();
        Outcome {
            what: self.what,
            done,
            slow: tally.slow.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
            per_second: u128::from(done) * 1_000 / took.as_millis().max(1),
            failures: tally.failures.lock().unwrap().clone(),
        }
    }

    fn stop(&mut self) {
        self.tally.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.tally.fail("the load's thread panicked".to_owned());
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One connection, until the server has sent its line.
fn connect(sockets: &Sockets, to: SocketAddr, tally: &Tally) {
    let began = Instant::now();
    let ask = || {
        let socket = sockets.socket(Domain::for_address(to), Type::STREAM)?;
        socket.set_read_timeout(Some(CONNECT_LIMIT))?;
        socket.connect_timeout(&to.into(), CONNECT_LIMIT)?;
        let mut word = [0; LIGHT.len()];
        (&socket).read_exact(&mut word)?;
        io::Result::Ok(word)
    };
    match ask() {
        Ok(word) if word[..] == *LIGHT => {
            tally.done.fetch_add(1, Ordering::Relaxed);
            if began.elapsed() > REPEATED_AFTER {
                tally.slow.fetch_add(1, Ordering::Relaxed);
            }
        }
        other => tally.fail(format!("{to} after {:?}: {other:?}", began.elapsed())),
    }
}

/// Asks over so many connections until it is over; goes on without one that fails.
fn ask_again(sockets: &Sockets, to: SocketAddr, count: usize, tally: &Tally) -> io::Result<()> {
    let greeted = (0..count).map(|_| greeted(sockets, to));
    let mut streams: Vec<_> = greeted.collect::<io::Result<_>>()?;
    let lives = |result: io::Result<()>| {
        let failure = result
            .err()
            .map(|error| tally.fail(format!("{to}: {error}")));
        failure.is_none()
    };
    while !tally.is_over() {
        streams.retain_mut(|stream| lives(stream.write_all(b"question")));
        streams.retain_mut(|stream| {
            let answered = lives(stream.read_exact(&mut [0; 8]));
            tally.done.fetch_add(answered.into(), Ordering::Relaxed);
            answered
        });
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A connection whose server has sent its line.
fn greeted(sockets: &Sockets, to: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = sockets.dial(to)?;
    let mut byte = [0; 1];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
    }
    Ok(stream)
}

/// Datagrams of one socket.
struct Datagrams {
    socket: UdpSocket,
    to: SocketAddr,
    next: u64,
    /// Those that are not back yet, oldest first.
    away: VecDeque<(u64, Instant)>,
}

impl Datagrams {
    fn fill(&mut self, tally: &Tally) {
        while self.away.len() < WINDOW {
            let number = self.next;
            self.next += 1;
            let mut datagram = [PLAIN; 9];
            datagram[1..].copy_from_slice(&number.to_be_bytes());
            match self.socket.send_to(&datagram, self.to) {
                Ok(_) => self.away.push_back((number, Instant::now())),
                Err(error) => tally.fail(format!("{} number {number}: {error}", self.to)),
            }
        }
    }

    fn take(&mut self, tally: &Tally) {
        let mut bytes = [0; 9];
        match self.socket.recv_from(&mut bytes) {
            Ok((9, from)) if from == self.to => {
                let [_, number @ ..] = bytes;
                let number = u64::from_be_bytes(number);
                let Some(place) = self.away.iter().position(|(away, _)| *away == number) else {
                    return tally.fail(format!("{} number {number} came twice", self.to));
                };
                self.away.remove(place);
                tally.done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(other) => tally.fail(format!("{}: a strange datagram {other:?}", self.to)),
            // Only then: what came while this thread did not run is not lost.
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.give_up(tally),
            Err(error) => tally.fail(format!("{}: {error}", self.to)),
        }
    }

    /// Counts those that are lost.
    fn give_up(&mut self, tally: &Tally) {
        while let Some((number, sent)) = self.away.front()
            && sent.elapsed() > LOST_AFTER
        {
            tally.fail(format!("{} number {number} is lost", self.to));
            self.away.pop_front();
        }
    }
}

/// Counts resets that come to a namespace or leave it.
#[derive(Debug)]
pub struct Resets(Sockets);

impl Resets {
    /// Counts from now on.
    pub fn count(sockets: &Sockets) -> Self {
        let rules = "table inet resets {
            counter resets { }
            chain come { type filter hook input priority -300; tcp flags & rst == rst counter name resets; }
            chain leave { type filter hook output priority -300; tcp flags & rst == rst counter name resets; }
        }";
        let add = || {
            let mut nft = Command::new("nft")
                .args(["-f", "-"])
                .stdin(Stdio::piped())
                .spawn()?;
            nft.stdin.take().unwrap().write_all(rules.as_bytes())?;
            nft.wait()
        };
        assert!(
            sockets.inside(add).unwrap().success(),
            "nft takes the rules"
        );
        Self(sockets.clone())
    }

    /// How many so far.
    pub fn so_far(&self) -> u64 {
        self.0.counted("inet resets resets")
    }
}
