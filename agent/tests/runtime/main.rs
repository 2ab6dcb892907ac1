//! Runs real processes as pods: real namespaces and cgroups, wired by the real plugin, found again by a next agent.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod rights;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use dormouse_agent::cni;
use dormouse_agent::runtime::logs::LogFlags;
use dormouse_agent::runtime::{Runtime, RuntimeConfig};
use dormouse_agent_logs::{Folder, tail};
use dormouse_agent_pod::{Network, NetworkConfig, PodEntry, PodTable};
use dormouse_fleet::proto::{PodSpec, PodStatus, pod_status::Phase};
use dormouse_rig::{Node, PATIENCE, binaries, on_node, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A table without pods: the data path has tests of its own.
struct NoTable;

impl PodTable for NoTable {
    fn add(&mut self, _pod: PodEntry) -> std::io::Result<()> {
        Ok(())
    }
    fn remove(&mut self, _: Ipv6Addr, _: Option<Ipv4Addr>) -> std::io::Result<()> {
        Ok(())
    }
}

/// The runtime's places on a node.
fn config(node: &Node) -> RuntimeConfig {
    RuntimeConfig {
        node: node.name().to_owned(),
        state_dir: node.home().state_dir(),
        cgroup: node.cgroup().to_owned(),
        cni: binaries::plugin().to_owned(),
        socket: node.home().socket(),
        agent: env!("CARGO_BIN_EXE_dormouse-agent").into(),
        log_flags: LogFlags::default(),
    }
}

/// The parts of an agent that pods need: the plugin's socket, and the runtime.
struct Agent {
    runtime: Runtime,
    statuses: mpsc::Receiver<PodStatus>,
}

/// Runs one agent as long as `live` does; then its tasks stop where they are, as in a crash.
fn agent<T>(node: &Node, live: impl AsyncFnOnce(&mut Agent) -> T) -> T {
    agent_at(node, config(node), live)
}

/// The same, with other places.
fn agent_at<T>(node: &Node, config: RuntimeConfig, live: impl AsyncFnOnce(&mut Agent) -> T) -> T {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let outcome = tokio.block_on(async {
        let network = Arc::new(network(node));
        let listener = cni::bind(&config.socket).unwrap();
        let (_, in_force) = watch::channel(true);
        let parts = cni::Parts {
            network,
            host_ports: None,
            in_force,
        };
        let shutdown = CancellationToken::new();
        tokio::spawn(cni::serve(
            listener,
            parts,
            cni::Admission::default(),
            shutdown,
        ));
        let (runtime, statuses) = Runtime::open(config).unwrap();
        live(&mut Agent { runtime, statuses }).await
    });
    // Waits for the threads to stop, for no pod.
    tokio.shutdown_timeout(PATIENCE);
    outcome
}

/// The threads of the agent before may hold the journal a moment longer than its tasks live.
fn network(node: &Node) -> Network {
    let prefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
    let config = NetworkConfig::new(prefix, node.home().state_dir(), "eth0");
    let mut network = None;
    wait("the journal", || {
        network = Network::open(config.clone(), Box::new(NoTable)).ok();
        network.is_some()
    });
    network.unwrap()
}

impl Agent {
    /// The next state that fits.
    async fn until(&mut self, what: &str, fits: impl Fn(&PodStatus) -> bool) -> PodStatus {
        let status = tokio::time::timeout(PATIENCE, async {
            loop {
                let status = self.statuses.recv().await.expect("the runtime lives");
                if fits(&status) {
                    return status;
                }
            }
        });
        status
            .await
            .unwrap_or_else(|_elapsed| panic!("waited in vain for {what}"))
    }
}

fn spec(uid: &str, command: &[&str]) -> PodSpec {
    let pod = json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{ "name": "app", "command": command, "ports": [{ "containerPort": 8000 }] }],
        },
    });
    PodSpec {
        namespace: "shop".into(),
        name: "web".into(),
        uid: uid.into(),
        stop: false,
        pod: pod.to_string().into_bytes(),
        cohort: 0,
    }
}

fn stop(uid: &str) -> PodSpec {
    PodSpec {
        uid: uid.into(),
        stop: true,
        ..PodSpec::default()
    }
}

fn web(uid: &str) -> PodSpec {
    spec(
        uid,
        &["python3", "-m", "http.server", "--bind", "::", "8000"],
    )
}

fn is_ready(status: &PodStatus) -> bool {
    status.phase() == Phase::Running && status.ready
}

fn is_gone(status: &PodStatus) -> bool {
    status.phase() == Phase::Gone
}

