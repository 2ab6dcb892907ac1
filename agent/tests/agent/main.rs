//! The real agent on a node against a real fleet server: it follows apps, runs a pod, is killed, and its successor goes on.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod confined;
mod joined;
mod packets;
mod scan;
mod wake_limit;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_fleet::proto::{
    Activator, Entry, NodeConfig, PodSpec, PodStatus, VipRange, pod_status::Phase,
};
use dormouse_fleet::{Boottime, Event, Handle, Incoming, ServerConfig};
use dormouse_rig::address::{CONTROL, NODE, PREFIX};
use dormouse_rig::{Agent, Node, PATIENCE, UPLINK, binaries, ip, on_node, wait};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const VIP: &str = "fd00:10::7";
/// The pod's cohort, which control sends.
const COHORT: u32 = 5_007;
const METRICS: &str = "[::1]:10249";

/// The fleet server, which is all that a node sees of control.
struct Control {
    handle: Handle,
    events: mpsc::Receiver<Event>,
    url: String,
    shutdown: CancellationToken,
}

impl Control {
    async fn start() -> Self {
        Self::start_at("[::1]:0", 1, vec![activator(String::new())]).await
    }

    async fn start_at(address: &str, epoch: u64, activators: Vec<Activator>) -> Self {
        let shutdown = CancellationToken::new();
        let config = config(epoch, activators);
        let (handle, events) = dormouse_fleet::start(config, shutdown.clone());
        handle.confirmed(Boottime(u64::MAX));
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(dormouse_fleet::serve(
            Incoming::new(listener, 10),
            handle.clone(),
            shutdown.clone(),
        ));
        Self {
            handle,
            events,
            url,
            shutdown,
        }
    }

    /// The first event that fits; others pass.
    async fn until<T>(&mut self, what: &str, fits: impl Fn(Event) -> Option<T>) -> T {
        let event = timeout(PATIENCE, async {
            loop {
                let event = self.events.recv().await.expect("the fleet lives");
                if let Some(found) = fits(event) {
                    return found;
                }
            }
        });
        event
            .await
            .unwrap_or_else(|_elapsed| panic!("waited in vain for {what}"))
    }

    async fn up(&mut self) {
        self.until("the node", |event| {
            matches!(event, Event::NodeUp { .. }).then_some(())
        })
        .await;
    }

    /// The node uses no older version of the entry than this.
    async fn settled(&mut self, version: u64) {
        self.handle.settle(7, version);
        let settled = Event::Settled { vip: 7, version };
        self.until("the change to settle", |event| {
            (event == settled).then_some(())
        })
        .await;
    }

    async fn pod(&mut self, what: &str, fits: impl Fn(&PodStatus) -> bool) -> PodStatus {
        self.until(what, |event| match event {
            Event::Pod { status, .. } if fits(&status) => Some(status),
            _ => None,
        })
        .await
    }
}

/// The configuration of the fleet server, with short leases.
fn config(epoch: u64, activators: Vec<Activator>) -> ServerConfig {
    let range = VipRange {
        prefix: "fd00:10::/108".into(),
        base: 0,
    };
    let node_config = NodeConfig {
        vip_ranges: vec![range],
        activators,
        ..NodeConfig::default()
    };
    ServerConfig {
        lease: Duration::from_secs(2),
        ..ServerConfig::new(epoch, node_config)
    }
}

/// An activator on the control host.
fn activator(health: String) -> Activator {
    Activator {
        prefix: "2001:db8:d0::a1:0:0/96".into(),
        via: CONTROL.to_string(),
        health,
    }
}

