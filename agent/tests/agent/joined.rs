//! An agent that joins a cluster with certificates: the line of a token is all that it needs, and its successor does not need that.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_fleet::join::{self, Asked, Registrar};
use dormouse_fleet::join_proto::Signed;
use dormouse_fleet::{Boottime, Event, Incoming, ServerConfig};
use dormouse_rig::address::{NODE, PREFIX};
use dormouse_rig::{Agent, Call, Netns, Node, UPLINK, binaries, on_node};
use dormouse_trust::{
    Authority, Clients, Current, Identity, JoinLine, Token, Validity, folder, server,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Control, with_vips};

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
async fn control() -> (Control, JoinLine, Arc<Authority>) {
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
        authority: Arc::clone(&authority),
        control: url.clone(),
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

fn start(node: &Node, flags: &[&str]) -> Agent {
    let mut command = node.home().command(&["run", "--uplink", UPLINK]);
    command
        .args(["--prefix", PREFIX, "--address", &NODE.to_string()])
        .args(["--metrics", "[::]:10249", "--cni"])
        .arg(binaries::plugin())
        .args(flags);
    Agent::start(&mut command)
}

#[test]
fn an_agent_joins_with_a_line_and_its_successor_needs_none() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let (mut control, line, _) = control().await;
            let file = node.home().state_dir().with_extension("line");
            std::fs::write(&file, line.reveal().as_bytes()).unwrap();
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
            let file = node.home().state_dir().with_extension("line");
            std::fs::write(&file, line.reveal().as_bytes()).unwrap();
            let _agent = start(node, &["--join", file.to_str().unwrap()]);
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
