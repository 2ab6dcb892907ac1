//! The fleet over TLS: who may open a stream for which node, on a real connection, and what both sides are sent otherwise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod limits;

use std::error::Error as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use dormouse_fleet::client::{Link, LinkError, Target, connect, endpoint};
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::{LogHello, NodeConfig, fleet_client::FleetClient};
use dormouse_fleet::{Boottime, Handle, Incoming, ServerConfig, start};
use dormouse_trust::{Authority, Clients, Current, Identity, Validity, client, server};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_hours(24);

/// Handshakes share the threads of their process: a test of very many of them runs alone.
static TESTS: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// Control with TLS.
struct Control {
    /// While other tests may run. None: none does.
    _among: Option<OwnedRwLockReadGuard<()>>,
    authority: Authority,
    certificate: Arc<Current>,
    handle: Handle,
    address: String,
    shutdown: CancellationToken,
}

fn valid() -> Validity {
    Validity::issued(SystemTime::now(), DAY, None)
}

fn of_up(authority: &Authority) -> dormouse_trust::Credentials {
    let identity = Identity::control("up").unwrap();
    let names = ["::1".to_owned()];
    authority.server(&identity, &names, valid()).unwrap()
}

async fn control() -> Control {
    control_at("[::1]:0", 100).await
}

/// Control that listens at an address; agents connect to [::1].
async fn control_at(address: &str, connections_max: usize) -> Control {
    let among = Arc::clone(&TESTS).read_owned().await;
    Control {
        _among: Some(among),
        ..control_alone(address, connections_max).await
    }
}

/// The same for a test that runs alone, which it sees to itself.
async fn control_alone(address: &str, connections_max: usize) -> Control {
    let authority = Authority::create(SystemTime::now()).unwrap();
    let certificate = Current::new(of_up(&authority)).unwrap();
    let authorities = [authority.certificate().clone()];
    let config = server::config(certificate.clone(), &authorities, Clients::Required).unwrap();
    let shutdown = CancellationToken::new();
    let fleet = ServerConfig::new(1, NodeConfig::default());
    let (handle, mut events) = start(fleet, shutdown.clone());
    handle.confirmed(Boottime(u64::MAX));
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port)).to_string();
    let incoming = Incoming::new(listener, connections_max).secured_with_reason(config);
    let served = dormouse_fleet::serve(incoming, handle.clone(), shutdown.clone());
    tokio::spawn(served);
    Control {
        _among: None,
        authority,
        certificate,
        handle,
        address,
        shutdown,
    }
}

impl Control {
    /// A target with this certificate.
    fn target(&self, certificate: Option<Arc<Current>>) -> Target {
        let authorities = [self.authority.certificate().clone()];
        let config = client::config(&authorities, certificate).unwrap();
        Target::secured(&format!("https://{}", self.address), config).unwrap()
    }

    /// A target with the certificate of a node.
    fn node(&self, name: &str) -> Target {
        self.target(Some(certificate(&self.authority, name, valid())))
    }

    async fn open(&self, target: Target, node: &str) -> Result<Link, LinkError> {
        self.open_from(target, node, "boot").await
    }

    async fn open_from(&self, target: Target, node: &str, boot: &str) -> Result<Link, LinkError> {
        let opened = async {
            let mut node = Node::new(node.into(), boot.into(), "0.1.0".into(), &[]);
            let channel = connect(target.clone()).await?;
            let mut link = Link::open(channel, node.open(Boottime::now())).await?;
            link.receive().await?;
            Ok(link)
        };
        let opened = timeout(TIMEOUT, opened).await.unwrap();
        opened.map_err(|error| target.explained(error))
    }

    async fn refused(&self, target: Target, node: &str) -> String {
        match self.open(target, node).await {
            Ok(_) => panic!("it was accepted"),
            Err(error) => chain(&error),
        }
    }
}

fn certificate(authority: &Authority, node: &str, validity: Validity) -> Arc<Current> {
    let identity = Identity::node(node).unwrap();
    Current::new(authority.client(&identity, validity).unwrap()).unwrap()
}

/// An error with its causes.
fn chain(error: &LinkError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}

#[track_caller]
fn assert_names(error: &str, reasons: &[&str]) {
    for reason in reasons {
        assert!(error.contains(reason), "{reason:?} is not in {error:?}");
    }
}

