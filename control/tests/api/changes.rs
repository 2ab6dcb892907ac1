//! `-w`: the changes that commands print after a list, until they are interrupted.

use std::process::Stdio;
use std::time::Duration;

use dormouse_cluster::events::{self, EventType, Occurrence};
use dormouse_cluster::{App, Guard, Key, Object};
use dormouse_command::Exit;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::commands::{failing, file, run, yaml};
use crate::world::World;

/// A command that prints changes.
pub(crate) struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    pub(crate) fn start(endpoint: &str, words: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .args(["--endpoint", endpoint])
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(Duration::from_secs(30), self.lines.next_line()).await;
        line.expect("no line").unwrap().expect("the command ended")
    }
}

async fn record(world: &World, about: &ObjectReference, message: &str) {
    let occurrence = Occurrence {
        type_: EventType::Normal,
        reason: "Awake",
        message,
    };
    let recorded = events::record(&world.store, about, &occurrence).await;
    recorded.unwrap();
}

/// The app `web`, as the object of events.
async fn web(world: &World) -> ObjectReference {
    let (_file, path) = file(&yaml("web", "fd00:10::1"));
    run(world, &format!("apply -f {path}")).await;
    let app = world.store.get::<App>(&Key::new("default", "web")).await;
    events::reference(&app.unwrap().unwrap())
}

#[tokio::test]
async fn events_are_printed_as_they_occur_and_not_when_they_expire() {
    let world = World::start().await;
    let about = web(&world).await;
    record(&world, &about, "the first").await;
    let mut watch = Watch::start(&world.endpoint, "events -w");
    assert!(watch.line().await.starts_with("LAST SEEN"));
    assert!(watch.line().await.contains("the first"));
    record(&world, &about, "the second").await;
    assert!(watch.line().await.contains("the second"));
    let events = world.store.list::<Event>(Some("default")).await.unwrap();
    for event in events.items {
        let guard = Guard::default();
        let deleted = world.store.delete::<Event>(&event.key(), &guard).await;
        deleted.unwrap();
    }
    record(&world, &about, "the third").await;
    let line = watch.line().await;
    assert!(line.contains("the third"), "{line}");
}

#[tokio::test]
async fn events_of_a_time_are_followed_by_every_further_one() {
    let world = World::start().await;
    let about = web(&world).await;
    record(&world, &about, "too old").await;
    let mut watch = Watch::start(&world.endpoint, "events -w --since 1ns");
    assert!(watch.line().await.starts_with("LAST SEEN"));
    record(&world, &about, "later").await;
    let line = watch.line().await;
    assert!(line.contains("later"), "{line}");
}

#[tokio::test]
async fn events_about_an_object_are_those_about_its_kind() {
    let world = World::start().await;
    let about = web(&world).await;
    record(&world, &about, "of the app").await;
    let pod = ObjectReference {
        kind: Some("Pod".to_owned()),
        ..about
    };
    record(&world, &pod, "of the pod").await;
    let lines = async |about: &str| {
        let text = run(&world, &format!("events --no-headers --for {about}")).await;
        let has = |part: &str| text.contains(part);
        (has("of the app"), has("of the pod"))
    };
    assert_eq!(lines("app/web").await, (true, false));
    assert_eq!(lines("po/web").await, (false, true));
    assert_eq!(lines("web").await, (true, true));
    let (exit, text) = failing(&world, "events --for ap/web").await;
    assert_eq!(exit, Exit::Usage);
    assert!(text.contains("did you mean app?"), "{text}");
}

#[tokio::test]
async fn one_object_is_watched_and_no_other() {
    let world = World::start().await;
    let text = ["web", "docs"].map(|name| {
        let vip = format!("fd00:10::{}", name.len());
        yaml(name, &vip)
    });
    let (_file, path) = file(&text.join("---\n"));
    run(&world, &format!("apply -f {path}")).await;
    let mut watch = Watch::start(&world.endpoint, "get app web -w -o wide");
    assert!(watch.line().await.starts_with("NAME"));
    assert!(watch.line().await.starts_with("web "));
    let changed = text.map(|text| text.replace("6s", "9s"));
    for text in [&changed[1], &changed[0]] {
        let (_file, path) = file(text);
        run(&world, &format!("apply -f {path}")).await;
    }
    let line = watch.line().await;
    assert!(line.starts_with("web "), "{line}");
    let (exit, _) = failing(&world, "get app none -w").await;
    assert_eq!(exit, Exit::NotFound);
}

#[tokio::test]
async fn changes_are_rows_of_a_table_of_one_object_or_of_all() {
    let world = World::start().await;
    web(&world).await;
    for words in [
        "get apps -w -o json",
        "get app web -w -o yaml",
        "get apps -w -o name",
        "events -w -o json",
        "get app web docs -w",
    ] {
        let (exit, text) = failing(&world, words).await;
        assert_eq!(exit, Exit::Usage, "{words}: {text}");
    }
}

/// A table of apps at this revision: each with its name and its own revision.
fn table(revision: u64, rows: &[(&str, u64)]) -> Value {
    let row = |(name, revision): &(&str, u64)| {
        let metadata = json!({"name": name, "resourceVersion": revision.to_string()});
        json!({"cells": [name], "object": {"metadata": metadata}})
    };
    json!({
        "kind": "Table", "metadata": {"resourceVersion": revision.to_string()},
        "columnDefinitions": [{"name": "Name", "priority": 0}],
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn change(type_: &str, object: &Value) -> Value {
    json!({"type": type_, "object": object})
}

/// Answers requests one after another; returns their first lines.
async fn serve(listener: TcpListener, replies: Vec<Value>) -> Vec<String> {
    let mut requests = Vec::new();
    for reply in replies {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let request = String::from_utf8(request).unwrap();
        requests.push(request.lines().next().unwrap().to_owned());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let reply = format!("{head}{reply}\n");
        stream.write_all(reply.as_bytes()).await.unwrap();
    }
    requests
}

#[tokio::test]
async fn a_watch_that_the_server_ends_is_resumed_without_a_loss_and_its_error_is_one() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let error = json!({"kind": "Status", "code": 500, "message": "no store"});
    let server = tokio::spawn(serve(
        listener,
        vec![
            table(5, &[("a", 3)]),
            change("MODIFIED", &table(7, &[("b", 7)])),
            change("BOOKMARK", &json!({"metadata": {"resourceVersion": "8"}})),
            change("ERROR", &json!({"kind": "Status", "code": 410})),
            table(9, &[("a", 3), ("b", 7), ("c", 9)]),
            change("ERROR", &error),
        ],
    ));
    let mut watch = Watch::start(&endpoint, "get apps -w");
    for line in ["NAME", "a", "b", "c"] {
        assert_eq!(watch.line().await.trim_end(), line);
    }
    let requests = server.await.unwrap();
    assert!(requests[1].contains("resourceVersion=5"), "{requests:?}");
    // Deletions since then are sent, too.
    assert!(requests[2].contains("resourceVersion=7"), "{requests:?}");
    assert!(requests[3].contains("resourceVersion=8"), "{requests:?}");
    assert!(!requests[4].contains("watch"), "{requests:?}");
    assert!(requests[5].contains("resourceVersion=9"), "{requests:?}");
    let ended = watch.child.wait_with_output().await.unwrap();
    assert_eq!(ended.status.code(), Some(i32::from(Exit::No.status())));
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(text.contains("no store"), "{text}");
}
