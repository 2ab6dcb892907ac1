//! TLS, users by certificate, and clients in Go, which send addresses of endpoints as authority.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_store::{
    Store,
    server::{CertificateFiles, Options, Tls, TlsFiles, TlsParameters},
};
use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::harness::Served;

pub(crate) fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/tls");
    PathBuf::from(folder).join(name)
}

fn pem(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn files(client_authorities: Option<PathBuf>) -> TlsFiles {
    TlsFiles {
        certificate: CertificateFiles {
            certificate: path("server.pem"),
            key: path("server.key"),
        },
        client_authorities,
        revoked: None,
        parameters: TlsParameters::default(),
    }
}

/// A server with TLS, whose clients need certificates if `users`.
pub(crate) async fn serve(users: bool) -> Served {
    let authorities = users.then(|| path("ca.pem"));
    let options = Options {
        tls: Some(Tls::load(&files(authorities)).unwrap()),
        certificate_users: users,
        ..Options::default()
    };
    Served::with_options(Store::new(), options).await
}

async fn connect(served: &Served, certificate: bool) -> Result<Client, Error> {
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(pem("ca.pem")));
    if certificate {
        tls = tls.identity(Identity::from_pem(pem("client.pem"), pem("client.key")));
    }
    let options = ConnectOptions::new().with_tls(tls);
    Client::connect([&served.endpoint], Some(options)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_over_tls() {
    let served = serve(false).await;
    let mut client = connect(&served, false).await.unwrap();
    client.put("key", "value", None).await.unwrap();
    let members = client.member_list().await.unwrap();
    let url = &members.members()[0].client_urls()[0];
    assert_eq!(*url, served.endpoint);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_handshakes_of_one_host_keep_no_client_of_another_out() {
    let options = Options {
        tls: Some(Tls::load(&files(None)).unwrap()),
        connections_max: 16,
        ..Options::default()
    };
    let served = Served::at("[::]:0", Store::new(), options).await;
    let (_, port) = served.endpoint.rsplit_once(':').unwrap();
    let address = (Ipv4Addr::LOCALHOST, port.parse().unwrap()).into();
    let mut silent = Vec::new();
    for _ in 0..32 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        silent.push(socket.connect(address).await.unwrap());
    }
    // A client that waited for the timeout of a handshake would be late.
    let answered = async {
        let mut client = connect(&served, false).await.unwrap();
        client.get("key", None).await.unwrap();
    };
    timeout(Duration::from_secs(8), answered).await.unwrap();
    drop(silent);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_is_refused_if_there_are_authorities() {
    let served = serve(true).await;
    let refused = match connect(&served, false).await {
        Ok(mut client) => client.get("key", None).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    let mut client = connect(&served, true).await.unwrap();
    client.get("key", None).await.unwrap();
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_certificate_is_revoked_is_refused_from_the_next_connection_on() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("clients.crl");
    std::fs::write(&list, pem("empty.crl")).unwrap();
    let files = TlsFiles {
        revoked: Some(list.clone()),
        ..files(Some(path("ca.pem")))
    };
    let options = Options {
        tls: Some(Tls::load(&files).unwrap()),
        ..Options::default()
    };
    let served = Served::with_options(Store::new(), options).await;
    let mut client = connect(&served, true).await.unwrap();
    client.get("key", None).await.unwrap();
    for revoked in ["revoked.crl", "server.key"] {
        std::fs::write(&list, pem(revoked)).unwrap();
        let refused = match connect(&served, true).await {
            Ok(mut client) => client.get("key", None).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{revoked}");
    }
    std::fs::write(&list, pem("empty.crl")).unwrap();
    let mut client = connect(&served, true).await.unwrap();
    client.get("key", None).await.unwrap();
    served.stop().await;
}

/// Enables authentication with a user `root`, and a user `bob` without permissions.
async fn enable_authentication(client: &mut Client) {
    client.user_add("root", "root", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("bob", "bob", None).await.unwrap();
    client.auth_enable().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_common_name_of_a_certificate_is_its_user_unless_there_is_a_token() {
    let served = serve(true).await;
    let mut root = connect(&served, true).await.unwrap();
    enable_authentication(&mut root).await;
    root.put("key", "value", None).await.unwrap();
    root.user_list().await.unwrap();
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(pem("ca.pem")))
        .identity(Identity::from_pem(pem("client.pem"), pem("client.key")));
    let options = ConnectOptions::new().with_tls(tls).with_user("bob", "bob");
    let mut bob = Client::connect([&served.endpoint], Some(options))
        .await
        .unwrap();
    let denied = bob.put("key", "value", None).await.unwrap_err();
    assert!(denied.to_string().contains("permission denied"), "{denied}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_common_name_is_no_user_unless_asked_for() {
    let options = Options {
        tls: Some(Tls::load(&files(Some(path("ca.pem")))).unwrap()),
        ..Options::default()
    };
    let served = Served::with_options(Store::new(), options).await;
    let mut client = connect(&served, true).await.unwrap();
    enable_authentication(&mut client).await;
    let refused = client.put("key", "value", None).await.unwrap_err();
    assert!(
        refused.to_string().contains("user name is empty"),
        "{refused}"
    );
    served.stop().await;
}

#[test]
fn files_that_make_no_server_are_named() {
    let check = |files: &TlsFiles, expected: [&str; 2]| {
        let error = Tls::load(files).unwrap_err();
        let first: &dyn std::error::Error = &error;
        let errors = std::iter::successors(Some(first), |error| error.source());
        let text = errors.map(ToString::to_string).collect::<Vec<_>>();
        let text = text.join(": ");
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    };
    let pair = |certificate, key| TlsFiles {
        certificate: CertificateFiles {
            certificate: path(certificate),
            key: path(key),
        },
        ..files(None)
    };
    check(
        &pair("missing.pem", "server.key"),
        ["missing.pem", "No such file"],
    );
    check(
        &pair("server.key", "server.key"),
        ["server.key", "no certificate in PEM"],
    );
    check(
        &pair("server.pem", "server.pem"),
        ["server.pem", "no private key in PEM"],
    );
    check(
        &pair("server.pem", "client.key"),
        ["server.pem", "both files must be replaced together"],
    );
    let no_list = TlsFiles {
        revoked: Some(path("ca.pem")),
        ..files(Some(path("ca.pem")))
    };
    check(&no_list, ["ca.pem", "no readable revocation list"]);
    check(
        &files(Some(path("server.key"))),
        ["server.key", "no readable certificate"],
    );
}
