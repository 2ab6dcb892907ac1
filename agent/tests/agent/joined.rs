//! An agent that joins a cluster with certificates: the line of a token is all that it needs, and its successor does not need that. One that control
//! refuses logs the command that joins it, and its data path goes on.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dormouse_fleet::join::{self, Asked, Registrar};
use dormouse_fleet::join_proto::Signed;
use dormouse_fleet::{Boottime, Event, Incoming};
use dormouse_rig::address::{NODE, PREFIX};
use dormouse_rig::{Agent, Call, Netns, Node, PATIENCE, UPLINK, binaries, on_node, wait};
use dormouse_trust::{
    Authority, Clients, Current, Identity, JoinLine, Token, Validity, folder, server,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::scan::serving;
use super::{Control, VIP, activator, ask, config, served, touch_vip, with_vips};

const DAY: Duration = Duration::from_hours(24);

/// Signs for the node that asks.
struct Signs {
    authority: Arc<Authority>,
    control: String,
    life: Arc<Mutex<Duration>>,
}

impl Registrar for Signs {
    async fn sign(&self, asked: Asked) -> Result<Signed, Status> {
        let identity = Identity::node(&asked.node).unwrap();
        let validity = Validity::issued(SystemTime::now(), *self.life.lock(), None);
        let chain = self
            .authority
            .sign(&asked.request, &identity, &[], validity);
        Ok(Signed {
            chain: chain.unwrap().iter().map(|one| one.to_vec()).collect(),
            authorities: vec![self.authority.certificate().to_vec()],
            control: self.control.clone(),
        })
    }
}

fn day() -> Validity {
    Validity::issued(SystemTime::now(), DAY, None)
}

/// A fleet with certificates, and a line with which nodes join.
async fn control() -> (Control, JoinLine, Arc<Authority>) {
    control_at("[::1]:0", Arc::new(Mutex::new(DAY))).await
}

/// A fleet with certificates at an address; those of nodes have this life.
async fn control_at(
    address: &str,
    duration: Arc<Mutex<Duration>>,
) -> (Control, JoinLine, Arc<Authority>) {
    let authority = Arc::new(Authority::create(SystemTime::now()).unwrap());
    let names = ["::1".to_owned()];
    let certificate = authority
        .server(&Identity::control("up").unwrap(), &names, day())
        .unwrap();
    let certificate = Current::new(certificate).unwrap();
    let tls = |clients| {
        let authorities = [authority.certificate().clone()];
        server::config(certificate.clone(), &authorities, clients).unwrap()
    };
    let shutdown = CancellationToken::new();
    let config = config(1, vec![activator(String::new())]);
    let (handle, events) = dormouse_fleet::start(config, shutdown.clone());
    handle.confirmed(Boottime(u64::MAX));
    // Another server may still be closing it.
    let bound = async {
        loop {
            if let Ok(listener) = TcpListener::bind(address).await {
                return listener;
            }
            tokio::task::yield_now().await;
        }
    };
    let listener = timeout(PATIENCE, bound).await.expect("a free port");
    let url = format!("https://{}", listener.local_addr().unwrap());
    let incoming = Incoming::new(listener, 10).secured_with_reason(tls(Clients::Required));
    let served = dormouse_fleet::serve(incoming, handle.clone(), shutdown.clone());
    tokio::spawn(served);
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let line = JoinLine {
        address: listener.local_addr().unwrap(),
        authority: authority.hash(),
        token: Token::create().unwrap(),
    };
    let incoming = Incoming::new(listener, 10).secured(tls(Clients::Requested));
    let signs = Signs {
        authority: Arc::clone(&authority),
        control: url.clone(),
        life: duration,
    };
    tokio::spawn(join::serve(incoming, signs, shutdown.clone()));
    let control = Control {
        handle,
        events,
        url,
        shutdown,
    };
    (control, line, authority)
}

fn command(node: &Node, flags: &[&str]) -> Command {
    let mut command = node.home().command(&["run", "--uplink", UPLINK]);
    command
        .args(["--prefix", PREFIX, "--address", &NODE.to_string()])
        .args(["--metrics", "[::]:10249", "--cni"])
        .arg(binaries::plugin())
        .args(flags);
    command
}

fn start(node: &Node, flags: &[&str]) -> Agent {
    Agent::start(&mut command(node, flags))
}

/// Starts an agent, and waits until it has logged all of these words.
fn start_and_log(node: &Node, flags: &[&str], words: &[&str]) -> Agent {
    let path = node.dir().join("agent.log");
    let log = File::create(&path).unwrap();
    let mut command = command(node, flags);
    let agent = Agent::start(command.stdout(log.try_clone().unwrap()).stderr(log));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = fs::read_to_string(&path).unwrap();
        if words.iter().all(|word| log.contains(word)) {
            return agent;
        }
        assert!(Instant::now() < deadline, "not {words:?} in {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A file with the line.
fn file_of(node: &Node, line: &JoinLine) -> String {
    let file = node.home().state_dir().with_extension("line");
    fs::write(&file, line.reveal().as_bytes()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The node meets the VIP, and gets an entry that serves a pod.
async fn serve(node: &Node, control: &mut Control) {
    touch_vip(node);
    let wanted = Event::Wanted { vips: vec![7] };
    let is_wanted = |event| (event == wanted).then_some(());
    control.until("the node to want the VIP", is_wanted).await;
    control.handle.publish(serving(7));
    wait("the node to have the entry", || {
        ask(node, &["get", "apps"]).contains(VIP)
    });
    control.settled(1).await;
    still_serves(node).await;
}

/// A connection to the VIP is translated to the pod.
async fn still_serves(node: &Node) {
    let before = served().await;
    touch_vip(node);
    assert!(served().await > before, "a connection to the pod");
}

#[test]
fn an_agent_whose_certificate_has_expired_is_refused_and_its_data_path_goes_on() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let duration = Arc::new(Mutex::new(Duration::from_secs(3)));
            let (mut control, line, _) = control_at("[::1]:0", Arc::clone(&duration)).await;
            let line = file_of(node, &line);
            let agent = start(node, &["--join", &line]);
            control.up().await;
            serve(node, &mut control).await;
            agent.kill();
            let kept: PathBuf = node.home().state_dir().join("identity/node.pem");
            wait("the certificate to expire", || {
                let kept = folder::load(&kept, &kept).unwrap().validity().unwrap();
                let now = SystemTime::now();
                // In TLS, a second that has begun is valid.
                [now, now - Duration::from_secs(1)]
                    .iter()
                    .all(|at| !kept.contains(*at))
            });
            while control.events.try_recv().is_ok() {}
            let words = [
                "dormouse token create --node",
                "the other side refused this certificate as expired",
            ];
            let agent = start_and_log(node, &[], &words);
            still_serves(node).await;
            while let Ok(event) = control.events.try_recv() {
                assert!(!matches!(event, Event::NodeUp { .. }), "{event:?}");
            }
            agent.kill();
            *duration.lock() = DAY;
            let _agent = start(node, &["--join", &line]);
            control.up().await;
            still_serves(node).await;
            control.shutdown.cancel();
        });
    });
}

