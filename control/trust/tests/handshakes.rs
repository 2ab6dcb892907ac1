//! Handshakes with every kind of bad certificate, in memory: both sides get a reason that names what is wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_trust::{Authority, Clients, Credentials, Current, Identity, Validity};
use dormouse_trust::{client, diagnosis, server};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection,
};

const ADDRESS: &str = "2001:db8::c";
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A cluster: its authority, and control's certificate.
struct World {
    authority: Authority,
    control: Arc<Current>,
}

fn valid() -> Validity {
    Validity::issued(SystemTime::now(), DAY, None)
}

/// As issued by a host whose clock is wrong by an hour.
fn expired() -> Validity {
    Validity::issued(SystemTime::now() - DAY - HOUR, DAY, None)
}

fn future() -> Validity {
    Validity::issued(SystemTime::now() + HOUR, DAY, None)
}

fn world() -> World {
    let authority = Authority::create(SystemTime::now()).unwrap();
    let control = control(&authority, ADDRESS, valid());
    World {
        control: Current::new(control).unwrap(),
        authority,
    }
}

fn control(authority: &Authority, name: &str, validity: Validity) -> Credentials {
    let identity = Identity::control("up").unwrap();
    authority
        .server(&identity, &[name.to_owned()], validity)
        .unwrap()
}

fn node(authority: &Authority, validity: Validity) -> Arc<Current> {
    let identity = Identity::node("a").unwrap();
    Current::new(authority.client(&identity, validity).unwrap()).unwrap()
}

/// The errors of both sides, and the client's identity at the server.
#[derive(Debug)]
struct Handshake {
    server: Result<Option<Identity>, String>,
    client: Result<(), String>,
}

impl World {
    fn server(&self, clients: Clients) -> Arc<ServerConfig> {
        let authorities = [self.authority.certificate().clone()];
        server::config(self.control.clone(), &authorities, clients).unwrap()
    }

    fn client(&self, certificate: Option<Arc<Current>>) -> Arc<ClientConfig> {
        client::config(&[self.authority.certificate().clone()], certificate).unwrap()
    }

    /// A handshake with a listener that requires certificates.
    fn required(&self, certificate: Option<Arc<Current>>) -> Handshake {
        let client = self.client(certificate);
        handshake(self.server(Clients::Required), client)
    }
}

