//! kill -9 of the agent and of `dormouse up` in turn, under connections and changes of endpoints: none fails, and none reaches an endpoint
//! that is gone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dormouse_rig::node::python_in;
use dormouse_rig::{Node, ip, on_node};
use fastrand::Rng;
use nix::time::{ClockId, clock_gettime};

use crate::control::{self, Control};
use crate::{start, wait_for, wait_for_any, wait_for_log};

/// Duration of the load, in seconds, unless the variable names another.
const SECONDS: u64 = 30;
const SECONDS_VARIABLE: &str = "DORMOUSE_KILLS_SECONDS";
/// Services under load, and the hosts from which each has two endpoints.
const SERVICES: u16 = 5;
const HOSTS: u16 = 20;
/// The Service by which the test finds out that changes reach the kernel.
const MARKER: u16 = 90;
const CHANGE_EVERY: Duration = Duration::from_millis(10);
/// Time for which an endpoint that is gone may still get connections, while server and agent run.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Least share of the connections that the client is to make.
const CONNECTIONS_MIN: u64 = 200;

/// Connections, 1,000 in a second, to the Services in turn; a line for each: when it began, the Service, and the server's address.
const CLIENT: &str = "
import socket, time
begin = time.monotonic_ns()
for number in range(1 << 40):
    time.sleep(max(0, begin + number * 1_000_000 - time.monotonic_ns()) / 1e9)
    service, now = 1 + number % 5, time.monotonic_ns()
    try:
        with socket.create_connection((f'fd00:20::{service}', 80), 5) as connection:
            print(now, service, connection.recv(64).decode() or 'closed', flush=True)
    except OSError as error:
        print(now, service, repr(error).replace(' ', '_'), flush=True)
";

/// A moment on the clock of client and test, in nanoseconds.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

/// When endpoints were gone, and when agent or server did not run.
#[derive(Default)]
struct History {
    /// By Service and host: since when it is an endpoint, or is none.
    endpoints: BTreeMap<(u16, u16), Vec<(Duration, bool)>>,
    /// From a kill until changes reach the kernel again.
    down: Vec<(Duration, Duration)>,
}

impl History {
    fn note(&mut self, service: u16, host: u16, at: Duration, exists: bool) {
        let changes = self.endpoints.entry((service, host)).or_default();
        changes.push((at, exists));
    }

    /// Since when a host is no endpoint of a Service at this moment; none: it is one.
    fn gone_since(&self, service: u16, host: u16, at: Duration) -> Option<Duration> {
        let changes = self.endpoints.get(&(service, host))?;
        let last = changes.iter().rev().find(|(time, _)| *time <= at);
        match last {
            Some((_, true)) => None,
            Some((time, false)) => Some(*time),
            None => Some(Duration::ZERO),
        }
    }

    /// How long server and agent ran in this time.
    fn up_between(&self, from: Duration, to: Duration) -> Duration {
        let down = self.down.iter().map(|(begin, end)| {
            let (begin, end) = ((*begin).max(from), (*end).min(to));
            end.saturating_sub(begin)
        });
        to.saturating_sub(from).saturating_sub(down.sum())
    }

    /// Why a connection is wrong, if it is.
    fn judge(&self, line: &str) -> Option<String> {
        let words: Vec<_> = line.split(' ').collect();
        let [at, service, server] = words[..] else {
            return Some(format!("no line of a connection: {line}"));
        };
        let (at, service) = (
            Duration::from_nanos(at.parse().unwrap()),
            service.parse().unwrap(),
        );
        let Ok(IpAddr::V6(server)) = server.parse() else {
            return Some(format!("failed: {line}"));
        };
        // The last part of an address has the digits of the host's number.
        let host = format!("{:x}", server.segments()[7]).parse().unwrap();
        if !self.endpoints.contains_key(&(service, host)) {
            return Some(format!("never an endpoint: {line}"));
        }
        let since = self.gone_since(service, host, at)?;
        let late = self.up_between(since, at);
        (late > LATE_MAX).then(|| format!("gone for {late:?}: {line}"))
    }
}

