//! Watches at the API end at once when their token is deleted or expires, or their node is revoked; all others go on.

use std::process::Stdio;

use dormouse_fleet::join;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::api::{bearer, bind};
use super::{Trusted, output};
use crate::world::{TIMEOUT, in_namespace, until};

const APPS: &str = "/apis/dormouse.dev/v1alpha1/apps";
const SERVICES: &str = "/api/v1/services";
/// A watch that sends a bookmark at once: curl writes the header with the first part of the body.
const INITIAL: &str =
    "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

impl Trusted {
    /// Opens a watch that lasts for half an hour, with these arguments for curl.
    async fn watch(&self, path: &str, shown: &[String]) -> Child {
        let (ca, url) = (
            self.pki("ca.crt"),
            format!("https://[::1]:6443{path}?{INITIAL}"),
        );
        let mut command = Command::new("curl");
        command.args(["-gsNi", "--cacert", &ca, &url]).args(shown);
        command.stdout(Stdio::piped()).kill_on_drop(true);
        let mut watch = command.spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let status = timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap();
        assert!(
            status.as_ref().is_some_and(|line| line.contains(" 200")),
            "{status:?}"
        );
        // Its further lines are read, too.
        tokio::task::spawn_local(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        watch
    }
}

/// Waits for the end of a watch, which its server has closed as at a timeout.
async fn ended(mut watch: Child) {
    let status = timeout(TIMEOUT, watch.wait())
        .await
        .expect("the watch goes on");
    assert!(status.unwrap().success());
}

#[test]
fn watches_of_a_token_end_when_it_is_deleted_or_expires() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        bind(&control).await;
        let [ann, bob] = [
            control
                .user_token("ann", &["--group", "dev", "--ttl", "1h"])
                .await,
            control
                .user_token("bob", &["--group", "dev", "--ttl", "1h"])
                .await,
        ];
        until("the binding is in force", async || {
            control.get(APPS, &bearer(&ann)).await.contains("AppList")
        })
        .await;
        let first = control.watch(APPS, &bearer(&ann)).await;
        let mut other = control.watch(APPS, &bearer(&bob)).await;
        let (ok, said) = control.admin(&["token", "delete", &ann]).await;
        assert!(ok, "{said}");
        ended(first).await;
        let short = control
            .user_token("cid", &["--group", "dev", "--ttl", "12s"])
            .await;
        let expiring = control.watch(APPS, &bearer(&short)).await;
        ended(expiring).await;
        let answer = control.get(APPS, &bearer(&short)).await;
        assert!(answer.contains("\"code\":401"), "{answer}");
        assert!(
            other.try_wait().unwrap().is_none(),
            "the watch of bob ended"
        );
    });
}

#[test]
fn watches_of_a_node_end_when_it_is_revoked() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let mut watches = Vec::new();
        for name in ["a", "b"] {
            let line = control.line(&["--node", name]).await;
            let node = join::join(&line, name).await.unwrap().credentials;
            watches.push(control.watch(SERVICES, &control.certificate(&node)).await);
        }
        let (ok, said) = control.admin(&["node", "revoke", "a"]).await;
        assert!(ok && said.contains("no node \"a\" has connected"), "{said}");
        ended(watches.remove(0)).await;
        assert!(watches[0].try_wait().unwrap().is_none(), "that of b ended");
        let (ok, said) = control.admin(&["node", "revoke", "A b"]).await;
        assert!(!ok && said.contains("is not the name of a node"), "{said}");
    });
}

#[test]
fn tokens_are_listed_and_withdrawn_and_one_of_a_role_is_valid_once() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (ok, said) = control.admin(&["token", "list"]).await;
        assert!(ok && said.contains("there are no tokens"), "{said}");
        let node = control.line(&["--node", "a"]).await;
        let role = control.line(&["--role", "activator"]).await;
        let user = control
            .user_token("ann", &["--group", "dev", "--ttl", "1h"])
            .await;
        let (ok, list) = control.admin(&["token", "list"]).await;
        assert!(ok, "{list}");
        let id = user.split('.').next().unwrap();
        for (id, subject) in [
            (node.token.id(), "node a"),
            (role.token.id(), "role activator"),
            (id, "user ann (dev)"),
        ] {
            let is_row = |line: &str| line.contains(id) && line.contains(subject);
            assert!(list.lines().any(is_row), "{list}");
        }
        for token in [node.token.reveal(), role.token.reveal()] {
            let (_, secret) = token.split_once('.').unwrap();
            assert!(!list.contains(secret), "{list}");
        }
        assert!(join::join(&role, "").await.is_ok());
        let again = super::refused(join::join(&role, "").await);
        assert!(again.contains("used before"), "{again}");
        let (ok, said) = control.admin(&["token", "delete", node.token.id()]).await;
        assert!(ok, "{said}");
        let refused = super::refused(join::join(&node, "a").await);
        assert!(refused.contains("the token is not valid"), "{refused}");
        let (ok, said) = control.admin(&["token", "delete", node.token.id()]).await;
        assert!(!ok && said.contains("dormouse token list"), "{said}");
        let kubeconfig = control.pki("admin.kubeconfig");
        let args = ["--kubeconfig", &kubeconfig, "get", "usertokens"];
        let (ok, said) = output("kubectl", &args).await;
        assert!(ok && said.contains(id), "{said}");
    });
}
