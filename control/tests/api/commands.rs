//! The commands end to end: their output, what they store, and their exit codes.

use std::{
    io::{self, Write},
    process::{Output as Ended, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::world::{World, manifest};
use clap::Parser;
use dormouse::cli::{self, Command, Connection, Context, EXPLAIN};
use dormouse_cluster::{
    App, Key,
    events::{self, EventType, Occurrence},
};
use dormouse_command::{CommandError, Exit};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::{io::AsyncBufReadExt, time::timeout};

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// The output of a command, kept for the test.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command line; returns its result and its output.
async fn try_run(endpoint: &str, words: &str) -> (Result<Exit, CommandError>, String) {
    run_on_screen(endpoint, words, None).await
}

/// Runs a command line on a screen of this width in characters.
pub(crate) async fn run_on_screen(
    endpoint: &str,
    words: &str,
    width: Option<usize>,
) -> (Result<Exit, CommandError>, String) {
    let (ended, [output, _notes]) = run_with_notes(endpoint, words, width).await;
    (ended, output)
}

/// Runs a command line; returns its result, its output and its notes.
pub(crate) async fn run_with_notes(
    endpoint: &str,
    words: &str,
    width: Option<usize>,
) -> (Result<Exit, CommandError>, [String; 2]) {
    let line = CommandLine::try_parse_from(format!("dormouse {words}").split_whitespace()).unwrap();
    let connection = Connection {
        endpoint: Some(endpoint.to_owned()),
        ..Connection::default()
    };
    let (output, notes) = (Output::default(), Output::default());
    let mut context = Context::connect(&connection, Box::new(output.clone()))
        .await
        .unwrap();
    context.width = width;
    context.is_terminal = width.is_some();
    context.notes = Box::new(notes.clone());
    let ended = cli::execute(line.command, &mut context).await;
    let text = |output: Output| String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    (ended, [output, notes].map(text))
}

pub(crate) async fn run(world: &World, words: &str) -> String {
    let (ended, text) = try_run(&world.endpoint, words).await;
    assert_eq!(ended.unwrap(), Exit::Yes, "{words}");
    text
}

pub(crate) async fn failing(world: &World, words: &str) -> (Exit, String) {
    let error = try_run(&world.endpoint, words).await.0.unwrap_err();
    let mut text = Vec::new();
    error.print(&mut text, Some(EXPLAIN), None);
    (error.exit, String::from_utf8(text).unwrap())
}

/// A file that holds `text`, and its path.
pub(crate) fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

pub(crate) fn yaml(name: &str, vip: &str) -> String {
    format!(
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}}}\n\
         spec:\n  vip: {vip}\n  container: {{command: [/bin/true]}}\n  scale: {{window: 6s}}\n"
    )
}

/// A table with `*` for the ages in its last column, which depend on the machine's speed.
fn without_ages(table: &str) -> String {
    let mut lines = table.lines();
    let headings = lines.next().unwrap();
    let column = headings.find("AGE").unwrap();
    lines.fold(format!("{headings}\n"), |text, line| {
        let (before, age) = line.split_at(column);
        let after = age.split_once(' ').map_or("", |(_age, after)| after.trim());
        let after = if after.is_empty() {
            String::new()
        } else {
            format!(" {after}")
        };
        text + before + "*" + &after + "\n"
    })
}

#[tokio::test]
async fn apply_creates_then_leaves_unchanged_then_configures() {
    let world = World::start().await;
    let text = format!(
        "{}---\n{}",
        yaml("docs", "fd00:10::1"),
        yaml("whoami", "fd00:10::2")
    );
    let (_first, path) = file(&text);
    assert_eq!(
        run(&world, &format!("apply -f {path}")).await,
        "app/docs created\napp/whoami created\n"
    );
    assert_eq!(
        run(&world, &format!("apply -f {path}")).await,
        "app/docs unchanged\napp/whoami unchanged\n"
    );
    let (_second, path) = file(&text.replacen("6s", "8s", 1));
    assert_eq!(
        run(&world, &format!("apply -f {path}")).await,
        "app/docs configured\napp/whoami unchanged\n"
    );
    let want = "\
NAME     STATE    MODE    READY   WANTED   LAST WAKE   VIP          AGE   REASON
docs     Asleep   Proxy   0       0        -           fd00:10::1   * -
whoami   Asleep   Proxy   0       0        -           fd00:10::2   * -
";
    assert_eq!(without_ages(&run(&world, "get apps").await), want);
    assert_eq!(
        run(&world, "get app -o name").await,
        "app/docs\napp/whoami\n"
    );
    assert!(
        run(&world, "get apps -A --no-headers")
            .await
            .starts_with("default   docs     Asleep   Proxy")
    );
    assert!(
        run(&world, "get app/docs -o yaml")
            .await
            .contains("\n    window: 8s\n")
    );
    assert_eq!(
        run(&world, &format!("delete -f {path}")).await,
        "app/docs deleted\napp/whoami deleted\n"
    );
    assert_eq!(run(&world, "get apps").await, "");
}

