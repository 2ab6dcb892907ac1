//! The commands, and what a store holds before and after them.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
};

use dormouse_store_checker::process::StoreProcess;
use etcd_client::{Client, GetOptions, LeaseGrantOptions, PutOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The lease of one of the keys.
pub(crate) const LEASE: i64 = 7_000;

/// Its time to live, in seconds.
pub(crate) const LEASE_TTL: i64 = 600;

/// Keys with this prefix are in memory only unless a flag says otherwise; a backup of a running store has them.
const VOLATILE: &str = "/registry/leases/";

/// The program of `dormouse`.
pub(crate) fn dormouse() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_dormouse"))
}

/// What a command did.
pub(crate) struct Ended {
    pub(crate) succeeded: bool,
    /// Its standard output and its standard error.
    pub(crate) printed: String,
}

impl Ended {
    /// The output of a command that succeeds.
    pub(crate) fn success(self) -> String {
        assert!(self.succeeded, "{}", self.printed);
        self.printed
    }

    /// The output of a command that is refused.
    pub(crate) fn refusal(self) -> String {
        assert!(!self.succeeded, "not refused: {}", self.printed);
        self.printed
    }
}

/// Runs a program to its end.
pub(crate) async fn run(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Ended {
    let program = program.as_ref();
    let output = Command::new(program)
        .env("ETCDCTL_API", "3")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let printed = [output.stdout, output.stderr].concat();
    Ended {
        succeeded: output.status.success(),
        printed: String::from_utf8(printed).unwrap(),
    }
}

/// `etcdctl snapshot status`.
pub(crate) async fn status(snapshot: &Path) -> Value {
    let snapshot = snapshot.to_str().unwrap();
    let printed = run("etcdctl", ["snapshot", "status", snapshot, "-w", "json"]).await;
    serde_json::from_str(&printed.success()).unwrap()
}

/// `etcdctl snapshot save` of a running server.
pub(crate) async fn save(endpoint: &str, snapshot: &Path) {
    let snapshot = snapshot.to_str().unwrap();
    let saved = run(
        "etcdctl",
        ["--endpoints", endpoint, "snapshot", "save", snapshot],
    );
    saved.await.success();
}

/// `dormouse store restore` with further flags.
pub(crate) async fn restore(snapshot: &Path, data: &Path, flags: &[&str]) -> Ended {
    let files = [
        format!("--snapshot={}", snapshot.display()),
        format!("--data-dir={}", data.display()),
    ];
    let files = files.iter().map(String::as_str);
    let arguments = ["store", "restore"].into_iter().chain(files);
    run(dormouse(), arguments.chain(flags.iter().copied())).await
}

/// `dormouse store export`.
pub(crate) async fn export(data: &Path, snapshot: &Path) -> Ended {
    let data = format!("--data-dir={}", data.display());
    let snapshot = format!("--snapshot={}", snapshot.display());
    run(dormouse(), ["store", "export", &data, &snapshot]).await
}

/// Runs the store on a data directory.
pub(crate) async fn serve(data: &Path) -> StoreProcess {
    let data = format!("--data-dir={}", data.display());
    StoreProcess::start(dormouse(), [data]).await.unwrap()
}

pub(crate) async fn connect(endpoint: &str) -> Client {
    Client::connect([endpoint], None).await.unwrap()
}

/// Writes keys (updated, deleted, binary, with a lease, with a mode that keeps nothing), a user and a role.
pub(crate) async fn fill(client: &mut Client) {
    for number in 0..300 {
        let value = format!("value {number}").repeat(1 + number % 40);
        client
            .put(format!("/registry/pods/{number}"), value, None)
            .await
            .unwrap();
    }
    client
        .put("/registry/pods/7", "updated", None)
        .await
        .unwrap();
    client.delete("/registry/pods/8", None).await.unwrap();
    client.put([0, 255, 128], [0, 1, 254], None).await.unwrap();
    let lease = LeaseGrantOptions::new().with_id(LEASE);
    client.lease_grant(LEASE_TTL, Some(lease)).await.unwrap();
    for key in [
        "leased".to_owned(),
        format!("{VOLATILE}kube-node-lease/node-1"),
    ] {
        let options = PutOptions::new().with_lease(LEASE);
        client.put(key, "held", Some(options)).await.unwrap();
    }
    client.role_add("reader").await.unwrap();
    client.user_add("alice", "secret", None).await.unwrap();
    client.user_grant_role("alice", "reader").await.unwrap();
}

/// A key with its value, revisions, version and lease.
type Pair = (Vec<u8>, Vec<u8>, [i64; 4]);

/// All keys, and the revision that they were read at.
pub(crate) async fn keys(client: &mut Client) -> (Vec<Pair>, i64) {
    let all = GetOptions::new().with_all_keys();
    let read = client.get("", Some(all)).await.unwrap();
    let pairs = read.kvs().iter().map(|kv| {
        let numbers = [
            kv.create_revision(),
            kv.mod_revision(),
            kv.version(),
            kv.lease(),
        ];
        (kv.key().to_vec(), kv.value().to_vec(), numbers)
    });
    (pairs.collect(), read.header().unwrap().revision())
}

/// A data directory of a stopped store that was filled, and the keys that it keeps.
pub(crate) async fn stopped(folder: &TempDir) -> (PathBuf, Vec<Pair>) {
    let data = folder.path().join("data");
    let store = serve(&data).await;
    let mut client = connect(&store.endpoint).await;
    fill(&mut client).await;
    let (mut kept, _) = keys(&mut client).await;
    kept.retain(|(key, ..)| !key.starts_with(VOLATILE.as_bytes()));
    assert!(store.stop().await.unwrap().success());
    (data, kept)
}
