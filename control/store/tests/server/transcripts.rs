//! Sessions of etcdctl whose output was recorded with Debian's etcd: against this server, and against that etcd again
//! where it is installed.
//!
//! `tests/etcdctl/*.txt`: `$` is a command, `&` one that is killed after its recorded output, `<` an input, and the output
//! follows. IDs, times and terms differ by server: they are `<id>`, `<time>` and `<term>`; `<id>` in a command is the lease
//! that was granted last.

mod normal;

use std::{fmt::Write, path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

use crate::harness::{Served, until, within};
use normal::normal;

/// Debian's etcd, of the package etcd-server.
const ETCD: &str = "/usr/bin/etcd";

const SESSIONS: [(&str, &str); 9] = [
    ("keys", include_str!("../etcdctl/keys.txt")),
    ("transactions", include_str!("../etcdctl/transactions.txt")),
    ("compaction", include_str!("../etcdctl/compaction.txt")),
    ("leases", include_str!("../etcdctl/leases.txt")),
    ("maintenance", include_str!("../etcdctl/maintenance.txt")),
    ("locks", include_str!("../etcdctl/locks.txt")),
    ("users", include_str!("../etcdctl/users.txt")),
    ("watches", include_str!("../etcdctl/watches.txt")),
    ("elections", include_str!("../etcdctl/elections.txt")),
];

/// A command with its input, and its recorded output.
struct Step<'a> {
    command: &'a str,
    /// Whether the command ends by itself.
    ends: bool,
    input: String,
    output: String,
}

fn steps(session: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines() {
        let marked = ["$ ", "& "].map(|mark| line.strip_prefix(mark));
        if let Some(command) = marked[0].or(marked[1]) {
            steps.push(Step {
                command,
                ends: marked[0].is_some(),
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

fn etcdctl(endpoint: &str, command: &str) -> Child {
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
    started.expect("etcdctl is missing: apt-get install etcd-client")
}

/// Runs one command; returns its output, and its exit status if that is not 0.
async fn run(endpoint: &str, command: &str, input: &str) -> String {
    let mut child = etcdctl(endpoint, command);
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

/// Runs a command until it has printed as many lines as were recorded, and kills it.
async fn follow(endpoint: &str, command: &str, count: usize) -> String {
    let mut child = etcdctl(endpoint, command);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut output = String::new();
    for _ in 0..count {
        let Some(line) = within(lines.next_line()).await.unwrap() else {
            break;
        };
        writeln!(output, "{line}").unwrap();
    }
    child.kill().await.unwrap();
    output
}

/// The steps of a session whose output is not the recorded one.
async fn differences(endpoint: &str, session: &str) -> Vec<String> {
    let mut differences = Vec::new();
    let mut lease = String::new();
    for step in steps(session) {
        let command = step.command.replace("<id>", &lease);
        let output = if step.ends {
            run(endpoint, &command, &step.input).await
        } else {
            follow(endpoint, &command, step.output.lines().count()).await
        };
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

/// Fails with the steps of a session whose output is not the recorded one.
async fn check(server: &str, endpoint: &str, (name, session): (&str, &str)) {
    let differences = differences(endpoint, session).await;
    assert!(
        differences.is_empty(),
        "{server} {name}:\n{}",
        differences.join("\n")
    );
}

/// Starts Debian's etcd on an address, with its data in a folder.
async fn etcd(client: &str, folder: &Path) -> Child {
    let url = format!("http://{client}");
    let etcd = Command::new(ETCD)
        .arg("--data-dir")
        .arg(folder)
        .args(["--listen-client-urls", &url])
        .args(["--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &format!("http://{}", free_address())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("etcd answers", async || {
        run(client, "get ready", "").await.is_empty()
    })
    .await;
    etcd
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_prints_what_it_prints_with_etcd() {
    let installed = Path::new(ETCD).exists();
    if !installed {
        println!("skipped: etcd again, as {ETCD} is missing (apt-get install etcd-server)");
    }
    for session in SESSIONS {
        let served = Served::start().await;
        let endpoint = served.endpoint.trim_start_matches("http://");
        check("dormouse", endpoint, session).await;
        served.stop().await;
        if installed {
            let folder = tempfile::tempdir().unwrap();
            let address = free_address();
            let mut etcd = etcd(&address, folder.path()).await;
            check("etcd", &address, session).await;
            etcd.kill().await.unwrap();
        }
    }
}
