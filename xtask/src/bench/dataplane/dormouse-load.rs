//! The load of `cargo xtask bench dataplane` and `flood`: a client of short TCP connections, the server for them, and a scan.
//!
//! It is a program of its own so that it runs in a pod's namespace and cgroup, and is a release build like the measured
//! programs.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use socket2::{Domain, Protocol, Socket, Type};

/// Size of request and reply, in bytes: one segment on any link.
const MESSAGE_BYTES: usize = 64;
/// A connection that takes longer has failed; on a link without losses none takes a hundredth of this.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval at which the server checks whether its time is over.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Segments of a scan between two looks at the clock.
const SCAN_BATCH: u64 = 64;
/// Stack of a server's thread, in bytes.
const STACK_BYTES: usize = 128 * 1024;

/// Client or server of short TCP connections, or a scan of addresses
#[derive(Parser)]
enum Arguments {
    /// Connect, send a request, read the reply to its end and close, repeatedly
    Client {
        /// Length of the measurement
        #[arg(long)]
        milliseconds: u64,
        /// Number of threads, each with one connection at a time
        #[arg(long)]
        threads: usize,
        /// Connections that begin in a second, however long earlier ones take; as many as possible without it
        #[arg(long)]
        per_second: Option<u32>,
        /// Own addresses, in turn
        #[arg(long, value_delimiter = ',')]
        from: Vec<Ipv6Addr>,
        /// Servers, in turn
        #[arg(required = true)]
        targets: Vec<SocketAddr>,
    },
    /// Send the first segment of a connection to each of many addresses, in turn, and ignore the replies
    Scan {
        /// Segments in a second; as many as possible without it
        #[arg(long)]
        per_second: Option<f64>,
        /// Own address
        #[arg(long)]
        from: Ipv6Addr,
        /// Number of addresses
        #[arg(long)]
        addresses: u32,
        /// Length of the scan, which begins again with the first address; without it, one segment to each
        #[arg(long)]
        milliseconds: Option<u64>,
        /// The first address, and the port
        first: SocketAddrV6,
    },
    /// Accept connections and reply
    Server {
        /// Port to listen on
        #[arg(long)]
        port: u16,
        /// Lifetime of the server: it ends even if the benchmark is killed
        #[arg(long)]
        seconds: u64,
        /// Number of concurrent connections
        #[arg(long)]
        threads: usize,
    },
}

fn main() -> io::Result<()> {
    match Arguments::parse() {
        Arguments::Client {
            milliseconds,
            threads,
            per_second,
            from,
            targets,
        } => {
            let load = Load {
                targets,
                from,
                per_second,
                length: Duration::from_millis(milliseconds),
            };
            writeln!(io::stdout(), "{}", load.run(threads).json())
        }
        Arguments::Scan {
            per_second,
            from,
            addresses,
            milliseconds,
            first,
        } => {
            let scan = Scan {
                first,
                addresses,
                from,
                per_second,
                length: milliseconds.map(Duration::from_millis),
            };
            writeln!(io::stdout(), "{}", scan.run()?)
        }
        Arguments::Server {
            port,
            seconds,
            threads,
        } => serve(port, threads, Duration::from_secs(seconds)),
    }
}

/// Results of the connections.
#[derive(Default)]
struct Outcome {
    connections: u64,
    failures: u64,
    reason: Option<String>,
    seconds: f64,
    /// The time of each answered connection, from when it was due.
    took: Vec<Duration>,
}

impl Outcome {
    fn count(&mut self, exchanged: io::Result<()>, took: Duration) {
        match exchanged {
            Ok(()) => {
                self.connections += 1;
                self.took.push(took);
            }
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
        self.took.extend(other.took);
    }

    fn json(mut self) -> serde_json::Value {
        self.took.sort_unstable();
        // By nearest rank, in microseconds.
        let percentile = |thousandths: usize| {
            let rank = (self.took.len() * thousandths).div_ceil(1_000).max(1);
            let took = self.took.get(rank - 1).copied().unwrap_or_default();
            took.as_secs_f64() * 1e6
        };
        serde_json::json!({
            "connections": self.connections,
            "failures": self.failures,
            "reason": self.reason,
            "seconds": self.seconds,
            "p50": percentile(500),
            "p99": percentile(990),
            "p99.9": percentile(999),
        })
    }
}

/// The connections of a client.
struct Load {
    targets: Vec<SocketAddr>,
    from: Vec<Ipv6Addr>,
    per_second: Option<u32>,
    length: Duration,
}

impl Load {
    fn run(&self, threads: usize) -> Outcome {
        let turn = AtomicUsize::new(0);
        let began = Instant::now();
        let mut total = Outcome::default();
        thread::scope(|scope| {
            let work = || self.connect_repeatedly(&turn, began);
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for thread in running {
                let panicked = |_| Outcome {
                    failures: 1,
                    reason: Some("a thread panicked".to_owned()),
                    ..Outcome::default()
                };
                total.add(thread.join().unwrap_or_else(panicked));
            }
        });
        total.seconds = began.elapsed().as_secs_f64();
        total
    }

