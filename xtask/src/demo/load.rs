//! HTTP clients of apps, one connection per request, with counters of their results.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::report::{Bound, Row};

/// Limit after which a request counts as failed; a cold start on a busy machine takes a second or two.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// An HTTP response.
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The whole body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A field of the JSON object in a response of `dormouse-hello`.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get(name)?.as_str()?.to_owned())
    }
}

/// Gets `path` over a connection of its own.
pub(crate) fn get(app: SocketAddrV6, path: &str) -> io::Result<Answer> {
    get_within(app, path, REPLY_TIMEOUT)
}

/// As [`get`], with a limit on each wait.
pub(crate) fn get_within(app: SocketAddrV6, path: &str, limit: Duration) -> io::Result<Answer> {
    exchange(
        TcpStream::connect_timeout(&SocketAddr::V6(app), limit)?,
        app,
        path,
        limit,
    )
}

/// As [`get`], from this address of the client.
pub(crate) fn get_from(client: Ipv6Addr, app: SocketAddrV6, path: &str) -> io::Result<Answer> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((client, 0)).into())?;
    socket.connect_timeout(&SocketAddr::V6(app).into(), REPLY_TIMEOUT)?;
    exchange(socket.into(), app, path, REPLY_TIMEOUT)
}

fn exchange(
    mut stream: TcpStream,
    app: SocketAddrV6,
    path: &str,
    limit: Duration,
) -> io::Result<Answer> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: [{}]\r\nconnection: close\r\n\r\n",
        app.ip()
    );
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the response is truncated"))
}

/// Status and body of a complete response; `None` if the body is shorter than its content length.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end])
        .ok()?
        .to_ascii_lowercase();
    let body = bytes[end + 4..].to_vec();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let announced = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    match announced.map(|length| length.trim().parse::<usize>()) {
        Some(Ok(length)) if length != body.len() => None,
        _ => Some(Answer { status, body }),
    }
}

/// Results of a number of requests.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Responses with status 200.
    pub(crate) answered: u64,
    /// Reasons of failures, up to [`Outcome::REASONS_MAX`] of them.
    pub(crate) reasons: Vec<String>,
    /// Failed requests.
    pub(crate) failed: u64,
    /// Responses by pod.
    pub(crate) by_pod: BTreeMap<String, u64>,
}

impl Outcome {
    const REASONS_MAX: usize = 5;

    /// The row of failed requests, with the first reason after its name: there must be none.
    pub(crate) fn none_failed(&self, name: &str) -> Row {
        let reason = self.reasons.first().map_or("", String::as_str);
        let row = Row::counted(&format!("{name} {reason}"), self.failed, "");
        row.must(Bound::AtMost(0.0))
    }

    fn count(&mut self, answer: io::Result<Answer>) {
        match answer {
            Ok(answer) if answer.status == 200 => {
                self.answered += 1;
                if let Some(pod) = answer.field("pod") {
                    *self.by_pod.entry(pod).or_default() += 1;
                }
            }
            Ok(answer) => {
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                self.fail(format!("{} {}", answer.status, body.trim()));
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, reason: String) {
        self.failed += 1;
        if self.reasons.len() < Self::REASONS_MAX {
            self.reasons.push(reason);
        }
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.reasons.extend(other.reasons);
        self.reasons.truncate(Self::REASONS_MAX);
        for (pod, count) in other.by_pod {
            *self.by_pod.entry(pod).or_default() += count;
        }
    }

    /// The smallest share of one pod in all responses; 0 if fewer than `pods` pods responded.
    pub(crate) fn smallest_share(&self, pods: usize) -> f64 {
        let total: u64 = self.by_pod.values().sum();
        if self.by_pod.len() < pods || total == 0 {
            return 0.0;
        }
        self.by_pod.values().copied().min().unwrap_or(0) as f64 / total as f64
    }
}

/// Runs `worker` on `count` threads and adds up their results.
fn on_threads(count: usize, worker: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let mut total = Outcome::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..count)
            .map(|i| {
                scope.spawn({
                    let worker = &worker;
                    move || worker(i)
                })
            })
            .collect();
        for thread in running {
            match thread.join() {
                Ok(outcome) => total.add(outcome),
                Err(_) => total.fail("a client thread panicked".into()),
            }
        }
    });
    total
}

/// `workers` clients, each of which sends its next request when it has a response, until `stop`.
pub(crate) fn saturate(
    app: SocketAddrV6,
    path: &str,
    workers: usize,
    stop: &AtomicBool,
) -> Outcome {
    on_threads(workers, |_| {
        let mut outcome = Outcome::default();
        while !stop.load(Ordering::Relaxed) {
            outcome.count(get(app, path));
        }
        outcome
    })
}

/// This many requests, as fast as they are answered.
pub(crate) fn count(app: SocketAddrV6, path: &str, requests: u32) -> Outcome {
    const WORKERS: u32 = 8;
    let taken = AtomicU32::new(0);
    on_threads(WORKERS as usize, |_| {
        let mut outcome = Outcome::default();
        while taken.fetch_add(1, Ordering::Relaxed) < requests {
            outcome.count(get(app, path));
        }
        outcome
    })
}

/// New connections at a fixed rate for `length`, independent of response times; returns the achieved rate too.
pub(crate) fn steady(
    app: SocketAddrV6,
    path: &str,
    per_second: u32,
    length: Duration,
) -> (Outcome, f64) {
    let end = Instant::now() + length;
    paced(app, path, per_second, |next| next < end)
}

/// As [`steady`], until `stop`.
pub(crate) fn steady_until(
    app: SocketAddrV6,
    path: &str,
    per_second: u32,
    stop: &AtomicBool,
) -> (Outcome, f64) {
    paced(app, path, per_second, |_| !stop.load(Ordering::Relaxed))
}

/// `goes_on`: whether the request of this time is sent.
fn paced(
    app: SocketAddrV6,
    path: &str,
    per_second: u32,
    goes_on: impl Fn(Instant) -> bool + Sync,
) -> (Outcome, f64) {
    const WORKERS: u32 = 16;
    let begin = Instant::now();
    let gap = Duration::from_secs(1) * WORKERS / per_second;
    let outcome = on_threads(WORKERS as usize, |worker| {
        let mut outcome = Outcome::default();
        let mut next = begin + gap * u32::try_from(worker).unwrap_or(0) / WORKERS;
        while goes_on(next) {
            // Pacing, not synchronisation: requests are sent at even intervals.
            thread::sleep(next.saturating_duration_since(Instant::now()));
            outcome.count(get(app, path));
            next += gap;
        }
        outcome
    });
    let rate = (outcome.answered + outcome.failed) as f64 / begin.elapsed().as_secs_f64();
    (outcome, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_response_is_an_error() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(parse(whole).expect("whole").status, 200);
        assert!(
            parse(&whole[..whole.len() - 1]).is_none(),
            "a cut body must not pass"
        );
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_none());
    }

    #[test]
    fn the_smallest_share_counts_pods_without_responses() {
        let mut outcome = Outcome::default();
        outcome.by_pod.insert("a".into(), 30);
        outcome.by_pod.insert("b".into(), 70);
        assert!((outcome.smallest_share(2) - 0.3).abs() < 1e-9);
        assert!(outcome.smallest_share(3).abs() < 1e-9);
    }
}
