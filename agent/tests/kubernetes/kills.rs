//! kill -9 of the agent and of `dormouse up` in turn, under connections and changes of endpoints: none fails, and none reaches an endpoint
//! that is gone.

mod history;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dormouse_rig::node::python_in;
use dormouse_rig::{Agent, Node, ip, on_node};
use fastrand::Rng;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

use crate::control::{self, Control};
use crate::{start, wait_for, wait_for_any, wait_for_log};
use history::{History, LATE_MAX};

/// Duration of the load, unless the variable names another, in seconds.
const LENGTH: Duration = Duration::from_mins(1);
const SECONDS_VARIABLE: &str = "DORMOUSE_KILLS_SECONDS";
/// Services under load, and the hosts from which each has two endpoints.
const SERVICES: u16 = 5;
const HOSTS: u16 = 20;
/// The Service by which the test finds out that changes reach the kernel.
const MARKER: u16 = 90;
/// Changes of endpoints, and least connections and changes in a second that show that there was a load, on a machine of any speed.
const CHANGE_EVERY: Duration = Duration::from_millis(10);
const CONNECTIONS_MIN: u64 = 100;
const CHANGES_MIN: u64 = 10;

/// Connections, 1,000 in a second, to the Services in turn; a line for each: when it began and ended, the
/// Service, and the server's address.
const CLIENT: &str = "
import socket, time
begin = time.monotonic_ns()
for number in range(1 << 40):
    time.sleep(max(0, begin + number * 1_000_000 - time.monotonic_ns()) / 1e9)
    service, now = 1 + number % 5, time.monotonic_ns()
    try:
        with socket.create_connection((f'fd00:20::{service}', 80), 5) as connection:
            server = connection.recv(64).decode() or 'closed'
    except OSError as error:
        server = repr(error).replace(' ', '_')
    print(now, time.monotonic_ns(), service, server, flush=True)
";

/// A moment on the clock of client and test.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

/// What the threads of a run share.
#[derive(Default)]
struct Run {
    history: Mutex<History>,
    changes: AtomicU64,
    is_over: AtomicBool,
}

impl Run {
    /// Changes endpoints until it is over.
    fn change(&self) {
        let mut random = Rng::with_seed(9);
        let mut current: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        (1..=SERVICES).for_each(|service| control::put(service, &[]));
        let mut next = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            let (service, first) = (random.u16(1..=SERVICES), random.u16(1..=HOSTS));
            let hosts = vec![first, 1 + first % HOSTS];
            let old = current.insert(service, hosts.clone()).unwrap_or_default();
            // An endpoint exists from the request on, and is gone from the answer on.
            self.note(service, without(&hosts, &old), true);
            control::put_slice(service, &hosts);
            self.note(service, without(&old, &hosts), false);
            self.changes.fetch_add(1, Ordering::Relaxed);
            next += CHANGE_EVERY;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn note(&self, service: u16, hosts: impl Iterator<Item = u16>, exists: bool) {
        let (at, mut history) = (now(), self.history.lock());
        hosts.for_each(|host| history.note(service, host, at, exists));
    }

    /// Waits until a change reaches the kernel, and records how long none did.
    fn up_again(&self, node: &Node, killed: Duration, host: u16) {
        control::put(MARKER, &[host]);
        wait_for(node, MARKER, &[host]);
        self.history.lock().down.push((killed, now()));
    }
}

fn without<'a>(hosts: &'a [u16], others: &'a [u16]) -> impl Iterator<Item = u16> + 'a {
    let hosts = hosts.iter().copied();
    hosts.filter(move |host| !others.contains(host))
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

    /// Ends it. Its last line may be cut.
    fn end(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut lines = self.lines.join().unwrap();
        lines.pop();
        lines
    }
}

fn length() -> Duration {
    let named = std::env::var(SECONDS_VARIABLE).ok();
    named.map_or(LENGTH, |text| Duration::from_secs(text.parse().unwrap()))
}

/// Kills agent and server in turn. Returns the agent that is left.
fn kill_in_turn(run: &Run, node: &Node, mut agent: Agent, control: &mut Control) -> Agent {
    let began = Instant::now();
    for host in (1..=99).cycle() {
        if began.elapsed() > length() {
            break;
        }
        let killed = now();
        if host % 2 == 1 {
            agent.kill();
            agent = start(node, &Control::url());
            wait_for_log(node, "services are programmed");
        } else {
            control.crash();
            control.revive();
        }
        run.up_again(node, killed, host);
        // Load while both run.
        thread::sleep(2 * LATE_MAX);
    }
    agent
}

#[test]
fn connections_fail_and_reach_gone_endpoints_never_while_agent_and_server_are_killed() {
    on_node(|node| {
        node.take_address();
        ip("-6 route add local 2001:db8:77::/64 dev lo");
        serve();
        let mut control = Control::start(node);
        let run: Arc<Run> = Arc::default();
        let agent = start(node, &Control::url());
        let changes = thread::spawn({
            let run = Arc::clone(&run);
            move || run.change()
        });
        for service in 1..=SERVICES {
            wait_for_any(node, service);
        }
        let (client, began) = (Client::start(node), Instant::now());
        let _agent = kill_in_turn(&run, node, agent, &mut control);
        let connections = client.end();
        let took = began.elapsed();
        run.is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap();

        let history = run.history.lock();
        let judged = connections.iter().filter_map(|line| history.judge(line));
        let wrong: Vec<_> = judged.collect();
        let (all, changes) = (
            connections.len() as u64,
            run.changes.load(Ordering::Relaxed),
        );
        let (kills, seconds) = (history.down.len(), took.as_secs());
        let wrong_count = wrong.len();
        println!(
            "{all} connections, {changes} changes, {kills} kills in {took:?}, {wrong_count} wrong"
        );
        let first: Vec<_> = wrong.iter().take(10).collect();
        assert!(wrong.is_empty(), "{wrong_count} of {all}: {first:#?}");
        assert!(all >= CONNECTIONS_MIN * seconds, "{all} in {took:?}");
        assert!(changes >= CHANGES_MIN * seconds, "{changes} in {took:?}");
    });
}
