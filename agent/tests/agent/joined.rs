//! An agent that joins a cluster with certificates: the line of a token is all that it needs, and its successor does not need that.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_fleet::join::{self, Asked, Registrar};
use dormouse_fleet::join_proto::Signed;
use dormouse_fleet::{Boottime, Event, Incoming, ServerConfig};
use dormouse_rig::address::{NODE, PREFIX};
use dormouse_rig::{Agent, Node, UPLINK, binaries, on_node};
use dormouse_trust::{Authority, Clients, Current, Identity, JoinLine, Token, Validity, server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Control, METRICS, ask, metrics, with_vips};

/// Signs for the node that asks.
struct Signs {
    authority: Arc<Authority>,
    control: String,
}

impl Registrar for Signs {
    async fn sign(&self, asked: Asked) -> Result<Signed, Status> {
        let identity = Identity::node(&asked.node).unwrap();
        let chain = self.authority.sign(&asked.request, &identity, &[], day());
        Ok(Signed {
            chain: chain.unwrap().iter().map(|one| one.to_vec()).collect(),
            authorities: vec![self.authority.certificate().to_vec()],
            control: self.control.clone(),
        })
    }
}

fn day() -> Validity {
    Validity::issued(SystemTime::now(), Duration::from_hours(24), None)
}

/// A fleet with certificates, and a line with which nodes join.
async fn control() -> (Control, JoinLine) {
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
    let config = ServerConfig::new(1, super::NodeConfig::default());
    let (handle, events) = dormouse_fleet::start(config, shutdown.clone());
    handle.confirmed(Boottime(u64::MAX));
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
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
        authority,
        control: url.clone(),
    };
    tokio::spawn(join::serve(incoming, signs, shutdown.clone()));
    let control = Control {
        handle,
        events,
        url,
        shutdown,
    };
    (control, line)
}

fn start(node: &Node, flags: &[&str]) -> Agent {
    Agent::start(&mut command(node, flags))
}

fn command(node: &Node, flags: &[&str]) -> Command {
    let mut command = node.home().command(&["run", "--uplink", UPLINK]);
    command
        .args(["--prefix", PREFIX, "--address", &NODE.to_string()])
        .args(["--metrics", METRICS, "--cni"])
        .arg(binaries::plugin())
        .args(flags);
    command
}

#[test]
fn an_agent_joins_with_a_line_and_its_successor_needs_none() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line) = control().await;
            let file = node.home().state_dir().with_extension("line");
            fs::write(&file, line.reveal().as_bytes()).unwrap();
            let agent = start(node, &["--join", file.to_str().unwrap()]);
            control.up().await;
            agent.kill();
            let _agent = start(node, &[]);
            let up = |event| matches!(event, Event::NodeUp { .. }).then_some(());
            control.until("the node again", up).await;
            control.shutdown.cancel();
        });
    });
}

#[test]
fn an_agent_that_logs_all_shows_neither_its_token_nor_its_key() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line) = control().await;
            let state = node.home().state_dir();
            let (file, log) = (state.with_extension("line"), state.with_extension("log"));
            fs::write(&file, line.reveal().as_bytes()).unwrap();
            let mut command = command(node, &["--join", file.to_str().unwrap()]);
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
                metrics().await,
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
