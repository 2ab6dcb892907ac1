//! `dormouse rollout`: its output, what it stores, and its exit codes.

use crate::commands::{failing, file, run, run_with_notes, yaml};
use crate::world::World;
use dormouse_cluster::app::RolloutStatus;
use dormouse_cluster::{App, Key, State, TrafficStatus, children};
use dormouse_command::Exit;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// Applies the app `web` with these images, one after the other; its first template has none.
async fn world(images: &[&str]) -> World {
    let world = World::start().await;
    let first = yaml("web", "fd00:10::1");
    let container = "container: {command: [/bin/true]}";
    let later = images.iter().map(|image| {
        let with_image = format!("container: {{command: [/bin/true], image: {image}}}");
        first.replace(container, &with_image)
    });
    for manifest in std::iter::once(first.clone()).chain(later) {
        let (_file, path) = file(&manifest);
        run(&world, &format!("apply -f {path}")).await;
    }
    world
}

async fn app(world: &World) -> App {
    let key = Key::new("default", "web");
    world.store.get(&key).await.unwrap().unwrap()
}

/// The apps controller reports an awake app, and the rollout of its template.
async fn report(world: &World, status: &str, reason: &str, ready_revision: u32) {
    let key = Key::new("default", "web");
    let write = |app: &mut App| {
        let generation = app.metadata.generation;
        let written = app.status.get_or_insert_default();
        (written.state, written.ready, written.wanted) = (State::Awake, 1, 1);
        written.ready_revision = Some(ready_revision);
        written.observed_generation = generation;
        written.conditions = vec![Condition {
            type_: "Progressing".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "revision 2: 0 of 1 pods are ready".to_owned(),
            observed_generation: generation,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }];
        true
    };
    world.store.modify(&key, write).await.unwrap();
}

#[tokio::test]
async fn the_history_of_an_app_shows_what_serves() {
    let world = world(&[]).await;
    let only = "REVISION   STATE                    IMAGE    COMMAND\n\
                1          current, not ready yet   <none>   /bin/true\n";
    assert_eq!(run(&world, "rollout history app web").await, only);
    let world = self::world(&["web:2"]).await;
    report(&world, "True", "RollingOut", 1).await;
    let both = "REVISION   STATE                    IMAGE    COMMAND\n\
                1          serves (undo)            <none>   /bin/true\n\
                2          current, not ready yet   web:2    /bin/true\n";
    assert_eq!(run(&world, "rollout history app/web").await, both);
    let one = run(&world, "rollout history app web --revision 2").await;
    assert!(one.contains("image: web:2"), "{one}");
    assert!(
        run(&world, "get revisions -o name")
            .await
            .contains("revision/web-2\n")
    );
    let (exit, text) = failing(&world, "rollout history app web --revision 9").await;
    assert_eq!(exit, Exit::NotFound);
    assert!(
        text.starts_with("error[DM1306]: app default/web has no revision 9"),
        "{text}"
    );
}

#[tokio::test]
async fn the_history_marks_what_was_ready_and_where_an_undo_returns_to() {
    let world = world(&["web:2", "web:3", "web:4"]).await;
    report(&world, "True", "NewRevisionAvailable", 4).await;
    let key = Key::new("default", "web");
    let write = |app: &mut App| {
        let status = app.status.as_mut().unwrap();
        status.earlier_ready_revisions = vec![2];
        status.failed_revisions = vec![3];
        true
    };
    world.store.modify(&key, write).await.unwrap();
    let table = "REVISION   STATE              IMAGE    COMMAND\n\
                 1          -                  <none>   /bin/true\n\
                 2          was ready (undo)   web:2    /bin/true\n\
                 3          failed             web:3    /bin/true\n\
                 4          current            web:4    /bin/true\n";
    assert_eq!(run(&world, "rollout history app web").await, table);
    report(&world, "False", "CrashLoopBackOff", 4).await;
    let history = run(&world, "rollout history app web").await;
    assert!(
        history.contains("\n4          current, failed    web:4"),
        "{history}"
    );
}

#[tokio::test]
async fn an_undo_returns_to_what_serves_or_to_the_revision_before() {
    let world = world(&["web:2", "web:3"]).await;
    report(&world, "True", "NewRevisionAvailable", 3).await;
    assert_eq!(
        run(&world, "rollout undo app web").await,
        "app/web returned to revision 2\n"
    );
    assert_eq!(
        app(&world).await.spec.container.image.as_deref(),
        Some("web:2")
    );
    // Of revision 2 no pod is ready.
    report(&world, "False", "ProgressDeadlineExceeded", 1).await;
    run(&world, "rollout undo app/web").await;
    let first = app(&world).await;
    assert_eq!(
        first.spec.container.image, None,
        "a field that it did not have is gone"
    );
    assert_eq!(first.status.unwrap().revision, Some(1));
    assert_eq!(first.spec.target_port, None, "it follows the port");
    run(&world, "rollout undo app web --to-revision 3").await;
    assert_eq!(
        app(&world).await.spec.container.image.as_deref(),
        Some("web:3")
    );
    assert_eq!(
        run(&world, "get revisions -o name").await.lines().count(),
        3
    );
    assert_eq!(
        run(&world, "rollout undo app web --to-revision 3").await,
        "app/web is at revision 3\n"
    );
}

