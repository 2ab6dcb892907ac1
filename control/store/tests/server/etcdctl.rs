//! etcdctl against the server. Debian has it in the package `etcd-client`.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::harness::{Served, within};

fn etcdctl(served: &Served, args: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &served.endpoint])
        .args(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs the command with an input; returns whether it succeeded, and its output.
async fn run_with(served: &Served, args: &[&str], input: &str) -> (bool, String) {
    let started = etcdctl(served, args).spawn();
    let mut child = started.expect("etcdctl is missing: apt-get install etcd-client");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .await
        .unwrap();
    let output = within(child.wait_with_output()).await.unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

async fn run(served: &Served, args: &[&str]) -> String {
    let (succeeded, printed) = run_with(served, args, "").await;
    assert!(succeeded, "{args:?}: {printed}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_puts_gets_and_deletes() {
    let served = Served::start().await;
    assert_eq!(run(&served, &["put", "/registry/a", "1"]).await, "OK\n");
    assert_eq!(run(&served, &["put", "/registry/b", "2"]).await, "OK\n");
    let listed = run(
        &served,
        &["get", "--prefix", "/registry/", "--order=DESCEND"],
    )
    .await;
    assert_eq!(listed, "/registry/b\n2\n/registry/a\n1\n");
    assert_eq!(run(&served, &["get", "/registry/b", "--rev=2"]).await, "");
    assert_eq!(
        run(&served, &["del", "--prefix", "/registry/"]).await,
        "2\n"
    );
    assert_eq!(run(&served, &["get", "--prefix", ""]).await, "");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_runs_a_transaction() {
    let served = Served::start().await;
    run(&served, &["put", "key", "old"]).await;
    let txn = "value(\"key\") = \"old\"\n\nput key new\nget key\n\nget key\n\n";
    let (succeeded, printed) = run_with(&served, &["txn"], txn).await;
    assert!(succeeded, "{printed}");
    assert_eq!(printed, "SUCCESS\n\nOK\n\nkey\nnew\n");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_watches_past_and_new_events() {
    let served = Served::start().await;
    run(&served, &["put", "key", "1"]).await;
    let mut watch = etcdctl(&served, &["watch", "key", "--rev=2", "--prev-kv"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || within(lines.next_line()).await.unwrap().unwrap();
    for wanted in ["PUT", "key", "1"] {
        assert_eq!(next().await, wanted);
    }
    run(&served, &["del", "key"]).await;
    for wanted in ["DELETE", "key", "1", "key"] {
        assert_eq!(next().await, wanted);
    }
    watch.kill().await.unwrap();
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_grants_lists_and_revokes_leases() {
    let served = Served::start().await;
    let granted = run(&served, &["lease", "grant", "60"]).await;
    let id = granted.split(' ').nth(1).unwrap();
    run(&served, &["put", "key", "x", &format!("--lease={id}")]).await;
    assert!(run(&served, &["lease", "list"]).await.contains(id));
    let timetolive = run(&served, &["lease", "timetolive", "--keys", id]).await;
    assert!(timetolive.contains("attached keys([key])"), "{timetolive}");
    let renewed = run(&served, &["lease", "keep-alive", "--once", id]).await;
    assert!(renewed.contains("TTL(60)"), "{renewed}");
    run(&served, &["lease", "revoke", id]).await;
    assert_eq!(run(&served, &["get", "key"]).await, "");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_compacts_and_cannot_read_a_compacted_revision() {
    let served = Served::start().await;
    for value in ["1", "2", "3"] {
        run(&served, &["put", "key", value]).await;
    }
    assert_eq!(
        run(&served, &["compact", "3"]).await,
        "compacted revision 3\n"
    );
    let (succeeded, printed) = run_with(&served, &["get", "key", "--rev=2"], "").await;
    assert!(!succeeded);
    assert!(
        printed.contains("required revision has been compacted"),
        "{printed}"
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_finds_the_server_healthy() {
    let served = Served::start().await;
    let health = run(&served, &["endpoint", "health"]).await;
    assert!(health.contains("is healthy"), "{health}");
    // Without a scheme, as most scripts have it.
    let bare = served.endpoint.trim_start_matches("http://");
    let health = run(&served, &["--endpoints", bare, "endpoint", "health"]).await;
    assert!(health.contains("is healthy"), "{health}");
    let status = run(&served, &["endpoint", "status"]).await;
    assert!(status.contains("3.7.0"), "{status}");
    assert!(run(&served, &["member", "list"]).await.contains("dormouse"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_connects_with_tls_to_an_ipv6_address() {
    let served = crate::tls::serve(false).await;
    let authority = crate::tls::path("ca.pem");
    let authority = ["--cacert", authority.to_str().unwrap()];
    let status = [&authority[..], &["endpoint", "status"]].concat();
    assert!(run(&served, &status).await.contains("3.7.0"));
    let put = [&authority[..], &["put", "key", "value"]].concat();
    assert_eq!(run(&served, &put).await, "OK\n");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_manages_users_and_roles() {
    let served = Served::start().await;
    run(&served, &["role", "add", "reader"]).await;
    let grant = [
        "role",
        "grant-permission",
        "reader",
        "read",
        "--prefix=true",
        "app/",
    ];
    run(&served, &grant).await;
    run(&served, &["user", "add", "root:secret"]).await;
    run(&served, &["user", "grant-role", "root", "root"]).await;
    run(&served, &["user", "add", "bob:pass"]).await;
    run(&served, &["user", "grant-role", "bob", "reader"]).await;
    run(&served, &["auth", "enable"]).await;
    let put = ["--user=root:secret", "put", "app/a", "1"];
    assert_eq!(run(&served, &put).await, "OK\n");
    let get = ["--user=bob:pass", "get", "app/", "--prefix"];
    assert_eq!(run(&served, &get).await, "app/a\n1\n");
    for (args, reason) in [
        (
            ["--user=bob:pass", "put", "app/a", "2"],
            "permission denied",
        ),
        (
            ["--user=bob:wrong", "put", "app/a", "2"],
            "authentication failed",
        ),
    ] {
        let (succeeded, printed) = run_with(&served, &args, "").await;
        assert!(!succeeded && printed.contains(reason), "{printed}");
    }
    served.stop().await;
}
