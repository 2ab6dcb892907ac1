//! What commands refuse, with what is to be written or looked up instead.

use dormouse_command::Exit;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use crate::commands::{failing, file, run, yaml};
use crate::world::World;

#[tokio::test]
async fn an_object_that_does_not_exist_is_to_be_looked_up_among_its_kind() {
    let world = World::start().await;
    for (words, list) in [
        ("get pod nope", "dormouse get pods -A"),
        ("explain pod nope", "dormouse get pods -A"),
        ("logs pod/nope", "dormouse get pods -A"),
        ("explain node nope", "dormouse get nodes"),
        ("get revision nope", "dormouse get revisions -A"),
        ("explain app nope", "dormouse get apps -A"),
    ] {
        let (exit, text) = failing(&world, words).await;
        assert_eq!(exit, Exit::NotFound, "{words}");
        assert!(text.contains(&format!("try: {list}  ")), "{words}: {text}");
    }
}

#[tokio::test]
async fn an_object_is_explained_under_the_name_that_get_prints() {
    let world = World::start().await;
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    world.store.create(&node).await.unwrap();
    let printed = run(&world, "get node n1 -o name").await;
    assert_eq!(printed, "node/n1\n");
    for words in ["explain node node/n1", "explain node/n1", "explain node n1"] {
        let text = run(&world, words).await;
        assert!(text.starts_with("n1         unknown"), "{words}: {text}");
    }
    let meta = json!({"metadata": {"name": "web-1", "namespace": "default"}});
    let pod: Pod = serde_json::from_value(meta).unwrap();
    world.store.create(&pod).await.unwrap();
    for words in [
        "explain pod pod/web-1",
        "explain pod/web-1",
        "explain pod web-1",
    ] {
        let text = run(&world, words).await;
        assert!(text.starts_with("default/web-1"), "{words}: {text}");
        let decided = text.lines().find(|line| line.starts_with("scheduler "));
        let decided = decided.expect("the scheduler's topic");
        assert!(decided.ends_with(" web-1 is known"), "{words}: {text}");
    }
    let (exit, text) = failing(&world, "explain pod shop/web-1").await;
    assert_eq!(exit, Exit::Usage);
    assert!(text.contains("-n shop pod web-1"), "{text}");
}

#[tokio::test]
async fn a_name_alone_is_refused_with_how_it_is_written() {
    let world = World::start().await;
    for (words, hint) in [
        ("logs bin", "dormouse logs app/bin"),
        ("logs nope", "dormouse logs app/nope"),
        ("events nope", "dormouse events app/nope"),
        ("events app", "dormouse events app/NAME"),
    ] {
        let (exit, text) = failing(&world, words).await;
        assert_eq!(exit, Exit::Usage, "{words}");
        assert!(text.contains(&format!("try: {hint}  ")), "{words}: {text}");
    }
}

/// The error of a command line that clap refuses.
async fn refused(words: &str) -> String {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(words.split_whitespace())
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{words}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_number_below_zero_is_refused_with_what_is_allowed() {
    for words in [
        "rollout status app web --timeout -1",
        "rollout undo app web --to-revision -1",
        "rollout history app web --revision -1",
        "logs app/web --tail -1",
        "wake timeline web --last -1",
    ] {
        let text = refused(words).await;
        assert!(text.contains("write a whole number of 0 or more"), "{text}");
        assert!(!text.contains("as a value, use"), "{text}");
    }
    let text = refused("logs app/web --since 0s").await;
    assert!(text.contains("nothing is newer than that"), "{text}");
    let text = refused("logs app/web --since -1s").await;
    assert!(!text.contains("as a value, use"), "{text}");
}

#[tokio::test]
async fn a_command_without_standard_output_fails_and_does_nothing() {
    let world = World::start().await;
    let (_file, path) = file(&yaml("docs", "fd00:10::1"));
    let apply = format!(
        "exec \"$0\" --endpoint {} apply -f {path} >&-",
        world.endpoint
    );
    let output = tokio::process::Command::new("sh")
        .args(["-c", &apply, env!("CARGO_BIN_EXE_dormouse")])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("DM1401") && text.contains("standard output is closed"),
        "{text}"
    );
    assert_eq!(run(&world, "get apps").await, "");
}