#[tokio::test]
async fn one_wrong_document_and_nothing_is_stored() {
    let world = World::start().await;
    let good = yaml("docs", "fd00:10::1");
    for (bad, exit, code, want) in [
        (
            yaml("b", "fd00:11::1"),
            Exit::No,
            "DM1102",
            "spec.vip: fd00:11::1 lies outside",
        ),
        (
            yaml("b", "fd00:10::2").replace("window", "windwo"),
            Exit::No,
            "DM1102",
            "did you mean `window`?",
        ),
        (
            yaml("b", "fd00:10::2").replace("6s", "soon"),
            Exit::No,
            "DM1102",
            "spec.scale.window: `soon` is not a duration",
        ),
        (
            yaml("b", "fd00:10::1"),
            Exit::No,
            "DM1103",
            "VIP fd00:10::1 is described twice",
        ),
        (
            good.clone(),
            Exit::No,
            "DM1103",
            "app default/docs is described twice",
        ),
        ("kind: [".to_owned(), Exit::No, "DM1101", "cannot read"),
        (
            "apiVersion: v1\nkind: Secret\n".to_owned(),
            Exit::No,
            "DM1104",
            "is not served here",
        ),
    ] {
        let (_file, path) = file(&format!("{good}---\n{bad}"));
        let (ended, text) = failing(&world, &format!("apply -f {path}")).await;
        assert_eq!(ended, exit, "{text}");
        assert!(
            text.starts_with(&format!("error[{code}]: ")) && text.contains(want),
            "{text}"
        );
        assert!(
            text.contains(&format!("more: dormouse explain {code}")),
            "{text}"
        );
    }
    assert_eq!(world.written().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_app_with_the_vip_of_another_is_refused_before_anything_is_stored() {
    let world = World::start().await;
    let (_first, path) = file(&yaml("docs", "fd00:10::1"));
    run(&world, &format!("apply -f {path}")).await;
    let (_second, path) = file(&format!(
        "{}---\n{}",
        yaml("a", "fd00:10::2"),
        yaml("b", "fd00:10::1")
    ));
    let (ended, text) = failing(&world, &format!("apply -f {path}")).await;
    assert_eq!(ended, Exit::No);
    assert!(
        text.contains("VIP fd00:10::1 belongs to app default/docs: choose another"),
        "{text}"
    );
    assert_eq!(run(&world, "get apps -o name").await, "app/docs\n");
}

#[tokio::test]
async fn each_kind_of_error_has_its_exit_code() {
    let world = World::start().await;
    let (ended, text) = failing(&world, "get app nope").await;
    let want = "\
error[DM1301]: cannot read app default/nope: apps.dormouse.dev \"nope\" not found
  try: dormouse get apps -A        more: dormouse explain DM1301
";
    assert_eq!((ended, text.as_str()), (Exit::NotFound, want));
    assert_eq!(failing(&world, "get deployments").await.0, Exit::Usage);
    assert_eq!(failing(&world, "delete app").await.0, Exit::Usage);
    assert_eq!(failing(&world, "delete app/nope").await.0, Exit::NotFound);
    assert_eq!(run(&world, "delete app/nope --ignore-not-found").await, "");
    let away = try_run("http://[::1]:1", "get apps").await.0.unwrap_err();
    assert_eq!((away.exit, away.code), (Exit::Unreachable, "DM1203"));
    assert!(
        away.message.contains("onnection refused"),
        "{}",
        away.message
    );
}

#[tokio::test]
async fn an_app_is_explained_and_the_stages_of_its_wake_are_drawn() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "default");
    for name in ["docs", "new"] {
        let app = serde_json::from_value(manifest(name)).unwrap();
        apps.create(&PostParams::default(), &app).await.unwrap();
    }
    let want = "\
default/docs   asleep, 0 ready of 0 wanted, mode proxy
scale          want 0: no request for 12s, window 6s
sleeps         since 4s
";
    assert_eq!(run(&world, "explain app docs").await, want);
    assert!(
        run(&world, "explain app/docs -o json")
            .await
            .contains("\"kind\": \"Explanation\"")
    );
    assert!(
        run(&world, "explain DM1102")
            .await
            .starts_with("DM1102\nmeaning  the server refused")
    );
    let drawn = run(&world, "wake timeline docs").await;
    assert!(
        drawn.starts_with("wake default/docs   first packet at node-1   pod docs-1 on node-2"),
        "{drawn}"
    );
    assert!(
        drawn.contains("\nstart          80.0      80.0  ====="),
        "{drawn}"
    );
    // The controller has not read the first app yet, and the second does not exist.
    assert_eq!(failing(&world, "explain app new").await.0, Exit::No);
    assert_eq!(
        failing(&world, "wake timeline nope").await.0,
        Exit::NotFound
    );
}

