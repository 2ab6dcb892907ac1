//! Clients of apps that send no request and use up the activator's connections do not stop the other roles, which have
//! the same process and its file descriptors.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed start or call fails the test"
)]

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddrV6, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use dormouse_store::server::raise_descriptor_limit;
use nix::sched::{CloneFlags, unshare};

const ACTING_PREFIX: &str = "2001:db8:d0:0:0:a1::";
const API: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 6443, 0, 0);
/// Where an activator in a process of its own serves its metrics; the other process has the default.
const ACTIVATOR_METRICS: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9091, 0, 0);
const APPS: &str = "/apis/dormouse.dev/v1alpha1/namespaces/default/apps";
/// Hard limit of a process's file descriptors.
const DESCRIPTORS: usize = 1024;
/// The clients connect to as many apps, so that the limit of one app's connections is not reached.
const ADDRESSES: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program)
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(status.success(), "{program} {arguments}");
}

/// A network namespace for this thread, in which the acting prefix is local.
fn enter_network() {
    unshare(CloneFlags::CLONE_NEWNET).expect("run as root: this test makes a network namespace");
    run("ip", "link set lo up");
    run(
        "ip",
        &format!("-6 route add local {ACTING_PREFIX}/96 dev lo"),
    );
}

/// The shell's command for a process whose limit is low until it raises it.
fn limits() -> String {
    format!("ulimit -n {DESCRIPTORS} && ulimit -S -n 128 &&")
}

/// `dormouse up`, with the shell's `limits` and further arguments.
fn up(limits: &str, folder: &Path, arguments: &str) -> Process {
    let data = folder.display();
    dormouse(
        limits,
        &format!("up --insecure --data-dir {data} {arguments}"),
    )
}

fn dormouse(limits: &str, arguments: &str) -> Process {
    let script = format!("{limits} exec \"$0\" {arguments} --acting-prefix {ACTING_PREFIX}/96");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_dormouse")]);
    Process(shell.spawn().unwrap())
}

/// The status of a response.
fn status(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply.chars().skip(9).take(3).collect())
}

/// The status of a request on a new connection; an error if there is no response in time.
fn request(to: SocketAddrV6, line: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to.into(), TIMEOUT)?;
    write!(
        stream,
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    status(&mut stream)
}

/// The status of the creation of an app.
fn create(name: &str) -> std::io::Result<String> {
    create_on(name, 80)
}

/// The status of the creation of an app with this port.
fn create_on(name: &str, port: usize) -> std::io::Result<String> {
    let app = format!(
        r#"{{"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {{"name": "{name}"}},
        "spec": {{"port": {port}, "targetPort": 8000, "container": {{"command": ["/bin/true"]}}}}}}"#
    );
    request(API, &format!("POST {APPS}"), &app)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// More clients than descriptors, which send nothing. All were accepted or refused when this returns.
fn half_open_clients() -> Vec<TcpStream> {
    raise_descriptor_limit();
    until("the API creates an app", || {
        create("first").is_ok_and(|status| status == "201")
    });
    let address = |client: usize| {
        let prefix: Ipv6Addr = ACTING_PREFIX.parse().unwrap();
        let vip = u128::try_from(client % ADDRESSES).unwrap();
        SocketAddrV6::new((prefix.to_bits() | vip).into(), 80, 0, 0)
    };
    until("the activator listens", || {
        TcpStream::connect(address(0)).is_ok()
    });
    let mut clients: Vec<TcpStream> = (0..DESCRIPTORS + 100)
        .map(|client| TcpStream::connect_timeout(&address(client).into(), TIMEOUT).unwrap())
        .collect();
    // Clients are accepted in their order.
    let last = status(clients.last_mut().unwrap());
    assert_eq!(last.expect("the last client is refused"), "503");
    clients
}

#[test]
fn half_open_clients_of_apps_do_not_stop_the_api_and_the_store() {
    enter_network();
    let folder = tempfile::TempDir::new().unwrap();
    let limits = limits();
    let _up = up(&limits, folder.path(), "");
    let _clients = half_open_clients();
    for name in ["second", "third"] {
        assert_eq!(create(name).expect("the API responds"), "201");
    }
    let apps = request(API, &format!("GET {APPS}"), "");
    assert_eq!(apps.expect("the API responds"), "200");
}

/// The status of an endpoint of the process's metrics.
fn metrics_of_up() -> std::io::Result<String> {
    request(
        SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9090, 0, 0),
        "GET /metrics",
        "",
    )
}

#[test]
fn ports_of_apps_do_not_use_up_the_descriptors() {
    enter_network();
    let folder = tempfile::TempDir::new().unwrap();
    let limits = limits();
    let _up = up(&limits, folder.path(), "");
    raise_descriptor_limit();
    until("the API creates an app", || {
        create("first").is_ok_and(|status| status == "201")
    });
    for port in 0..DESCRIPTORS {
        let status = create_on(&format!("app-{port}"), 20_000 + port);
        assert_eq!(status.expect("the API responds"), "201", "{port}");
    }
    assert_eq!(metrics_of_up().expect("metrics are served"), "200");
}

#[test]
fn half_open_clients_of_apps_do_not_stop_an_activator_in_a_process_of_its_own() {
    enter_network();
    let folder = tempfile::TempDir::new().unwrap();
    let _up = up("", folder.path(), "--without activator");
    let limits = limits();
    let metrics = format!("activator --metrics-listen {ACTIVATOR_METRICS}");
    let _activator = dormouse(&limits, &metrics);
    let _clients = half_open_clients();
    let metrics = request(ACTIVATOR_METRICS, "GET /metrics", "");
    assert_eq!(metrics.expect("the activator responds"), "200");
}
