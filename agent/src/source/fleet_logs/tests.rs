//! Logs of a node as control reads them, over a connection on the loopback.

use std::io::Write as _;
use std::time::Duration;

use dormouse_agent_logs::{Limits, Meta, Output, writer};
use dormouse_fleet::client::{connect, endpoint};
use dormouse_fleet::proto::NodeConfig;
use dormouse_fleet::{Handle, Incoming, LogError, LogText, ServerConfig, serve, start};
use futures::StreamExt as _;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Control, and a node with a writer of logs.
struct World {
    control: Handle,
    folder: Folder,
    _dir: tempfile::TempDir,
    _offer: AbortOnDropHandle<()>,
    _end: DropGuard,
}

async fn world() -> World {
    let shutdown = CancellationToken::new();
    let config = ServerConfig::new(1, NodeConfig::default());
    let (control, _events) = start(config, shutdown.clone());
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(
        Incoming::new(listener, 10),
        control.clone(),
        shutdown.clone(),
    ));
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path().to_owned());
    let logs = FleetLogs {
        node: "n1".to_owned(),
        folder: folder.clone(),
    };
    let offer = logs.offer(connect(endpoint(&url).unwrap()).await.unwrap());
    let offered = async {
        while control.log_nodes().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TIMEOUT, offered).await.unwrap();
    World {
        control,
        folder,
        _dir: dir,
        _offer: offer,
        _end: shutdown.drop_guard(),
    }
}

impl World {
    fn begin(&self, uid: &str) -> Output {
        let meta = Meta {
            namespace: "shop".into(),
            name: format!("web-{uid}"),
            app: "web".into(),
        };
        self.folder.begin(uid, &meta, false).unwrap()
    }

    /// Runs the writer meanwhile.
    async fn writing<T>(&self, live: impl Future<Output = T>) -> T {
        tokio::select! {
            end = writer::run(self.folder.clone(), Limits::default()) => panic!("{end:?}"),
            done = timeout(TIMEOUT, live) => done.expect("in time"),
        }
    }

    async fn write_all(&self, uid: &str, text: &str) {
        let mut output = self.begin(uid);
        output.stdout.write_all(text.as_bytes()).unwrap();
        tokio::spawn(output.release());
        self.writing(self.folder.ended(uid)).await;
    }

    async fn read(&self, request: LogRequest) -> Result<LogText, LogError> {
        self.control.read_log("n1", request).await
    }
}

fn of(uid: &str) -> LogRequest {
    LogRequest {
        uid: uid.to_owned(),
        ..LogRequest::default()
    }
}

async fn text(log: LogText) -> String {
    let parts: Vec<_> = log.map(Result::unwrap).collect().await;
    String::from_utf8(parts.concat()).unwrap()
}

#[tokio::test]
async fn control_reads_a_log_by_uid_or_name_and_the_run_before_it() {
    let world = world().await;
    world.write_all("u1", "first\n").await;
    assert_eq!(text(world.read(of("u1")).await.unwrap()).await, "first\n");
    let previous = LogRequest {
        previous: true,
        ..of("u1")
    };
    let none = world.read(previous.clone()).await.unwrap_err();
    assert_eq!(none, LogError::NoPrevious("n1".into()));
    world.write_all("u1", "a\nb\n").await;
    let by_name = LogRequest {
        namespace: "shop".into(),
        name: "web-u1".into(),
        tail_lines: Some(1),
        ..LogRequest::default()
    };
    assert_eq!(
        text(world.read(by_name.clone()).await.unwrap()).await,
        "b\n"
    );
    assert_eq!(text(world.read(previous).await.unwrap()).await, "first\n");
    let other = LogRequest {
        namespace: "other".into(),
        ..by_name
    };
    assert_eq!(
        world.read(other).await.unwrap_err(),
        LogError::NoLog("n1".into())
    );
    let elsewhere = world.control.read_log("n2", of("u1")).await.unwrap_err();
    assert_eq!(elsewhere, LogError::NotConnected("n2".into()));
}

#[tokio::test]
async fn the_runs_of_an_app_are_listed_with_their_ends() {
    let world = world().await;
    world.write_all("u1", "").await;
    let _running = world.begin("u2");
    let runs = world.control.log_runs("n1", "shop", "web").await.unwrap();
    let seen: Vec<_> = runs
        .iter()
        .map(|run| (run.name.as_str(), run.ended_ms > 0))
        .collect();
    assert_eq!(seen, [("web-u1", true), ("web-u2", false)]);
    assert!(
        world
            .control
            .log_runs("n1", "shop", "api")
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_log_is_followed_to_the_end_of_its_run() {
    let world = world().await;
    let mut output = world.begin("u1");
    world
        .writing(async {
            let mut log = world
                .read(LogRequest {
                    follow: true,
                    ..of("u1")
                })
                .await
                .unwrap();
            for line in ["one\n", "two\n"] {
                output.stdout.write_all(line.as_bytes()).unwrap();
                assert_eq!(log.next().await.unwrap().unwrap(), line.as_bytes());
            }
            drop(output);
            assert!(log.next().await.is_none());
        })
        .await;
}

/// Fills all streams that a node has for logs, and reads none of them.
#[tokio::test]
async fn readers_that_do_not_read_delay_neither_other_logs_nor_the_fleet_stream() {
    let world = world().await;
    let long = "a line of some length\n".repeat(40_000);
    let mut output = world.begin("long");
    let writing = std::thread::spawn(move || {
        output.stdout.write_all(long.as_bytes()).unwrap();
        drop(output);
    });
    world.writing(world.folder.ended("long")).await;
    writing.join().unwrap();
    world.write_all("u1", "short\n").await;
    let mut stuck = Vec::new();
    for _ in 1..dormouse_fleet::logs::LOGS_PER_NODE_MAX {
        stuck.push(world.read(of("long")).await.unwrap());
    }
    let last = world.read(of("u1")).await.unwrap();
    assert_eq!(
        world.read(of("u1")).await.unwrap_err(),
        LogError::TooMany("n1".into())
    );
    assert_eq!(timeout(TIMEOUT, text(last)).await.unwrap(), "short\n");
    // A reader that leaves makes room at once.
    stuck.pop();
    assert_eq!(text(world.read(of("u1")).await.unwrap()).await, "short\n");
    for log in &mut stuck {
        assert!(timeout(TIMEOUT, log.next()).await.unwrap().is_some());
    }
}