/// Changes endpoints until it is over.
fn change(history: &Mutex<History>, is_over: &AtomicBool) {
    let mut random = Rng::with_seed(9);
    let mut current: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let service = random.u16(1..=SERVICES);
        let first = random.u16(1..=HOSTS);
        let hosts = vec![first, 1 + first % HOSTS];
        let old = current.insert(service, hosts.clone()).unwrap_or_default();
        // An endpoint exists from the request on, and is gone from the answer on.
        let new = hosts.iter().filter(|host| !old.contains(host));
        let began = now();
        new.for_each(|host| history.lock().unwrap().note(service, *host, began, true));
        control::put(service, &hosts);
        let done = now();
        let gone = old.iter().filter(|host| !hosts.contains(host));
        gone.for_each(|host| history.lock().unwrap().note(service, *host, done, false));
        next = (next + CHANGE_EVERY).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Answers each connection with the address that it reached.
fn serve() {
    let listener = TcpListener::bind("[::]:8080").unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let address = connection.local_addr().unwrap().ip().to_string();
            // A client that has gone needs no answer.
            let _ = connection.write_all(address.as_bytes());
        }
    });
}

/// The client, and its lines so far.
struct Client {
    process: Child,
    lines: JoinHandle<Vec<String>>,
}

impl Client {
    fn start(node: &Node) -> Self {
        let mut command = python_in(node.cgroup(), CLIENT);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let lines = thread::spawn(move || output.lines().map_while(Result::ok).collect());
        Self { process, lines }
    }

    fn end(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.lines.join().unwrap()
    }
}

fn seconds() -> u64 {
    let named = std::env::var(SECONDS_VARIABLE).ok();
    named.map_or(SECONDS, |text| text.parse().unwrap())
}

#[test]
fn connections_fail_and_reach_gone_endpoints_never_while_agent_and_server_are_killed() {
    on_node(|node| {
        node.take_address();
        ip("-6 route add local 2001:db8:77::/64 dev lo");
        serve();
        let mut control = Control::start(node);
        let history: Arc<Mutex<History>> = Arc::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let url = format!("http://{}", control::API);
        let log = node.dir().join("log");
        let mut agent = start(node, &url, &log);
        let changes = thread::spawn({
            let (history, is_over) = (Arc::clone(&history), Arc::clone(&is_over));
            move || change(&history, &is_over)
        });
        for service in 1..=SERVICES {
            wait_for_any(node, service);
        }
        let client = Client::start(node);
        let began = Instant::now();
        for turn in 0.. {
            if began.elapsed() > Duration::from_secs(seconds()) {
                break;
            }
            let killed = now();
            if turn % 2 == 0 {
                agent.kill();
                agent = start(node, &url, &log);
                wait_for_log(&log, "services are programmed");
            } else {
                control.crash();
                control.revive();
            }
            let host = 1 + turn % 99;
            control::put(MARKER, &[host]);
            wait_for(node, MARKER, &[host]);
            history.lock().unwrap().down.push((killed, now()));
            // Both run for a while.
            thread::sleep(2 * LATE_MAX);
        }
        let took = began.elapsed();
        let connections = client.end();
        is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap();
        let history = history.lock().unwrap();
        let wrong: Vec<_> = connections
            .iter()
            .filter_map(|line| history.judge(line))
            .collect();
        let (all, kills) = (connections.len() as u64, history.down.len());
        println!(
            "{all} connections in {took:?}, {kills} kills, {} wrong",
            wrong.len()
        );
        let first: Vec<_> = wrong.iter().take(10).collect();
        assert!(wrong.is_empty(), "{} of {all}: {first:#?}", wrong.len());
        assert!(all / took.as_secs() >= CONNECTIONS_MIN, "{all} connections");
    });
}