    fn connect_repeatedly(&self, turn: &AtomicUsize, began: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            let due = match self.per_second {
                Some(rate) => began + Duration::from_secs_f64(turn as f64 / f64::from(rate)),
                None => Instant::now(),
            };
            if due.duration_since(began) >= self.length {
                return outcome;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let target = self.targets[turn % self.targets.len()];
            let from = self.from.get(turn % self.from.len().max(1)).copied();
            let exchanged = exchange(target, from);
            outcome.count(exchanged, due.elapsed());
        }
    }
}

/// One connection. The server closes first, so the client's port is free at once (no TIME_WAIT).
fn exchange(target: SocketAddr, from: Option<Ipv6Addr>) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::from((from, 0)).into())?;
    }
    socket.connect_timeout(&target.into(), PATIENCE)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[b'?'; MESSAGE_BYTES])?;
    let mut reply = [0; MESSAGE_BYTES];
    stream.read_exact(&mut reply)?;
    if stream.read(&mut reply)? == 0 {
        return Ok(());
    }
    Err(io::Error::other("the reply is too long"))
}

/// SYNs to addresses in turn.
struct Scan {
    first: SocketAddrV6,
    addresses: u32,
    from: Ipv6Addr,
    per_second: Option<f64>,
    length: Option<Duration>,
}

impl Scan {
    /// Sends them; returns the number of those that the kernel took, and the time.
    fn run(&self) -> io::Result<serde_json::Value> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        let began = Instant::now();
        let (mut number, mut sent) = (0, 0_u64);
        loop {
            let end = number + self.batch(number, began);
            if number == end {
                break;
            }
            self.pace(number, began);
            sent += (number..end)
                .map(|number| u64::from(self.send(&socket, number)))
                .sum::<u64>();
            number = end;
        }
        let seconds = began.elapsed().as_secs_f64();
        Ok(serde_json::json!({ "sent": sent, "seconds": seconds }))
    }

    /// Segments until the next look at the clock; none at the end.
    fn batch(&self, number: u64, began: Instant) -> u64 {
        match self.length {
            Some(length) if began.elapsed() >= length => 0,
            Some(_) => SCAN_BATCH,
            None => SCAN_BATCH.min(u64::from(self.addresses) - number),
        }
    }

    /// Waits until the segment is due.
    fn pace(&self, number: u64, began: Instant) {
        let Some(per_second) = self.per_second else {
            return;
        };
        let due = began + Duration::from_secs_f64(number as f64 / per_second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    fn send(&self, socket: &Socket, number: u64) -> bool {
        let number = number % u64::from(self.addresses);
        let target = Ipv6Addr::from_bits(self.first.ip().to_bits() + u128::from(number));
        // Of a raw socket, the address has no port.
        let to = SocketAddr::from((target, 0));
        let segment = syn(self.from, target, self.first.port());
        socket.send_to(&segment, &to.into()).is_ok()
    }
}

/// A SYN from port 40,000 (RFC 9293 3.1).
fn syn(from: Ipv6Addr, target: Ipv6Addr, port: u16) -> [u8; 20] {
    let [high, low] = port.to_be_bytes();
    let mut segment = [
        0x9c, 0x40, high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let length_and_protocol = [0, 20, 0, 6];
    let words = [
        &from.octets()[..],
        &target.octets(),
        &length_and_protocol,
        &segment,
    ]
    .concat();
    let words = words.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    segment[16..18].copy_from_slice(&[high, low]);
    segment
}

fn serve(port: u16, threads: usize, length: Duration) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    for _ in 0..threads {
        let listener = listener.try_clone()?;
        // Threads are not joined: they may block in accept(2) when the time is over.
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
            // A failed connection is counted by its client.
            Ok((stream, _client)) => drop(reply(stream)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

fn reply(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; MESSAGE_BYTES];
    stream.read_exact(&mut request)?;
    stream.write_all(&[b'!'; MESSAGE_BYTES])
}