/// Gives the node its address and a route to the VIPs; the runtime is for the control of its test.
fn with_vips(node: &Node) -> Runtime {
    node.take_address();
    ip("-6 route add fd00:10::/108 dev eth0");
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Starts an agent that follows control and runs pods.
fn start(node: &Node, control: &str) -> Agent {
    start_with(node, control, &[])
}

/// The same with more flags.
fn start_with(node: &Node, control: &str, flags: &[&str]) -> Agent {
    let mut command = node.home().command(&["run", "--uplink", UPLINK]);
    command
        .args(["--prefix", PREFIX, "--address", &NODE.to_string()])
        .args(["--control", control, "--metrics", METRICS, "--cni"])
        .arg(binaries::plugin())
        .args(flags);
    Agent::start(&mut command)
}

/// A connection from inside the node's cgroup, as from a pod; it gets no reply.
fn touch_vip(node: &Node) {
    let procs = node.cgroup().join("cgroup.procs");
    let knock = format!(
        "echo 0 > {}; exec timeout {} python3 -c \"import socket; socket.create_connection(('{VIP}', 80), 0.2)\"",
        procs.display(),
        PATIENCE.as_secs()
    );
    let _ = Command::new("sh")
        .args(["-c", &knock])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

fn web() -> PodSpec {
    let pod = json!({
        "spec": { "containers": [{
            "name": "app", "command": ["python3", "-m", "http.server", "--bind", "::", "8000"],
            "ports": [{ "containerPort": 8000 }],
        }] },
    });
    PodSpec {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "w-1".into(),
        stop: false,
        pod: pod.to_string().into_bytes(),
        cohort: COHORT,
    }
}

async fn metrics() -> String {
    let mut stream = TcpStream::connect(METRICS).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// The cohort that an address has.
fn cohort(address: &str) -> u32 {
    let suffix = address.parse::<Ipv6Addr>().unwrap().to_bits() & u128::from(u32::MAX);
    u32::try_from(suffix >> 10).unwrap()
}

/// The output of a command of the agent.
fn ask(node: &Node, arguments: &[&str]) -> String {
    let output = node.home().command(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The agent's commands show the cohort.
fn show_cohort(node: &Node, address: &str) {
    let explained = ask(node, &["explain", "address", address]);
    let fact = format!("1 of cohort {COHORT}");
    assert!(explained.contains(&fact), "{explained}");
    let pods = ask(node, &["get", "pods", "-o", "wide"]);
    assert!(pods.contains(&format!(" {COHORT} ")), "{pods}");
}

fn is_ready(status: &PodStatus) -> bool {
    status.phase() == Phase::Running && status.ready
}

#[test]
fn a_node_follows_control_and_its_pods_outlive_its_agent() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let agent = start(node, &control.url);
            control.up().await;
            follow(node, &mut control).await;
            let text = metrics().await;
            assert!(text.contains("dormouse_fleet_connected 1"), "{text}");

            control.handle.sync_pods(node.name(), vec![web()]);
            let status = control.pod("the pod to be ready", is_ready).await;
            let address = status.address;
            assert_eq!(cohort(&address), COHORT, "{address}");
            let pid = node.pid("w-1");

            agent.kill();
            let mut agent = start(node, &control.url);
            control.up().await;
            let found = control.pod("the pod to be found again", is_ready).await;
            assert_eq!(found.address, address);
            show_cohort(node, &address);
            assert_eq!(node.pid("w-1"), pid, "the pod is the same process");
            control.handle.publish(entry(3));
            control.settled(3).await;

            agent.signal(Signal::SIGTERM);
            wait("the agent to end", || agent.ended().is_some());
            assert!(
                agent.ended().unwrap().success(),
                "a graceful stop is a success"
            );
            assert_eq!(node.pid("w-1"), pid);
            assert!(
                PathBuf::from(format!("/proc/{pid}/ns")).exists(),
                "its pods run on"
            );
            assert!(node.bpffs().exists(), "its data path stays");

            let _agent = start(node, &control.url);
            // An order goes to the node's stream of that moment.
            control.up().await;
            control.handle.run(
                node.name(),
                PodSpec {
                    stop: true,
                    ..web()
                },
            );
            control
                .pod("the pod to be gone", |status| status.phase() == Phase::Gone)
                .await;
            node.assert_nothing_is_left("w-1");
        });
    });
}