#[tokio::test]
async fn events_are_listed_in_order_of_time_with_their_counts() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "default");
    let app: App = serde_json::from_value(manifest("web")).unwrap();
    let app = apps.create(&PostParams::default(), &app).await.unwrap();
    let about = events::reference(&app);
    for (type_, reason, message) in [
        (EventType::Warning, "Zzz", "came first"),
        (EventType::Normal, "Awake", "came second"),
        (EventType::Warning, "Zzz", "came again"),
    ] {
        let occurrence = Occurrence {
            type_,
            reason,
            message,
        };
        events::record(&world.store, &about, &occurrence)
            .await
            .unwrap();
    }
    let text = run(&world, "events").await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[1].contains("Normal    Awake    app/web   came second"),
        "{text}"
    );
    assert!(
        lines[2].contains("(x2 over ") && lines[2].contains("came again"),
        "{text}"
    );
    assert_eq!(
        run(&world, "events --types Warning --no-headers")
            .await
            .lines()
            .count(),
        1
    );
    for other in ["--for app/other", "app/other", "app other"] {
        let words = format!("events {other} --no-headers");
        assert_eq!(run(&world, &words).await, "", "{words}");
    }
    for own in ["app/web", "app web"] {
        let words = format!("events {own}");
        assert_eq!(run(&world, &words).await.lines().count(), 3, "{words}");
    }
    assert_eq!(run(&world, "events --since 1h").await.lines().count(), 3);
    assert_eq!(run(&world, "events --since 1ns --no-headers").await, "");
    assert!(
        world
            .store
            .get::<App>(&Key::new("default", "web"))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn nodes_are_listed_with_their_pods_memory_and_version() {
    let world = World::start().await;
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "spec": {"podCIDR": "2001:db8:d0::1:0:0/96"},
        "status": {"allocatable": {"cpu": "4000m", "memory": "16571600896", "pods": "500"},
            "nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "0.1.0", "machineID": "", "operatingSystem": "",
                "osImage": "", "systemUUID": ""},
            "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    world.store.create(&node).await.unwrap();
    for (name, node) in [("a", "n1"), ("b", "n1"), ("c", "n2")] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": []},
        }))
        .unwrap();
        world.store.create(&pod).await.unwrap();
    }
    let want = "\
NAME   STATUS   PODS    MEMORY   AGE   VERSION   PREFIX
n1     Ready    2/500   15.4Gi   -     0.1.0     2001:db8:d0::1:0:0/96
";
    assert_eq!(run(&world, "get nodes").await, want);
    // One row is not worth a read of all pods.
    let want = "\
NAME   STATUS   PODS   MEMORY   AGE   VERSION   PREFIX
n1     Ready    500    15.4Gi   -     0.1.0     2001:db8:d0::1:0:0/96
";
    assert_eq!(run(&world, "get node n1").await, want);
}

/// Runs a command whose output is read up to the end of the first line; returns that line, and how the command ended.
async fn first_line(world: &World, words: &[&str]) -> (String, Ended) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["--endpoint", &world.endpoint])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = tokio::io::BufReader::with_capacity(16, command.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    drop(stdout);
    let ended = timeout(Duration::from_secs(30), command.wait_with_output());
    (line, ended.await.expect("the command goes on").unwrap())
}

#[tokio::test]
async fn commands_end_without_an_error_when_their_output_is_read_no_more() {
    let world = World::start().await;
    let apps: Vec<String> = (1..=200)
        .map(|number| yaml(&format!("app-{number}"), &format!("fd00:10::{number:x}")))
        .collect();
    let (_file, path) = file(&apps.join("---\n"));
    run(&world, &format!("apply -f {path}")).await;
    for (words, begin) in [
        (&["get", "apps", "-w"][..], "NAME"),
        // More than a pipe holds.
        (&["get", "apps", "-o", "json"], "{"),
        (&["get", "apps", "-o", "yaml"], ""),
    ] {
        let (line, ended) = first_line(&world, words).await;
        assert!(line.starts_with(begin), "{words:?}: {line}");
        let ended = (ended.status.code(), ended.stderr);
        assert_eq!(ended, (Some(0), Vec::new()), "{words:?}");
    }
}