fn handshake(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Handshake {
    let name = ServerName::try_from(ADDRESS).unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    let mut outcome = (Ok(()), Ok(()));
    for _ in 0..4 {
        pass(&mut client, &mut server, &mut outcome.0);
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() && outcome.1.is_ok() {
            client.read_tls(&mut bytes).unwrap();
            outcome.1 = client.process_new_packets().map(drop);
        }
    }
    let reason = |error: Error| diagnosis::of(&error);
    Handshake {
        server: match outcome.0 {
            Ok(()) => Ok(server::client(&server)
                .unwrap()
                .map(|client| client.identity)),
            Err(error) => Err(reason(error)),
        },
        client: outcome.1.map_err(reason),
    }
}

fn pass(client: &mut ClientConnection, server: &mut ServerConnection, at: &mut Result<(), Error>) {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    let mut bytes = bytes.as_slice();
    while !bytes.is_empty() && at.is_ok() {
        server.read_tls(&mut bytes).unwrap();
        *at = server.process_new_packets().map(drop);
    }
}

#[track_caller]
fn assert_refused(side: Result<impl std::fmt::Debug, String>, reasons: &[&str]) {
    let error = side.unwrap_err();
    for reason in reasons {
        assert!(error.contains(reason), "{reason:?} is not in {error:?}");
    }
}

#[test]
fn a_certificate_of_the_cluster_is_an_identity() {
    let world = world();
    let handshake = world.required(Some(node(&world.authority, valid())));
    assert_eq!(handshake.server, Ok(Some(Identity::node("a").unwrap())));
    assert_eq!(handshake.client, Ok(()));
}

#[test]
fn without_a_certificate_a_client_is_refused_or_anonymous_as_the_listener_wants() {
    let world = world();
    let required = world.required(None);
    assert_refused(
        required.server,
        &["no certificate", "dormouse token create"],
    );
    assert_refused(required.client, &["needs a certificate", "join"]);
    let requested = handshake(world.server(Clients::Requested), world.client(None));
    assert_eq!((requested.server, requested.client), (Ok(None), Ok(())));
}

#[test]
fn a_port_of_the_control_plane_admits_its_parts_and_administrators_only() {
    let world = world();
    let with = |identity: &Identity| {
        let client = world.authority.client(identity, valid()).unwrap();
        let client = world.client(Some(Current::new(client).unwrap()));
        handshake(world.server(Clients::Only(server::administers)), client)
    };
    let user = |group: &str| Identity::user("eve", vec![group.to_owned()]).unwrap();
    for admitted in [
        Identity::control("activator").unwrap(),
        user("system:masters"),
    ] {
        assert_eq!(with(&admitted).server, Ok(Some(admitted)));
    }
    for other in [Identity::node("a").unwrap(), user("dev")] {
        let handshake = with(&other);
        assert_refused(handshake.server, &["may not use this port"]);
        assert_refused(handshake.client, &["does not admit this identity"]);
    }
    let none = handshake(
        world.server(Clients::Only(server::administers)),
        world.client(None),
    );
    assert_refused(none.server, &["no certificate"]);
}

#[test]
fn an_expired_certificate_is_refused_with_both_times_also_where_none_is_required() {
    let world = world();
    let certificate = node(&world.authority, expired());
    for clients in [Clients::Required, Clients::Requested] {
        let client = world.client(Some(Arc::clone(&certificate)));
        let handshake = handshake(world.server(clients), client);
        assert_refused(
            handshake.server,
            &["expired at 20", "1h", "the clock of this host"],
        );
        assert_refused(handshake.client, &["expired or not valid yet", "clocks"]);
    }
}

#[test]
fn a_certificate_from_a_clock_that_is_an_hour_ahead_names_the_clock() {
    let world = world();
    let handshake = world.required(Some(node(&world.authority, future())));
    assert_refused(
        handshake.server,
        &["valid from 20", "59m", "one of both clocks is wrong"],
    );
    assert_refused(handshake.client, &["expired or not valid yet", "clocks"]);
}

#[test]
fn a_certificate_of_another_cluster_is_refused() {
    let (world, other) = (world(), world());
    let handshake = world.required(Some(node(&other.authority, valid())));
    assert_refused(
        handshake.server,
        &["certificate authority", "another cluster"],
    );
    assert_refused(handshake.client, &["certificate authority"]);
}

#[test]
fn a_server_is_refused_by_its_name_its_authority_its_time_and_its_purpose() {
    let (world, other) = (world(), world());
    let certificate = || Some(node(&world.authority, valid()));
    let with = |credentials: Credentials| {
        world.control.replace(credentials).unwrap();
        world.required(certificate()).client
    };
    let named = with(control(&world.authority, "2001:db8::d", valid()));
    assert_refused(named, &["2001:db8::d", "not for 2001:db8::c", "--tls-san"]);
    let foreign = with(control(&other.authority, ADDRESS, valid()));
    assert_refused(foreign, &["certificate authority"]);
    let old = with(control(&world.authority, ADDRESS, expired()));
    assert_refused(old, &["expired at"]);
    let early = with(control(&world.authority, ADDRESS, future()));
    assert_refused(early, &["clocks is wrong"]);
    let node = node(&world.authority, valid()).credentials();
    assert!(with(node).is_err());
    assert_eq!(with(control(&world.authority, ADDRESS, valid())), Ok(()));
}

#[test]
fn a_probe_accepts_each_server_of_the_authority_at_any_time_and_no_other() {
    let (world, other) = (world(), world());
    let probe = |credentials: Credentials| {
        world.control.replace(credentials).unwrap();
        let authorities = [world.authority.certificate().clone()];
        let probe = client::probing(&authorities).unwrap();
        handshake(world.server(Clients::Requested), probe).client
    };
    for validity in [valid(), expired(), future()] {
        assert_eq!(probe(control(&world.authority, ADDRESS, validity)), Ok(()));
    }
    let elsewhere = control(&world.authority, "2001:db8::d", valid());
    assert_eq!(probe(elsewhere), Ok(()));
    let foreign = probe(control(&other.authority, ADDRESS, valid()));
    assert_refused(foreign, &["certificate authority"]);
    let node = probe(node(&world.authority, valid()).credentials());
    assert_refused(node, &["another purpose"]);
}

#[test]
fn a_process_that_joins_accepts_only_the_authority_of_its_line() {
    let (world, other) = (world(), world());
    let join = |authority: &Authority| {
        let client = client::joining(authority.hash()).unwrap();
        handshake(world.server(Clients::Requested), client).client
    };
    assert_eq!(join(&world.authority), Ok(()));
    assert_refused(join(&other.authority), &["certificate authority"]);
    // The pinned authority is shown, but the server's certificate is of another one.
    let verifier = client::joining(world.authority.hash()).unwrap();
    let forged = control(&other.authority, ADDRESS, valid());
    let mut shown = forged.chain().to_vec();
    shown.push(world.authority.certificate().clone());
    let both = dormouse_trust::credentials::to_pem(&shown);
    let forged = Credentials::from_pem(&both, &forged.key_pem()).unwrap();
    world.control.replace(forged).unwrap();
    let handshake = handshake(world.server(Clients::Requested), verifier);
    assert!(handshake.client.is_err(), "{handshake:?}");
}

#[test]
fn tls_1_2_is_refused_with_the_version_that_is_spoken() {
    let world = world();
    let mut roots = RootCertStore::empty();
    roots.add(world.authority.certificate().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> =
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
            .build()
            .unwrap();
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let handshake = handshake(world.server(Clients::Requested), Arc::new(old));
    assert_refused(handshake.server, &["TLS 1.3"]);
    assert_refused(handshake.client, &["TLS 1.3"]);
}

#[test]
fn a_renewed_certificate_is_used_by_the_next_connection_and_a_bad_one_never() {
    let world = world();
    let certificate = node(&world.authority, expired());
    assert!(world.required(Some(certificate.clone())).server.is_err());
    let renewed = node(&world.authority, valid()).credentials();
    certificate.replace(renewed).unwrap();
    assert!(world.required(Some(certificate)).server.is_ok());
}
