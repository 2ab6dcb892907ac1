//! The source against a small server: credentials that are refused, servers that are not there.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use super::*;

/// Only a failure takes this long.
const PATIENCE: Duration = Duration::from_mins(1);

/// The first line and the token of a request.
fn request(stream: &TcpStream) -> (String, String) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let token = head
        .iter()
        .find_map(|line| line.strip_prefix("authorization: Bearer "));
    (first, token.unwrap_or_default().to_owned())
}

fn respond(mut stream: TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    // A client that has gone is no failure.
    let _ = stream.write_all((head + body).as_bytes());
}

fn write_kubeconfig(path: &Path, token: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'http://[::1]:1'}}}}]\n\
         users: [{{name: c, user: {{token: {token}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
    );
    std::fs::write(path, text).unwrap();
}

/// A server without objects that accepts only the token `new`, which is in the kubeconfig once `old` was refused.
fn serve(listener: &TcpListener, kubeconfig: &Path) {
    let mut open = Vec::new();
    for stream in listener.incoming().flatten() {
        let (target, token) = request(&stream);
        if token != "new" {
            write_kubeconfig(kubeconfig, "new");
            respond(stream, 401, "Unauthorized");
        } else if target.contains("sendInitialEvents") {
            respond(stream, 422, "no streaming lists");
        } else if target.contains("watch=true") {
            open.push(stream);
        } else {
            respond(
                stream,
                200,
                r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#,
            );
        }
    }
}

#[tokio::test]
async fn refused_credentials_are_read_again_and_a_server_that_is_not_there_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig: PathBuf = folder.path().join("config");
    write_kubeconfig(&kubeconfig, "old");
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let servers = ["http://[::1]:1".to_owned(), format!("http://[::1]:{port}")];
    let access = Access::new(Flags {
        servers: &servers,
        kubeconfig: Some(&kubeconfig),
        in_cluster: false,
        service_account: Path::new(SERVICE_ACCOUNT),
        identity: Path::new("/nowhere"),
        service: [None; 2],
    });
    let access = access.unwrap().unwrap();
    std::thread::spawn(move || serve(&listener, &kubeconfig));
    let state = Arc::new(KubernetesState::default());
    let mut kubernetes = Kubernetes::open(access, "n1", Arc::clone(&state));
    kubernetes.follow_services();
    let listed = async { while kubernetes.next().await.more {} };
    timeout(PATIENCE, listed)
        .await
        .expect("the lists are complete");
    for kind in state.values() {
        assert!(kind.silence_seconds.is_some(), "{kind:?}");
        let [(_, at_start), others @ ..] = kind.lists;
        assert!(
            at_start > 0 && others.iter().all(|(_, count)| *count == 0),
            "{kind:?}"
        );
    }
}