#[tokio::test]
async fn an_undo_without_an_earlier_revision_is_refused() {
    let world = world(&[]).await;
    let (exit, text) = failing(&world, "rollout undo app web").await;
    assert_eq!(exit, Exit::No);
    assert!(
        text.starts_with("error[DM1306]: app default/web has no earlier revision"),
        "{text}"
    );
}

#[tokio::test]
async fn the_status_of_a_rollout_is_its_exit_status() {
    let world = world(&["web:2"]).await;
    assert_eq!(
        run(&world, "rollout status app web").await,
        "app/web: it sleeps; revision 2 starts with its next wake\n"
    );
    report(&world, "True", "RollingOut", 1).await;
    let line = "app/web: revision 2: 0 of 1 pods are ready\n";
    assert_eq!(
        run(&world, "rollout status app web --watch=false").await,
        line
    );
    let (exit, text) = failing(&world, "rollout status app web --timeout 1").await;
    assert_eq!(exit, Exit::No);
    assert!(text.contains("not rolled out within 1 s"), "{text}");
    report(&world, "False", "ProgressDeadlineExceeded", 1).await;
    let (exit, text) = failing(&world, "rollout status app web").await;
    assert_eq!(exit, Exit::No);
    let want = "error[DM1307]: app default/web: revision 2: 0 of 1 pods are ready\n  \
                try: dormouse rollout undo app web";
    assert!(text.starts_with(want), "{text}");
    report(&world, "True", "NewRevisionAvailable", 2).await;
    assert_eq!(run(&world, "rollout status app web").await, line);
    let key = Key::new("default", "web");
    let write = |app: &mut App| {
        let status = app.status.as_mut().unwrap();
        (status.state, status.ready) = (State::Waking, 0);
        status.reason = Some("NotListening".to_owned());
        status.message = Some("nothing listens on port 80\nmore".to_owned());
        true
    };
    world.store.modify(&key, write).await.unwrap();
    let (exit, text) = failing(&world, "rollout status app web --timeout 1").await;
    assert_eq!(exit, Exit::No);
    let want = "not rolled out within 1 s: revision 2: none of 1 pods is ready; NotListening: nothing listens on port 80";
    assert!(text.contains(want), "{text}");
}

#[tokio::test]
async fn an_app_that_the_config_map_starts_does_not_sleep() {
    let world = world(&[]).await;
    let config: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "config-autoscaler", "namespace": "dormouse-system"},
        "data": {"min-scale": "1"},
    }))
    .unwrap();
    let words = "rollout status app web --watch=false";
    assert!(run(&world, words).await.contains("it sleeps"));
    world.store.create(&config).await.unwrap();
    assert_eq!(
        run(&world, words).await,
        "app/web: revision 1: control has not begun yet\n"
    );
}

#[tokio::test]
async fn a_rollout_is_paused_and_resumed() {
    let world = world(&[]).await;
    assert_eq!(
        run(&world, "rollout pause app web").await,
        "app/web paused\n"
    );
    assert!(app(&world).await.spec.paused);
    assert_eq!(
        run(&world, "rollout resume app/web").await,
        "app/web resumed\n"
    );
    assert!(!app(&world).await.spec.paused);
    let (exit, text) = failing(&world, "rollout pause app other").await;
    assert_eq!((exit, &text[..14]), (Exit::NotFound, "error[DM1301]:"));
    let (exit, text) = failing(&world, "rollout pause pod web").await;
    assert_eq!(exit, Exit::Usage);
    assert!(
        text.contains("a pod has no rollout: only apps have"),
        "{text}"
    );
}

/// Control divides the traffic of the app.
async fn divide(world: &World) {
    let key = Key::new("default", "web");
    let write = |app: &mut App| {
        let row = |revision, percent, vip: &str, latest| TrafficStatus {
            revision,
            percent,
            tag: None,
            vip: vip.parse().unwrap(),
            latest,
        };
        let status = app.status.get_or_insert_default();
        status.traffic = vec![
            row(1, 90, "fd00:10::10", false),
            row(2, 10, "fd00:10::1", true),
        ];
        true
    };
    world.store.modify(&key, write).await.unwrap();
}