#[test]
fn a_pod_becomes_ready_survives_its_agent_and_leaves_nothing() {
    on_node(|node| {
        let (pid, address) = agent(node, async |agent| {
            agent.runtime.run(web("u-1"));
            let status = agent.until("the pod to be ready", is_ready).await;
            let stages = status.stages.unwrap();
            let times = [
                stages.received_ns,
                stages.cni_begin_ns,
                stages.cni_end_ns,
                stages.started_ns,
                stages.ready_ns,
            ];
            assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
            (node.pid("u-1"), status.address)
        });
        assert!(
            Path::new(&format!("/proc/{pid}")).exists(),
            "the pod outlives its agent"
        );
        agent(node, async |agent| {
            let status = agent.until("the pod to be found again", is_ready).await;
            assert_eq!((node.pid("u-1"), status.address), (pid, address));
            agent.runtime.run(stop("u-1"));
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("u-1");
        assert!(!Path::new(&format!("/proc/{pid}/ns")).exists() || is_zombie(pid));
    });
}

/// A process that its second agent did not start is for init to wait for; here that is the test itself.
fn is_zombie(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") Z ")
}

#[test]
fn a_child_that_ends_leaves_no_zombie_and_its_reason_is_reported() {
    on_node(|node| {
        agent(node, async |agent| {
            agent.runtime.run(spec(
                "u-2",
                &["sh", "-c", "echo $POD_NAME on $NODE_NAME; exit 3"],
            ));
            let status = agent
                .until("a failure", |status| status.phase() == Phase::Failed)
                .await;
            assert_eq!(status.reason, "Error");
            let said = format!("web on {}", node.name());
            let message = format!("the process exited with status 3\n{said}");
            assert_eq!((status.message, status.exit_code), (message, 3));
            let logs = config(node).logs();
            tokio::time::timeout(PATIENCE, logs.ended("u-2"))
                .await
                .unwrap();
            let said = tail(&logs, "u-2", 10).unwrap();
            assert_eq!(said, format!("web on {}\n", node.name()));
            agent.runtime.sync(Vec::new());
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("u-2");
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        for child in children.split_whitespace() {
            assert!(
                !is_zombie(child.parse().unwrap()),
                "child {child} is a zombie"
            );
        }
    });
}

#[test]
fn output_is_logged_also_while_no_agent_runs_and_kept_after_the_pod_is_gone() {
    on_node(|node| {
        let until = |name| format!("until [ -e /tmp/{name} ]; do sleep 0.02; done");
        let steps = format!(
            "echo one; {}; echo two >&2; {}; echo three; exec sleep 1000",
            until("a"),
            until("b")
        );
        let logs = config(node).logs();
        let is_logged = |text: &str| {
            wait(text, || {
                tail(&logs, "u-6", 10).is_ok_and(|said| said == text)
            });
        };
        agent(node, async |agent| {
            agent.runtime.run(spec("u-6", &["sh", "-c", &steps]));
            let runs = |status: &PodStatus| status.phase() == Phase::Running;
            agent.until("the pod to run", runs).await;
            tokio::task::block_in_place(|| is_logged("one\n"));
        });
        let pid = node.pid("u-6");
        let flag = |name: &str| format!("/proc/{pid}/root/tmp/{name}");
        fs::write(flag("a"), "").unwrap();
        is_logged("one\ntwo\n");
        // Now neither agent nor a writer that works: the output waits in the pod's FIFO, and the pod does not.
        stop_writer(&logs);
        fs::write(flag("b"), "").unwrap();
        wait("the pod to go on", || {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        });
        agent(node, async |agent| {
            tokio::task::block_in_place(|| is_logged("one\ntwo\nthree\n"));
            assert_eq!(node.pid("u-6"), pid);
            agent.runtime.run(stop("u-6"));
            agent.until("the pod to be gone", is_gone).await;
            tokio::time::timeout(PATIENCE, logs.ended("u-6"))
                .await
                .unwrap();
        });
        is_logged("one\ntwo\nthree\n");
        let run = logs.last("u-6").unwrap().unwrap();
        assert_eq!(logs.meta(&run).unwrap().name, "web");
        assert_eq!(streams(&logs), ["stdout one", "stderr two", "stdout three"]);
    });
}

/// The records of the one pod, without their times: the stream, and the line.
fn streams(logs: &Folder) -> Vec<String> {
    let files = fs::read_dir(logs.path()).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    let text: Vec<_> = paths.iter().map(fs::read_to_string).collect();
    let text: String = text.into_iter().map(Result::unwrap).collect();
    let records = text.lines().map(|line| line.split_once(' ').unwrap().1);
    records.map(|record| record.replace(" F ", " ")).collect()
}

/// SIGSTOP: it neither works nor ends at SIGTERM. The next one has no place for its messages.
fn stop_writer(logs: &Folder) {
    let text = fs::read(logs.path().join("writer.lock")).unwrap();
    let process: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let pid = i32::try_from(process["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let own_log = logs.path().join("writer.stderr");
    fs::remove_file(&own_log).unwrap();
    fs::create_dir(own_log).unwrap();
}

#[test]
fn a_pod_that_cannot_run_here_fails_with_the_reason() {
    on_node(|node| {
        agent(node, async |agent| {
            let image = PodSpec {
                pod: b"{\"spec\":{}}".to_vec(),
                ..web("u-3")
            };
            agent.runtime.run(image);
            let status = agent
                .until("a failure", |status| status.phase() == Phase::Failed)
                .await;
            assert_eq!(status.reason, "InvalidPod");
            agent.runtime.run(stop("u-3"));
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("u-3");
    });
}

/// A folder that pods see: /tmp is their own, and /var/lib is the node's.
fn visible_folder() -> TempDir {
    let folder = tempfile::tempdir_in("/var/lib").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_command_that_cannot_be_executed_is_named_with_the_systems_error() {
    on_node(|node| {
        agent(node, async |agent| {
            let mut check = async |uid: &str, command: &[&str], message: &str| {
                agent.runtime.run(spec(uid, command));
                let status = agent
                    .until("a failure", |status| status.phase() == Phase::Failed)
                    .await;
                assert_eq!(status.reason, "StartError");
                assert!(status.message.starts_with(message), "{}", status.message);
                agent.runtime.run(stop(uid));
                agent.until("the pod to be gone", is_gone).await;
                node.assert_nothing_is_left(uid);
            };
            let missing = "failed to execute /no/such/server: No such file or directory";
            check("u-6", &["/no/such/server"], missing).await;
            let folder = visible_folder();
            let script = folder.path().join("script");
            fs::write(&script, "#!/no/such/shell\n").unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
            let script = script.to_str().unwrap();
            let message = format!("failed to execute the interpreter of {script}: No such file");
            check("u-7", &[script], &message).await;
            fs::set_permissions(script, fs::Permissions::from_mode(0o644)).unwrap();
            let message = format!("failed to execute {script}: Permission denied");
            check("u-8", &[script], &message).await;
            // The test's own PATH can have a folder that the pod cannot enter, like root's home.
            let message = "failed to execute no-such-server: No such file or directory";
            check("u-10", &["no-such-server"], message).await;
        });
    });
}

#[test]
fn a_pod_that_listens_on_another_port_is_reported_with_that_port() {
    on_node(|node| {
        agent(node, async |agent| {
            let wrong = ["python3", "-m", "http.server", "--bind", "::", "8080"];
            agent.runtime.run(spec("u-9", &wrong));
            let listens = |status: &PodStatus| status.message.contains("listens on 8080");
            let status = agent.until("the reason", listens).await;
            assert_eq!(status.reason, "NotListening");
            assert_eq!(
                status.message,
                "nothing listens on port 8000; the process listens on 8080"
            );
            assert!(!status.ready && status.phase() == Phase::Running);
            agent.runtime.run(stop("u-9"));
            agent.until("the pod to be gone", is_gone).await;
        });
    });
}

#[test]
fn a_pod_that_fails_its_liveness_probe_is_ended() {
    on_node(|node| {
        agent(node, async |agent| {
            let mut pod: serde_json::Value = serde_json::from_slice(&web("u-10").pod).unwrap();
            pod["spec"]["containers"][0]["livenessProbe"] = json!({
                "httpGet": { "path": "/no-such-page", "port": 8000 },
                "periodSeconds": 1, "failureThreshold": 2,
            });
            agent.runtime.run(PodSpec {
                pod: pod.to_string().into_bytes(),
                ..web("u-10")
            });
            agent.until("the pod to be ready", is_ready).await;
            let unready = |status: &PodStatus| status.phase() == Phase::Running && !status.ready;
            let status = agent.until("the pod to be unready", unready).await;
            assert!(
                status.message.contains("answered 404"),
                "{}",
                status.message
            );
            let failed = |status: &PodStatus| status.phase() == Phase::Failed;
            let status = agent.until("the end of the pod", failed).await;
            assert_eq!(status.reason, "LivenessProbeFailed");
            assert!(
                status.message.contains("answered 404")
                    && status.message.contains("killed by signal"),
                "{}",
                status.message
            );
            agent.runtime.run(stop("u-10"));
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("u-10");
    });
}

#[test]
fn a_half_started_pod_is_cleared_and_started_again() {
    on_node(|node| {
        agent(node, async |agent| {
            agent.runtime.run(web("u-4"));
            agent.until("the pod to be ready", is_ready).await;
        });
        let stray = node.pid("u-4");
        // As an agent leaves it that dies between starting the process and writing that down.
        let path = node.record("u-4");
        let mut record: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["state"] = json!("starting");
        fs::write(&path, record.to_string()).unwrap();
        agent(node, async |agent| {
            agent.until("the pod to be ready", is_ready).await;
            assert_ne!(node.pid("u-4"), stray, "the stray process was killed");
            agent.runtime.run(stop("u-4"));
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("u-4");
    });
}

#[test]
fn stopping_an_unknown_pod_reports_it_gone() {
    on_node(|node| {
        agent(node, async |agent| {
            agent.runtime.run(stop("u-5"));
            let status = agent.until("the report", is_gone).await;
            assert_eq!(status.uid, "u-5");
        });
    });
}