#[test]
fn an_agent_that_has_not_joined_is_refused_and_its_data_path_goes_on() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut plain = Control::start().await;
            let url = plain.url.clone();
            let agent = start(node, &["--control", &url]);
            plain.up().await;
            serve(node, &mut plain).await;
            agent.kill();
            plain.shutdown.cancel();
            drop(plain);
            // The cluster has moved to TLS.
            let address = url.trim_start_matches("http://");
            let duration = Arc::new(Mutex::new(DAY));
            let (mut control, line, _) = control_at(address, duration).await;
            let words = ["dormouse token create --node", "--join and the line"];
            let agent = start_and_log(node, &["--control", &url], &words);
            still_serves(node).await;
            agent.kill();
            let _agent = start(node, &["--join", &file_of(node, &line)]);
            control.up().await;
            still_serves(node).await;
            control.shutdown.cancel();
        });
    });
}

#[test]
fn an_agent_speaks_no_plain_text_with_another_host_and_uses_up_no_token() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line, _) = control().await;
            let line = file_of(node, &line);
            let url = "http://[2001:db8:d0::c]:7443";
            let flags = ["--join", &line, "--control", url];
            let mut command = command(node, &flags);
            let output = command.stdin(Stdio::null()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{text}");
            for part in [
                url,
                "plain text to another host",
                "dormouse token create --node",
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!node.home().state_dir().join("identity").exists());
            let _agent = start(node, &["--join", &line]);
            control.up().await;
            control.shutdown.cancel();
        });
    });
}

