//! Joining and renewal against a server that signs every request for a certificate.

use std::os::unix::fs::PermissionsExt;

use dormouse_trust::{Authority, Token, Validity};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::Status;

use super::*;
use crate::Incoming;
use crate::join::{Asked, Registrar, serve};
use crate::join_proto::Signed;

/// A registrar that signs for the node of the request, and counts.
#[derive(Clone)]
struct Signs {
    authority: Arc<Authority>,
    life: Duration,
    renewed: Arc<Mutex<u32>>,
}

impl Registrar for Signs {
    async fn sign(&self, asked: Asked) -> Result<Signed, Status> {
        let identity = match (&asked.token, &asked.client) {
            (Some(_), _) => Identity::node(&asked.node).unwrap(),
            (None, Some(client)) => {
                *self.renewed.lock() += 1;
                client.identity.clone()
            }
            (None, None) => return Err(Status::unauthenticated("no certificate")),
        };
        let validity = Validity::issued(SystemTime::now(), self.life, None);
        let chain = self
            .authority
            .sign(&asked.request, &identity, &[], validity);
        Ok(Signed {
            chain: chain.unwrap().iter().map(|one| one.to_vec()).collect(),
            authorities: vec![self.authority.certificate().to_vec()],
            control: "https://[::1]:7443".to_owned(),
        })
    }
}

/// Serves joins, and returns the registrar and a line.
async fn cluster(life: Duration) -> (Signs, JoinLine) {
    let authority = Arc::new(Authority::create(SystemTime::now()).unwrap());
    let day = Validity::issued(SystemTime::now(), Duration::from_hours(24), None);
    let up = Identity::control("up").unwrap();
    let certificate = authority.server(&up, &["::1".to_owned()], day).unwrap();
    let config = server::config(
        Current::new(certificate).unwrap(),
        &[authority.certificate().clone()],
        Clients::Requested,
    );
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let invitation = JoinLine {
        address: listener.local_addr().unwrap(),
        authority: authority.hash(),
        token: Token::create().unwrap(),
    };
    let signs = Signs {
        authority,
        life,
        renewed: Arc::default(),
    };
    let incoming = Incoming::new(listener, 10).secured(config.unwrap());
    tokio::spawn(serve(incoming, signs.clone(), CancellationToken::new()));
    (signs, invitation)
}

async fn open(
    folder: &Path,
    node: &str,
    line: Option<&str>,
) -> Result<Option<Membership>, MembershipError> {
    Membership::open(folder, Identity::node(node).unwrap(), line).await
}

#[tokio::test]
async fn a_node_joins_once_and_its_certificate_is_kept_for_its_owner() {
    let state = tempfile::tempdir().unwrap();
    let (_signs, line) = cluster(Duration::from_hours(24)).await;
    let none = open(state.path(), "a", None).await.unwrap();
    assert!(none.is_none());
    let text = line.reveal();
    let joined = open(state.path(), "a", Some(&text)).await.unwrap();
    assert!(joined.unwrap().target(None).is_ok());
    let path = state.path().join("node.pem");
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A restart needs neither the line nor control.
    let again = open(state.path(), "a", None).await.unwrap();
    assert!(again.is_some());
    let other = open(state.path(), "b", None).await.unwrap_err();
    let other = error_chain(&other);
    assert!(
        other.contains("system:node:a, and this is system:node:b"),
        "{other}"
    );
}

#[tokio::test]
async fn a_line_may_be_in_a_file_and_one_of_another_authority_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let (_signs, line) = cluster(Duration::from_hours(24)).await;
    let (_other, foreign) = cluster(Duration::from_hours(24)).await;
    let file = state.path().join("line");
    let forged = JoinLine {
        authority: foreign.authority,
        ..line.clone()
    };
    std::fs::write(&file, forged.reveal().as_bytes()).unwrap();
    let file = file.to_str().unwrap();
    let refused = open(state.path(), "a", Some(file)).await.unwrap_err();
    let refused = error_chain(&refused);
    assert!(
        refused.contains("another certificate authority"),
        "{refused}"
    );
    std::fs::write(file, format!("{}\n", *line.reveal())).unwrap();
    let joined = open(state.path(), "a", Some(file)).await.unwrap();
    assert!(joined.is_some());
    let wrong = open(&state.path().join("other"), "a", Some("/nowhere")).await;
    assert!(error_chain(&wrong.unwrap_err()).contains("neither a line of"));
}

#[tokio::test]
async fn a_join_whose_certificate_cannot_be_kept_says_whether_its_token_is_used_up() {
    let state = tempfile::tempdir().unwrap();
    let (_signs, line) = cluster(Duration::from_hours(24)).await;
    let line = line.reveal();
    let file = state.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let before = open(&file.join("identity"), "a", Some(&line)).await;
    let before = error_chain(&before.unwrap_err());
    assert!(
        before.contains("could not be kept: cannot write") && !before.contains("used up"),
        "{before}"
    );
    let folder = state.path().join("identity");
    // A folder in the place of the new file: it cannot be written.
    std::fs::create_dir_all(folder.join(".node.pem.new")).unwrap();
    let after = open(&folder, "a", Some(&line)).await;
    let after = error_chain(&after.unwrap_err());
    assert!(
        after.contains("its token is used up") && after.contains("token create --node a"),
        "{after}"
    );
}

#[tokio::test]
async fn a_certificate_is_renewed_and_kept_before_it_expires() {
    let state = tempfile::tempdir().unwrap();
    let (signs, line) = cluster(Duration::from_secs(2)).await;
    let joined = open(state.path(), "a", Some(&line.reveal())).await;
    let joined = joined.unwrap().unwrap();
    let current = Arc::clone(&joined.current);
    let first = current.credentials().validity().unwrap();
    let shutdown = CancellationToken::new();
    let renewing = tokio::spawn(joined.renew(shutdown.clone()));
    tokio::time::timeout(Duration::from_secs(20), async {
        while current.credentials().validity() == Some(first) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert!(SystemTime::now() < first.not_after);
    shutdown.cancel();
    renewing.await.unwrap();
    assert!(*signs.renewed.lock() >= 1);
    let kept = open(state.path(), "a", None).await.unwrap().unwrap();
    assert_ne!(kept.current.credentials().validity(), Some(first));
}

#[tokio::test]
async fn a_node_with_an_expired_certificate_starts_and_joins_again_with_a_line() {
    let state = tempfile::tempdir().unwrap();
    let (_signs, line) = cluster(Duration::ZERO).await;
    let open = async |line: Option<&str>| {
        let opened = open(state.path(), "a", line).await;
        let credentials = opened.unwrap().unwrap().current.credentials();
        credentials.validity().unwrap()
    };
    let first = open(Some(&line.reveal())).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(open(None).await, first);
    let (_signs, line) = cluster(Duration::from_hours(24)).await;
    let again = open(Some(&line.reveal())).await;
    assert!(again.contains(SystemTime::now()));
    assert_eq!(open(None).await, again);
}

#[test]
fn a_node_without_a_certificate_needs_one_for_https() {
    let node = Identity::node("a").unwrap();
    let missing = plain("https://[::1]:7443", &node).unwrap_err().to_string();
    assert!(missing.contains("token create --node a"), "{missing}");
    assert!(plain("http://[::1]:7443", &node).is_ok());
    let plain_text = plain("http://[2001:db8::c]:7443", &node);
    let plain_text = plain_text.unwrap_err().to_string();
    assert!(
        plain_text.contains("plain text to another host")
            && plain_text.contains("token create --node a"),
        "{plain_text}"
    );
}
