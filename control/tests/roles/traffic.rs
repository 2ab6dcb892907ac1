//! Traffic divided between revisions, as an app's owner does it: manifests through the API, children, conditions, and a control plane
//! that is killed meanwhile.

use dormouse_cluster::{App, Key, Object};
use dormouse_fleet::proto::{PodStatus, pod_status::Phase};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::world::{World, command, get, in_namespace, kill, served, until};

/// Runs a command of `dormouse` with this standard input; returns its output, and its errors if it failed.
pub(crate) async fn run(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = command(arguments);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

/// Applies the app `web` with this image and these further fields of its specification.
async fn apply(image: &str, fields: &Value) -> Result<String, String> {
    let mut spec = json!({
        "vip": "fd00:10::1", "port": 18_080, "targetPort": 8000,
        "container": {"name": "app", "image": image, "command": ["serve"]},
        "scale": {"window": "6s", "targetBurstCapacity": -1},
    });
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let app = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web"}, "spec": spec,
    });
    run(&["apply", "-f", "-"], &app.to_string()).await
}

fn canary() -> Value {
    json!({"traffic": [
        {"revisionName": "web-1", "percent": 90},
        {"latestRevision": true, "percent": 10},
    ]})
}

async fn app(world: &World, name: &str) -> Option<App> {
    let key = Key::new("default", name);
    world.store().await.get(&key).await.unwrap()
}

/// The split in force: revision, percent, whether it is the latest.
async fn split(world: &World) -> Vec<(u32, u32, bool)> {
    let status = app(world, "web").await.unwrap().status.unwrap();
    let rows = status.traffic.iter();
    rows.map(|row| (row.revision, row.percent, row.latest))
        .collect()
}

async fn reason(world: &World) -> Option<String> {
    let status = app(world, "web").await.unwrap().status?;
    Some(status.condition("TrafficReady")?.reason.clone())
}

async fn children(world: &World) -> Vec<String> {
    let all = world
        .store()
        .await
        .list::<App>(Some("default"))
        .await
        .unwrap();
    let children = all.items.iter().filter(|app| app.parent().is_some());
    children.map(|child| child.key().name).collect()
}

#[test]
fn a_canary_gets_its_share_and_gives_it_back_while_control_is_killed() {
    in_namespace(async || {
        let world = World::new().await;
        let control = world.control().await;
        let _activator = world.activator().await;
        apply("a", &json!({})).await.unwrap();
        served(1).await;
        apply("b", &canary()).await.unwrap();
        until("the split is in force", async || {
            split(&world).await == [(1, 90, false), (2, 10, true)]
        })
        .await;
        let child = app(&world, "web-1").await.unwrap();
        assert_eq!(child.spec.container.image.as_deref(), Some("a"));
        let parent = app(&world, "web").await.unwrap();
        let row = parent.status.unwrap().traffic.remove(0);
        assert_eq!(Some(row.vip), child.vip());
        assert_eq!(reason(&world).await.as_deref(), Some("InForce"));
        // Its own address.
        let own = u32::from(row.vip.segments()[7]);
        until("the child responds", async || {
            get(own).await.ends_with("ok")
        })
        .await;

        kill(control).await;
        let control = world.control().await;
        assert_eq!(split(&world).await, [(1, 90, false), (2, 10, true)]);
        kill(control).await;
        let _control = world.control().await;
        apply("b", &json!({})).await.unwrap();
        until("the child is gone", async || {
            children(&world).await.is_empty()
        })
        .await;
        assert_eq!((split(&world).await, reason(&world).await), (vec![], None));
        served(1).await;
    });
}

#[test]
fn clients_change_the_parent_and_not_the_child() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        apply("a", &json!({})).await.unwrap();
        let error = apply(
            "b",
            &json!({"traffic": [{"latestRevision": true, "percent": 50}]}),
        )
        .await
        .unwrap_err();
        assert!(error.contains("add up to 50"), "{error}");
        apply(
            "b",
            &json!({"traffic": [{"revisionName": "web-7", "percent": 100}]}),
        )
        .await
        .unwrap();
        until("the revision is missing", async || {
            reason(&world).await.as_deref() == Some("RevisionMissing")
        })
        .await;
        apply("b", &canary()).await.unwrap();
        until("the split is in force", async || {
            split(&world).await.len() == 2
        })
        .await;
        let error = run(&["delete", "app", "web-1"], "").await.unwrap_err();
        assert!(
            error.contains("remove web-1 from spec.traffic of app web"),
            "{error}"
        );
        let mut child = app(&world, "web-1").await.unwrap();
        child.spec.scale.max = Some(7);
        child.metadata.resource_version = None;
        child.status = None;
        let child = serde_json::to_string(&child).unwrap();
        let error = run(&["apply", "-f", "-"], &child).await.unwrap_err();
        assert!(error.contains("change the settings of web"), "{error}");
        run(&["delete", "app", "web"], "").await.unwrap();
        until("the child is gone", async || {
            children(&world).await.is_empty()
        })
        .await;
    });
}

