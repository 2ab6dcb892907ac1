//! Two apps of one activator, in a network namespace where a whole acting prefix is local, as on a real host.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use dormouse_activator::{Config, Route};
use nix::sched::{CloneFlags, unshare};
use tokio_util::sync::CancellationToken;

use crate::rig::TIMEOUT;

const PREFIX: &str = "2001:db8:d0:0:0:a1::";
const PORT: u16 = 80;
const STUCK: u32 = 16;
const HEALTHY: u32 = 17;

fn acting(vip: u32) -> SocketAddrV6 {
    let prefix: Ipv6Addr = PREFIX.parse().unwrap();
    SocketAddrV6::new(
        Ipv6Addr::from_bits(prefix.to_bits() | u128::from(vip)),
        PORT,
        0,
        0,
    )
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("ip (iproute2) is missing");
    assert!(status.success(), "ip {arguments}");
}

fn route(name: &str, backends: Vec<SocketAddrV6>) -> Route {
    Route {
        name: name.to_owned(),
        tenant: "default".to_owned(),
        version: 1,
        port: PORT,
        container_concurrency: 1,
        timeout: TIMEOUT,
        serving: false,
        wake_timeout: TIMEOUT,
        problem: None,
        split: None,
        backends,
    }
}

/// Sends a request and returns its connection.
fn send(vip: u32) -> TcpStream {
    let mut client = TcpStream::connect(acting(vip)).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .unwrap();
    client
}

fn pod() -> (TcpListener, SocketAddrV6) {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0))
}

#[test]
fn a_stuck_app_delays_no_other_app() {
    let test = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("run as root: this test makes a network namespace");
        ip("link set lo up");
        ip(&format!("-6 route add local {PREFIX}/96 dev lo"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // All tasks run on this thread, so all sockets are in its namespace.
        runtime.block_on(stuck_and_healthy());
    });
    test.join().unwrap();
}

async fn stuck_and_healthy() {
    let config = Config {
        queue_per_app_max: 100,
        ..Config::new(PREFIX.parse().unwrap())
    };
    let (handle, _reports) = dormouse_activator::new(config);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(dormouse_activator::run(handle.clone(), shutdown.clone()));
    // A pod that accepts connections and never responds, with a full queue.
    let (_never_accepted, stuck) = pod();
    let (listener, healthy) = pod();
    handle.listen(&BTreeSet::from([PORT]));
    handle.configure(STUCK, route("default/stuck", vec![stuck]));
    handle.configure(HEALTHY, route("default/healthy", vec![healthy]));
    let clients = move || {
        let waiting: Vec<TcpStream> = (0..50).map(|_| send(STUCK)).collect();
        let server = std::thread::spawn(move || {
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).unwrap() > 0);
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
        });
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let begin = Instant::now();
            let mut reply = String::new();
            send(HEALTHY).read_to_string(&mut reply).unwrap();
            assert!(reply.ends_with("ok"), "{reply}");
            slowest = slowest.max(begin.elapsed());
        }
        server.join().unwrap();
        (waiting, slowest)
    };
    let (sender, mut slowest) = tokio::sync::mpsc::channel(1);
    let clients = std::thread::spawn(move || sender.blocking_send(clients()).unwrap());
    let (waiting, slowest) = tokio::time::timeout(TIMEOUT, slowest.recv())
        .await
        .unwrap()
        .unwrap();
    clients.join().unwrap();
    // Milliseconds on an idle machine; a second allows for a busy machine but not for a stuck app.
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    drop(waiting);
    shutdown.cancel();
    running.await.unwrap();
}