/// The node meets a VIP, follows it, and acknowledges its changes.
async fn follow(node: &Node, control: &mut Control) {
    touch_vip(node);
    let wanted = Event::Wanted { vips: vec![7] };
    control
        .until("the node to want the VIP", |event| {
            (event == wanted).then_some(())
        })
        .await;
    control.handle.publish(entry(1));
    wait("the node to have the entry", || {
        ask(node, &["get", "apps"]).contains(VIP)
    });
    control.handle.publish(entry(2));
    control.settled(2).await;
}

fn entry(version: u64) -> Entry {
    Entry {
        vip: 7,
        version,
        settle: true,
        leased: true,
        asleep: true,
        port: 80,
        ..Entry::default()
    }
}

/// Connections of the node's sockets that were translated to pods.
async fn served() -> f64 {
    let text = metrics().await;
    let name = "dormouse_packets_total{verdict=\"socket_served\"} ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

/// The health endpoint of an activator.
async fn serve_health(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let _ = stream.write_all(answer).await;
        let _ = stream.read(&mut [0; 200]).await;
    }
}

async fn end(task: tokio::task::JoinHandle<()>) {
    task.abort();
    let _ = task.await;
}

/// Seconds since the node uses its last entries alone; 0: it does not.
async fn stale_seconds() -> f64 {
    let text = metrics().await;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("dormouse_fleet_stale_seconds "));
    line.unwrap().parse().unwrap()
}

async fn stale(what: &str, wished: bool) {
    let seen = async {
        while (stale_seconds().await > 0.0) != wished {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let seen = timeout(PATIENCE, seen).await;
    seen.unwrap_or_else(|_elapsed| panic!("waited in vain: {what}"));
}

#[test]
fn a_node_uses_its_last_entries_while_neither_control_nor_an_activator_answers() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let listener = TcpListener::bind("[::1]:0").await.unwrap();
            let health = listener.local_addr().unwrap();
            let live = tokio::spawn(serve_health(listener));
            let activators = vec![activator(health.to_string())];
            let mut control = Control::start_at("[::1]:0", 1, activators.clone()).await;
            let _agent = start(node, &control.url);
            control.up().await;
            follow(node, &mut control).await;
            end(live).await;
            assert!(stale_seconds().await <= 0.0, "control grants leases");

            control.shutdown.cancel();
            stale("the node to go on alone", true).await;
            let listener = TcpListener::bind(health).await.unwrap();
            let live = tokio::spawn(serve_health(listener));
            stale("the node to see the activator", false).await;
            end(live).await;
            stale("the node to go on alone again", true).await;

            let address = control.url.trim_start_matches("http://").to_owned();
            drop(control);
            let mut control = Control::start_at(&address, 2, activators).await;
            let wanted = Event::Wanted { vips: vec![7] };
            control
                .until("the node to come back", |event| {
                    (event == wanted).then_some(())
                })
                .await;
            assert!(
                stale_seconds().await > 0.0,
                "not before control has answered for its entries"
            );
            control.handle.publish(entry(3));
            stale("a grant", false).await;
        });
    });
}

#[test]
fn a_node_refuses_an_earlier_control_also_after_its_agent_was_replaced() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let activators = || vec![activator(String::new())];
            let mut newer = Control::start_at("[::1]:0", 5, activators()).await;
            let agent = start(node, &newer.url);
            newer.up().await;
            follow(node, &mut newer).await;
            agent.kill();
            let mut older = Control::start_at("[::1]:0", 4, activators()).await;
            let _agent = start(node, &older.url);
            older.up().await;
            // It has closed the stream after the first message, and tries again.
            older.up().await;
        });
    });
}

#[test]
fn an_agent_that_is_not_root_names_the_command_to_run_it() {
    on_node(|_node| {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--"])
            .arg(env!("CARGO_BIN_EXE_dormouse-agent"))
            .args(["run", "--node", "n1", "--prefix", "2001:db8:d0:0:0:1::/96"])
            .args(["--address", &NODE.to_string(), "--runtime", "none"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("sudo dormouse-agent run"),
            "{said}"
        );
    });
}
