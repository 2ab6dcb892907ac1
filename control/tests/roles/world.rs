//! A network namespace with the processes of a control plane, a simulated node, and a pod that responds `ok`.

use std::cell::Cell;
use std::net::SocketAddrV6;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use dormouse_apps::epoch::EPOCH_KEY;
use dormouse_cluster::{App, Client};
use k8s_openapi::api::core::v1::Pod;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::node;

/// Timeout of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// The wake timeout of the activator.
pub(crate) const WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The limit of requests parked in the activator.
pub(crate) const PARKED_MAX: usize = 10;
const ACTING_PREFIX: &str = "2001:db8:a1::/96";
const STORE: &str = "http://[::1]:2379";

/// Runs a test in a network namespace of its own.
pub(crate) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("run as root: this test makes a network namespace");
        // All tasks run on this thread, so all sockets and processes are in its namespace.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, test());
    });
    thread.join().unwrap();
}

pub(crate) struct World {
    pub(crate) folder: TempDir,
    /// While it is set, pods do not become ready.
    pub(crate) starting: Rc<Cell<bool>>,
    pub(crate) reports: node::Reports,
}

impl World {
    /// The network, the node and the pod; no process of control runs yet.
    pub(crate) async fn new() -> Self {
        ip("link set lo up").await;
        ip(&format!("-6 route add local {ACTING_PREFIX} dev lo")).await;
        ip(&format!("-6 addr add {}/128 dev lo nodad", node::POD)).await;
        let pod = TcpListener::bind((node::POD, 8_000)).await.unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = pod.accept().await.unwrap();
                tokio::spawn(respond(stream));
            }
        });
        let starting = Rc::new(Cell::new(false));
        let reports = node::Reports::default();
        let (held, reported) = (Rc::clone(&starting), Rc::clone(&reports));
        tokio::task::spawn_local(node::run("http://[::1]:7443", held, reported));
        Self {
            folder: tempfile::tempdir().unwrap(),
            starting,
            reports,
        }
    }

    /// `dormouse up` in plain text, with its state in `folder` below the world's.
    pub(crate) fn up(&self, folder: &str, more: &[&str]) -> Child {
        let more = [&["--insecure"], more].concat();
        self.up_command(folder, &more).spawn().unwrap()
    }

    /// The command of `dormouse up`, which speaks TLS.
    pub(crate) fn up_command(&self, folder: &str, more: &[&str]) -> Command {
        let mut command = dormouse(&["up", "--acting-prefix", ACTING_PREFIX]);
        command
            .args(["--node-lease", "2s", "--scale-to-zero-grace", "1s"])
            .arg("--data-dir")
            .arg(self.folder.path().join(folder))
            .args(more);
        command
    }

    /// `dormouse up` without an activator, as soon as it responds.
    pub(crate) async fn control(&self) -> Child {
        let child = self.up("control", &["--without", "activator"]);
        until("control is up", async || healthy("[::1]:9090").await).await;
        child
    }

    pub(crate) async fn activator(&self) -> Child {
        let wake_timeout = format!("{}s", WAKE_TIMEOUT.as_secs());
        let child = dormouse(&["activator", "--acting-prefix", ACTING_PREFIX])
            .args(["--wake-timeout", &wake_timeout])
            .args(["--parked-max", &PARKED_MAX.to_string()])
            .args(["--metrics-listen", "[::1]:9091"])
            .spawn()
            .unwrap();
        until("the activator is up", async || healthy("[::1]:9091").await).await;
        child
    }

    pub(crate) async fn store(&self) -> Client {
        Client::connect(STORE).await.unwrap()
    }

    /// Creates an app with this VIP index.
    pub(crate) async fn create_app(&self, vip: u32, window: &str) {
        let scale = json!({"window": window, "targetBurstCapacity": -1});
        self.create_app_with(vip, &json!({"scale": scale})).await;
    }

    /// Creates an app with this VIP index and these fields of its specification.
    pub(crate) async fn create_app_with(&self, vip: u32, fields: &Value) {
        let mut spec = json!({
            "vip": format!("fd00:10::{vip:x}"), "port": 18_080, "targetPort": 8000,
            "container": {"name": "app", "command": ["serve"]},
        });
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let app: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": format!("app-{vip}"), "namespace": "default", "uid": format!("uid-{vip}")},
            "spec": spec,
        }))
        .unwrap();
        self.store().await.create(&app).await.unwrap();
        until("the activator listens", async || {
            connects(address(vip).to_string()).await
        })
        .await;
    }

    pub(crate) async fn pods(&self) -> usize {
        let pods = self.store().await.list::<Pod>(Some("default")).await;
        pods.unwrap().items.len()
    }

    pub(crate) async fn epoch(&self) -> Vec<u8> {
        let (found, _) = self.store().await.range(EPOCH_KEY, 0).await.unwrap();
        found[0].value().to_vec()
    }
}