#[test]
fn a_gradual_rollout_goes_on_after_control_was_killed_and_is_undone_at_once() {
    in_namespace(async || {
        let world = World::new().await;
        let control = world.control().await;
        let _activator = world.activator().await;
        let rollout =
            |duration: &str| json!({"rollout": {"stepPercent": 50, "duration": duration}});
        apply("a", &rollout("1h")).await.unwrap();
        served(1).await;
        apply("b", &rollout("1h")).await.unwrap();
        let half = [(2, 50, true), (1, 50, false)];
        until("the first step is in force", async || {
            split(&world).await == half
        })
        .await;
        kill(control).await;
        let _control = world.control().await;
        assert_eq!(split(&world).await, half);
        run(&["rollout", "undo", "app", "web"], "").await.unwrap();
        until(
            "the child has all traffic, or the app's own pods do",
            async || {
                let app = app(&world, "web").await.unwrap().status.unwrap();
                let split: Vec<_> = app
                    .traffic
                    .iter()
                    .map(|row| (row.percent, row.latest))
                    .collect();
                assert!(
                    !split.is_empty() || (app.ready > 0 && app.ready_revision == Some(1)),
                    "all traffic goes to no pod of revision 1"
                );
                split.is_empty() || split == [(0, true), (100, false)]
            },
        )
        .await;
        apply("b", &rollout("2s")).await.unwrap();
        served(1).await;
        run(&["rollout", "status", "app", "web"], "").await.unwrap();
        until("the child is gone", async || {
            served(1).await;
            children(&world).await.is_empty()
        })
        .await;
        assert_eq!(split(&world).await, []);
        let app = app(&world, "web").await.unwrap();
        assert_eq!(app.revision_number(), 2);
    });
}

/// What a node reports of a pod whose process ends.
fn crashed() -> PodStatus {
    let mut status = PodStatus {
        reason: "Error".to_owned(),
        message: "exited with status 1".to_owned(),
        ..PodStatus::default()
    };
    status.set_phase(Phase::Failed);
    status
}

#[test]
fn a_revision_whose_pods_crash_right_after_the_last_step_is_not_rolled_out() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let _activator = world.activator().await;
        let steps = json!({
            "rollout": {"stepPercent": 50, "duration": "2s"},
            "scale": {"window": "6s", "targetBurstCapacity": -1, "min": 1},
        });
        apply("a", &steps).await.unwrap();
        served(1).await;
        apply("b", &steps).await.unwrap();
        until("the first step is in force", async || {
            split(&world).await == [(2, 50, true), (1, 50, false)]
        })
        .await;
        until("the last step is in force", async || {
            split(&world).await.is_empty()
        })
        .await;
        let report = ("web".to_owned(), crashed());
        world.reports.borrow_mut().extend([report]);
        until("control has seen the end of a pod", async || {
            let status = app(&world, "web").await.unwrap().status.unwrap();
            status.ready == 0 && status.reason.is_some()
        })
        .await;
        let status = ["rollout", "status", "app", "web"];
        let error = run(&status, "").await.unwrap_err();
        let reason = "revision 2 was ready, and fails: 2 pods failed in a row";
        assert!(error.contains(reason), "{error}");
        let unwatched = ["rollout", "status", "app", "web", "--watch=false"];
        assert!(run(&unwatched, "").await.is_err());
    });
}

#[test]
fn traffic_returns_when_the_apps_own_pods_are_ready_and_a_request_at_the_child_is_answered() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let _activator = world.activator().await;
        let pinned = json!({"traffic": [{"revisionName": "web-1", "percent": 100}]});
        apply("a", &json!({})).await.unwrap();
        apply("b", &pinned).await.unwrap();
        let child_only = [(1, 100, false)];
        until("the split is in force", async || {
            split(&world).await == child_only
        })
        .await;
        world.starting.set(true);
        let waiting = tokio::task::spawn_local(get(1));
        until("the child wakes", async || {
            let child = app(&world, "web-1").await.unwrap();
            child.status.is_some_and(|status| status.wanted > 0)
        })
        .await;
        apply("b", &json!({})).await.unwrap();
        until("the app's own pods are missing", async || {
            reason(&world).await.as_deref() == Some("RevisionNotReady")
        })
        .await;
        assert_eq!(split(&world).await, child_only);
        world.starting.set(false);
        assert!(waiting.await.unwrap().ends_with("ok"));
        until("the child is gone", async || {
            assert!(get(1).await.ends_with("ok"));
            children(&world).await.is_empty()
        })
        .await;
        assert_eq!(split(&world).await, []);
    });
}

#[test]
fn a_revision_without_a_share_sleeps_while_the_app_serves_and_wakes_at_its_own_address() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let _activator = world.activator().await;
        apply("a", &json!({})).await.unwrap();
        served(1).await;
        apply("b", &canary()).await.unwrap();
        until("the split is in force", async || {
            split(&world).await == [(1, 90, false), (2, 10, true)]
        })
        .await;
        let tagged = json!({"traffic": [
            {"latestRevision": true, "percent": 100},
            {"revisionName": "web-1", "percent": 0, "tag": "before"},
        ]});
        apply("b", &tagged).await.unwrap();
        let wanted = async || app(&world, "web-1").await.unwrap().status.unwrap().wanted;
        until("the revision without a share sleeps", async || {
            served(1).await;
            wanted().await == 0
        })
        .await;
        let parent = app(&world, "web").await.unwrap().status.unwrap();
        assert!(parent.ready > 0, "{parent:?}");
        let row = parent.traffic.iter().find(|row| !row.latest).unwrap();
        let own = u32::from(row.vip.segments()[7]);
        served(own).await;
        assert!(wanted().await > 0);
    });
}