#[tokio::test]
async fn only_a_node_with_its_own_valid_certificate_opens_its_stream() {
    let control = control().await;
    assert!(control.open(control.node("a"), "a").await.is_ok());

    let other = control.refused(control.node("b"), "a").await;
    assert_names(&other, &["system:node:b", "not of the node a"]);
    let none = control.refused(control.target(None), "a").await;
    assert_names(&none, &["needs a certificate"]);
    let foreign = Authority::create(SystemTime::now()).unwrap();
    let foreign = control.target(Some(certificate(&foreign, "a", valid())));
    let foreign = control.refused(foreign, "a").await;
    assert_names(&foreign, &["another certificate authority"]);
    let old = Validity::issued(SystemTime::now() - 2 * DAY, DAY, None);
    let old = control.target(Some(certificate(&control.authority, "a", old)));
    let old = control.refused(old, "a").await;
    assert_names(&old, &["expired", "clocks"]);
    let plain = endpoint(&format!("http://{}", control.address)).unwrap();
    let plain = control.refused(plain.into(), "a").await;
    assert_names(&plain, &["control speaks TLS", "token create --node a"]);
}

/// The client's call fails with another error, as the server is gone by then.
#[tokio::test]
async fn a_refusal_that_arrives_before_the_clients_call_is_named() {
    let authority = Authority::create(SystemTime::now()).unwrap();
    let authorities = [authority.certificate().clone()];
    let own = Current::new(of_up(&authority)).unwrap();
    let config = server::config(own, &authorities, Clients::Required).unwrap();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let old = Validity::issued(SystemTime::now() - 2 * DAY, DAY, None);
    let old = client::config(&authorities, Some(certificate(&authority, "a", old))).unwrap();
    let target = Target::secured(&url, old).unwrap();

    let refuses = async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let handshake = TlsAcceptor::from(config).accept(stream).into_fallible();
        let (_, mut stream) = handshake.await.unwrap_err();
        stream.shutdown().await.unwrap();
        // Until the client has read the alert, and closes.
        tokio::io::copy(&mut stream, &mut tokio::io::sink())
            .await
            .unwrap();
    };
    let both = async { tokio::join!(connect(target.clone()), refuses) };
    let (channel, ()) = timeout(TIMEOUT, both).await.unwrap();
    let mut node = Node::new("a".into(), "boot".into(), "0.1.0".into(), &[]);
    let opened = Link::open(channel.unwrap(), node.open(Boottime::now())).await;
    let Err(error) = opened else {
        panic!("it was accepted");
    };
    assert!(!chain(&error).contains("expired"), "{error}");
    assert_names(&chain(&target.explained(error)), &["expired", "clocks"]);
}

#[tokio::test]
async fn a_node_offers_no_logs_of_another() {
    let control = control().await;
    let offer = async |node: &str| {
        let channel = connect(control.node("b")).await.unwrap();
        let hello = LogHello { node: node.into() };
        FleetClient::new(channel).follow_logs(hello).await
    };
    let _offered = offer("b").await.unwrap();
    let refused = offer("a").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    assert_eq!(control.handle.log_nodes(), ["b"]);
}

#[tokio::test]
async fn two_hosts_with_one_name_are_refused_with_both_addresses() {
    let control = control().await;
    let first = control.open(control.node("a"), "a").await.unwrap();
    let second = control.open_from(control.node("a"), "a", "other").await;
    let Err(second) = second else {
        panic!("it was accepted");
    };
    assert_names(
        &chain(&second),
        &["connected from ::1", "connects from ::1"],
    );
    assert_eq!(control.handle.streams(), 1);
    // The agent of the first host connects again before its earlier stream has ended.
    let again = control.open(control.node("a"), "a").await.unwrap();
    drop((first, again));
}

#[tokio::test]
async fn a_revoked_nodes_stream_ends_and_its_certificate_is_refused() {
    let control = control().await;
    let revoked = control.node("a");
    let mut link = control.open(revoked.clone(), "a").await.unwrap();
    let mut other = control.open(control.node("b"), "b").await.unwrap();
    control.handle.revoke("a", SystemTime::now());
    let end = async { while link.receive().await.is_ok() {} };
    timeout(TIMEOUT, end).await.unwrap();
    let refused = control.refused(revoked, "a").await;
    assert_names(&refused, &["node a was revoked", "token create --node a"]);
    assert_eq!(control.handle.streams(), 1);
    control.shutdown.cancel();
    assert!(timeout(TIMEOUT, other.receive()).await.unwrap().is_err());
}

#[tokio::test]
async fn streams_go_on_while_all_certificates_are_replaced() {
    let control = control().await;
    let node = certificate(&control.authority, "a", valid());
    let mut link = control
        .open(control.target(Some(node.clone())), "a")
        .await
        .unwrap();
    control
        .certificate
        .replace(of_up(&control.authority))
        .unwrap();
    let renewed = certificate(&control.authority, "a", valid()).credentials();
    node.replace(renewed).unwrap();
    control
        .handle
        .run("a", dormouse_fleet::proto::PodSpec::default());
    assert_eq!(
        timeout(TIMEOUT, link.receive())
            .await
            .unwrap()
            .unwrap()
            .run
            .len(),
        1
    );
    assert!(control.open(control.target(Some(node)), "a").await.is_ok());
}
