//! Sessions of etcdctl whose output was recorded with Debian's etcd: against this server, and against that etcd again.
//!
//! `tests/etcdctl/*.txt`: `$` is a command, `<` its input, and the output follows. IDs, times and terms differ by server:
//! they are `<id>`, `<time>` and `<term>`; `<id>` in a command is the lease that was granted last.

mod normal;

use std::{fmt::Write, process::Stdio};

use tokio::{io::AsyncWriteExt, process::Command};

use crate::harness::{Served, until, within};
use normal::normal;

const SESSIONS: [(&str, &str); 7] = [
    ("keys", include_str!("../etcdctl/keys.txt")),
    ("transactions", include_str!("../etcdctl/transactions.txt")),
    ("compaction", include_str!("../etcdctl/compaction.txt")),
    ("leases", include_str!("../etcdctl/leases.txt")),
    ("maintenance", include_str!("../etcdctl/maintenance.txt")),
    ("locks", include_str!("../etcdctl/locks.txt")),
    ("users", include_str!("../etcdctl/users.txt")),
];

/// A command with its input, and its recorded output.
struct Step<'a> {
    command: &'a str,
    input: String,
    output: String,
}

fn steps(session: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command,
                input: String::new(),
                output: String::new(),
            });
            continue;
        }
        let step = steps.last_mut().unwrap();
        match line.strip_prefix('<').filter(|rest| !rest.contains('>')) {
            Some(input) => writeln!(step.input, "{}", input.trim_start()).unwrap(),
            None => writeln!(step.output, "{line}").unwrap(),
        }
    }
    steps
}

/// Runs one command; returns its output, and its exit status if that is not 0.
async fn run(endpoint: &str, command: &str, input: &str) -> String {
    let words = command.split(' ').map(|word| word.trim_matches('"'));
    let started = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", endpoint])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = started.expect("etcdctl is missing: apt-get install etcd-client");
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads no input may have ended.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = within(child.wait_with_output()).await.unwrap();
    let mut output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    if let Some(code) = ended.status.code().filter(|code| *code != 0) {
        writeln!(output, "exit {code}").unwrap();
    }
    output
}

/// The steps of a session whose output is not the recorded one.
async fn differences(endpoint: &str, session: &str) -> Vec<String> {
    let mut differences = Vec::new();
    let mut lease = String::new();
    for step in steps(session) {
        let command = step.command.replace("<id>", &lease);
        let output = run(endpoint, &command, &step.input).await;
        if let Some((id, _)) = output
            .strip_prefix("lease ")
            .and_then(|rest| rest.split_once(" granted"))
        {
            id.clone_into(&mut lease);
        }
        let output = normal(&output, endpoint);
        if output != step.output {
            differences.push(format!(
                "$ {command}\nrecorded:\n{}now:\n{output}",
                step.output
            ));
        }
    }
    differences
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_prints_what_it_prints_with_etcd() {
    for (name, session) in SESSIONS {
        let served = Served::start().await;
        let endpoint = served.endpoint.trim_start_matches("http://");
        let differences = differences(endpoint, session).await;
        assert!(
            differences.is_empty(),
            "{name}:\n{}",
            differences.join("\n")
        );
        served.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "shows that the sessions are etcd's: needs Debian's etcd (apt-get install etcd-server)"]
async fn the_sessions_are_those_of_debians_etcd() {
    for (name, session) in SESSIONS {
        let folder = tempfile::tempdir().unwrap();
        let [client, peer] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let url = format!("http://{client}");
        let etcd = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("etcd is missing: apt-get install etcd-server");
        until("etcd answers", async || {
            run(&client, "get ready", "").await.is_empty()
        })
        .await;
        let differences = differences(&client, session).await;
        assert!(
            differences.is_empty(),
            "{name}:\n{}",
            differences.join("\n")
        );
        drop(etcd);
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