/// Where the activator stands for the app with this VIP index.
pub(crate) fn address(vip: u32) -> SocketAddrV6 {
    format!("[2001:db8:a1::{vip:x}]:18080").parse().unwrap()
}

/// The response to a GET.
pub(crate) async fn get(vip: u32) -> String {
    let reply = async {
        let mut client = TcpStream::connect(address(vip)).await?;
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        client.write_all(request).await?;
        let mut reply = String::new();
        client.read_to_string(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    timeout(TIMEOUT, reply)
        .await
        .expect("no response within the timeout")
        .unwrap_or_else(|error| error.to_string())
}

/// Waits until a GET is answered by the pod.
pub(crate) async fn served(vip: u32) {
    until("the app responds", async || get(vip).await.ends_with("ok")).await;
}

pub(crate) async fn kill(mut process: Child) {
    process.kill().await.unwrap();
}

/// Ends a process as a supervisor does, and waits until it has drained its requests.
pub(crate) async fn terminate(process: Child) {
    let id = process.id().and_then(|id| i32::try_from(id).ok());
    signal::kill(Pid::from_raw(id.unwrap()), Signal::SIGTERM).unwrap();
    let (status, log) = ended(process).await;
    assert!(status.success(), "{log}");
}

/// Waits for the end of a process; returns its status and its log.
pub(crate) async fn ended(process: Child) -> (ExitStatus, String) {
    let output = timeout(TIMEOUT, process.wait_with_output()).await;
    let output = output.expect("the process does not end").unwrap();
    (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, wait)
        .await
        .unwrap_or_else(|_| panic!("timeout: {what}"));
}

async fn connects(address: impl tokio::net::ToSocketAddrs) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Whether a process serves its metrics, which it does last.
pub(crate) async fn healthy(address: &str) -> bool {
    let page = page(address, "/healthz").await;
    page.is_ok_and(|page| page.contains("200 OK"))
}

/// The response of a process to a GET on its metrics port.
pub(crate) async fn page(address: &str, path: &str) -> std::io::Result<String> {
    request(address, &format!("GET {path} HTTP/1.0\r\n\r\n")).await
}

/// The response to an HTTP request on a connection of its own, which the server closes.
pub(crate) async fn request(address: &str, request: &str) -> std::io::Result<String> {
    let mut client = TcpStream::connect(address).await?;
    client.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    client.read_to_string(&mut reply).await?;
    Ok(reply)
}

pub(crate) fn dormouse(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .args(arguments)
        .env("DORMOUSE_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A command for the API of a control plane in plain text.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = dormouse(arguments);
    command.env("DORMOUSE_ENDPOINT", "http://[::1]:6443");
    command
}

pub(crate) async fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().await;
    assert!(
        status.expect("ip (iproute2) is missing").success(),
        "ip {arguments}"
    );
}

async fn respond(mut stream: TcpStream) {
    let mut request = [0; 1_024];
    while let Ok(1..) = stream.read(&mut request).await {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}