#[tokio::test]
async fn the_traffic_of_an_app_is_divided_and_shown() {
    let world = world(&["web:2"]).await;
    let none = "app/web: all traffic goes to its own template\n";
    assert_eq!(run(&world, "rollout traffic app web").await, none);
    let changed = run(&world, "rollout traffic app/web web-1=90 latest=10:next").await;
    assert!(changed.starts_with("app/web: traffic changed"), "{changed}");
    let targets = app(&world).await.spec.traffic;
    let target = &targets[1];
    assert_eq!(
        (targets[0].revision_name.as_deref(), targets[0].percent),
        (Some("web-1"), 90)
    );
    assert_eq!(
        (target.is_latest(), target.percent, target.tag.as_deref()),
        (true, 10, Some("next"))
    );
    let waiting = run(&world, "rollout status app web --watch=false").await;
    assert_eq!(
        waiting,
        "app/web: control has not divided the traffic yet\n"
    );
    divide(&world).await;
    let table = "REVISION         TRAFFIC   TAG   ADDRESS\n\
                 web-1            90%       -     fd00:10::10\n\
                 web-2 (latest)   10%       -     fd00:10::1\n";
    assert_eq!(run(&world, "rollout traffic app web").await, table);
    let wide = run(&world, "get app web -o wide").await;
    assert!(wide.contains("web-1=90,web-2=10"), "{wide}");
    run(&world, "rollout traffic app web latest=100").await;
    assert!(app(&world).await.spec.traffic.is_empty());
    let (exit, text) = failing(&world, "rollout traffic app web web-1=x").await;
    assert_eq!(exit, Exit::Usage);
    assert!(text.contains("`web-1=x` is no target"), "{text}");
    let (_, text) = failing(&world, "rollout traffic app web web-1=50").await;
    assert!(text.contains("add up to 50"), "{text}");
    let (exit, text) = failing(&world, "rollout traffic app web latest").await;
    assert_eq!(exit, Exit::Usage);
    assert!(text.contains("`latest` has no percentage"), "{text}");
}

#[tokio::test]
async fn traffic_for_a_revision_that_does_not_exist_is_stored_with_a_warning() {
    let world = world(&["web:2"]).await;
    let divide = async |targets: &str| {
        let words = format!("rollout traffic app web {targets}");
        let (ended, [output, notes]) = run_with_notes(&world.endpoint, &words, Some(40)).await;
        assert_eq!(ended.unwrap(), Exit::Yes);
        assert!(output.starts_with("app/web: traffic changed"), "{output}");
        assert!(output.lines().all(|line| line.len() <= 40), "{output}");
        notes
    };
    let notes = divide("7=50 latest=50").await;
    assert!(
        notes.starts_with("warning: app/web has no revision web-7: "),
        "{notes}"
    );
    assert_eq!(app(&world).await.spec.traffic.len(), 2);
    assert_eq!(divide("1=50 latest=50").await, "");
}

#[tokio::test]
async fn a_child_is_deleted_by_its_owner_only_when_no_split_has_it() {
    let world = world(&["web:2"]).await;
    run(&world, "rollout traffic app web web-1=90 latest=10").await;
    let parent = app(&world).await;
    let mut child = children::child(&parent, 1, parent.spec.template(), None);
    child.metadata.uid = Some("c".to_owned());
    child.spec.vip = Some("fd00:10::10".parse().unwrap());
    world.store.create(&child).await.unwrap();
    let named = "remove web-1 from spec.traffic of app web, then control deletes it";
    let (exit, text) = failing(&world, "delete app web-1").await;
    assert_eq!(exit, Exit::No);
    assert!(text.contains(named), "{text}");
    divide(&world).await;
    run(&world, "rollout traffic app web latest=100").await;
    let (_, text) = failing(&world, "delete app web-1").await;
    let in_force = "until the split of its manifest is in force";
    assert!(text.contains(in_force), "{text}");
    let key = Key::new("default", "web");
    // A rollout of the parent takes its traffic from it, and no node knows a split yet.
    let write = |app: &mut App| {
        let status = app.status.get_or_insert_default();
        status.traffic.clear();
        status.rollout = Some(RolloutStatus {
            revision: 2,
            from: 1,
            percent: 0,
            since: None,
            failure: None,
        });
        true
    };
    world.store.modify(&key, write).await.unwrap();
    let (_, text) = failing(&world, "delete app web-1").await;
    assert!(text.contains(in_force), "{text}");
    let write = |app: &mut App| {
        app.status.get_or_insert_default().rollout = None;
        true
    };
    world.store.modify(&key, write).await.unwrap();
    assert_eq!(run(&world, "delete app web-1").await, "app/web-1 deleted\n");
}

#[tokio::test]
async fn traffic_that_moves_now_is_marked_for_the_manifest_with_which_it_was_asked_for() {
    let world = world(&["two"]).await;
    run(&world, "rollout traffic app web web-1=90 latest=10").await;
    assert!(!app(&world).await.moves_traffic_now());
    run(&world, "rollout traffic app web web-1=100 --now").await;
    assert!(app(&world).await.moves_traffic_now());
    run(&world, "rollout traffic app web web-1=50 latest=50").await;
    assert!(!app(&world).await.moves_traffic_now());
    run(&world, "rollout undo app web --to-revision 1 --now").await;
    assert!(app(&world).await.moves_traffic_now());
}