#[test]
fn an_agent_joins_with_a_line_and_its_successor_needs_none() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line, _) = control().await;
            let agent = start(node, &["--join", &file_of(node, &line)]);
            control.up().await;
            agent.kill();
            let _agent = start(node, &[]);
            let up = |event| matches!(event, Event::NodeUp { .. }).then_some(());
            control.until("the node again", up).await;
            control.shutdown.cancel();
        });
    });
}

/// The status with which the agent answers a client in a pod, and the text.
fn get(pod: &Netns, scheme: &str, path: &str, more: &[&str]) -> (String, String) {
    let url = format!("{scheme}://[{NODE}]:10249{path}");
    let output = pod.inside(|| {
        let mut command = Command::new("curl");
        command.args(["-gsk", "--max-time", "20", "-w", "\n%{http_code}"]);
        command.args(more).arg(url).output()
    });
    let text = String::from_utf8(output.stdout).unwrap();
    let (text, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), text.to_owned())
}

#[test]
fn a_pod_reads_the_health_of_a_joined_agent_and_its_metrics_only_as_the_control_plane() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line, authority) = control().await;
            let _agent = start(node, &["--join", &file_of(node, &line)]);
            control.up().await;
            let home = node.home();
            let pod = node.pod("a");
            let add = Call::new("ADD", Call::network(&home.socket(), &home.state_dir()));
            add.attachment(pod.name(), pod.path()).succeeds();

            for scheme in ["http", "https"] {
                assert_eq!(get(&pod, scheme, "/healthz", &[]).0, "200", "{scheme}");
                assert_eq!(get(&pod, scheme, "/readyz", &[]).0, "200", "{scheme}");
                for path in ["/metrics", "/services"] {
                    let (status, text) = get(&pod, scheme, path, &[]);
                    assert_eq!(status, "403", "{scheme} {path}");
                    assert!(text.contains("--metrics-from"), "{text}");
                }
            }
            let certificate = home.state_dir().with_extension("pem");
            let certificate = certificate.to_str().unwrap();
            for (identity, want) in [
                (Identity::control("up").unwrap(), "200"),
                (Identity::node("other").unwrap(), "403"),
            ] {
                let shown = authority.client(&identity, day()).unwrap();
                folder::keep(certificate.as_ref(), &shown).unwrap();
                let (status, _) = get(&pod, "https", "/metrics", &["--cert", certificate]);
                assert_eq!(status, want, "{identity}");
            }
            let here = super::metrics().await;
            assert!(here.contains("dormouse_fleet_connected 1"), "{here}");
            control.shutdown.cancel();
        });
    });
}

#[test]
fn an_agent_that_logs_all_shows_neither_its_token_nor_its_key() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line, _) = control().await;
            let state = node.home().state_dir();
            let log = state.with_extension("log");
            let mut command = command(node, &["--join", &file_of(node, &line)]);
            command.env("DORMOUSE_LOG", "trace");
            command.stderr(File::create(&log).unwrap());
            let agent = Agent::start(&mut command);
            control.up().await;

            let token = line.token.reveal();
            let pem = fs::read_to_string(state.join("identity/node.pem")).unwrap();
            let (_, key) = pem.split_once("-----BEGIN PRIVATE KEY-----").unwrap();
            let secrets = token.split('.').skip(1).chain(key.lines().skip(1).take(2));
            let process = format!("/proc/{}/cmdline", agent.pid());
            let log = fs::read_to_string(&log).unwrap();
            assert!(log.contains("TRACE"), "{log}");
            let shown = [
                log,
                fs::read_to_string(process).unwrap(),
                super::metrics().await,
                ask(node, &["doctor"]),
                ask(node, &["doctor", "-o", "json"]),
            ];
            for secret in secrets {
                assert!(secret.len() >= 32, "{}", secret.len());
                assert!(!shown.iter().any(|text| text.contains(secret)), "{shown:?}");
            }
            control.shutdown.cancel();
        });
    });
}
