//! The audit log: a line for each request, with the decision, and without tokens and bodies.

use std::io::{self, Write};
use std::sync::Arc;

use dormouse::audit;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{request, send};
use crate::world::World;

const ROOT: &str = "root/system:masters";

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// The first event of a request for this URI, when it is written.
    async fn event(&self, uri: &str) -> Value {
        loop {
            let text = String::from_utf8(self.0.lock().clone()).unwrap();
            let whole = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(found) = whole.into_iter().find(|event| event["requestURI"] == uri) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn world() -> (World, Output) {
    let output = Output::default();
    let (audit, log) = audit::to(Box::new(output.clone()));
    std::thread::spawn(move || log.write());
    let world = World::start_audited(audit).await;
    (world, output)
}

#[tokio::test]
async fn a_line_has_the_user_the_object_the_decision_and_the_response() {
    let (world, output) = world().await;
    let headers = "User-Agent: me\r\nImpersonate-User: bob\r\n";
    let uri = "/api/v1/namespaces/shop/pods/web/log?tailLines=1";
    send(&world, (ROOT, headers), ("GET", uri), &Value::Null).await;
    let mut event = output.event(uri).await;
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = event.as_object_mut().unwrap().remove(time).unwrap();
        let time = time.as_str().unwrap();
        assert!(
            time.len() == "2026-01-01T00:00:00.000000Z".len() && time.ends_with('Z'),
            "{time}"
        );
    }
    let id = event.as_object_mut().unwrap().remove("auditID").unwrap();
    assert_eq!(id.as_str().unwrap().len(), 36);
    let message = "pods \"web\" is forbidden: User \"bob\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"shop\"";
    let want = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
        "requestURI": uri, "verb": "get", "userAgent": "me", "sourceIPs": ["::1"],
        "user": {"username": "root", "groups": ["system:masters", "system:authenticated"]},
        "impersonatedUser": {"username": "bob", "groups": ["system:authenticated"]},
        "objectRef": {"resource": "pods", "subresource": "log", "namespace": "shop", "name": "web", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 403, "status": "Failure", "reason": "Forbidden", "message": message},
        "annotations": {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""},
    });
    assert_eq!(event, want);
}

#[tokio::test]
async fn an_allowed_request_has_its_reason_and_a_wrong_token_no_user() {
    let (world, output) = world().await;
    request(&world, "ann", "GET /version?a", &Value::Null).await;
    let event = output.event("/version?a").await;
    let reason = "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to \
                  Group \"system:authenticated\"";
    let annotations =
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": reason});
    assert_eq!(
        (&event["annotations"], &event["responseStatus"]["code"]),
        (&annotations, &json!(200))
    );
    request(&world, "wrong", "GET /version?b", &Value::Null).await;
    let event = output.event("/version?b").await;
    assert_eq!(
        (&event["user"], &event["responseStatus"]["code"]),
        (&json!({}), &json!(401))
    );
    assert_eq!(event.get("annotations"), None);
    let text = String::from_utf8(output.0.lock().clone()).unwrap();
    assert!(
        !text.contains("wrong") && !text.contains("Bearer"),
        "{text}"
    );
}

#[tokio::test]
async fn the_event_of_a_watch_is_complete_when_the_watch_ends() {
    let (world, output) = world().await;
    let address = world.endpoint.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let uri = "/api/v1/pods?watch=1";
    let watch =
        format!("GET {uri} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ROOT}\r\n\r\n");
    stream.write_all(watch.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    // Events are written in order: the watch would come before this one.
    request(&world, ROOT, "GET /version?c", &Value::Null).await;
    output.event("/version?c").await;
    let text = String::from_utf8(output.0.lock().clone()).unwrap();
    assert!(!text.contains(uri), "{text}");
    drop(stream);
    assert_eq!(output.event(uri).await["verb"], "watch");
}
