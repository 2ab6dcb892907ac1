//! The API with kubectl as its client.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::world::World;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::{Guard, Key, autoscaler_config};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use tokio::{io::AsyncWriteExt, process::Command};

const APP: &str = "\
apiVersion: dormouse.dev/v1alpha1
kind: App
metadata: {name: docs}
spec:
  vip: fd00:10::1
  container: {command: [/bin/true]}
  scale: {window: 6s}
---
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {tier: front}}
spec: {nodeName: node-1, containers: [{name: app, command: [/bin/true]}]}
";

/// Runs `kubectl`, or the program that `DORMOUSE_KUBECTL` names.
pub(crate) async fn kubectl(
    world: &World,
    cache: &tempfile::TempDir,
    words: &str,
    stdin: &str,
) -> Output {
    let program = std::env::var_os("DORMOUSE_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut command = Command::new(&program);
    command
        .args(["--server", &world.endpoint, "--cache-dir"])
        .arg(cache.path())
        .args(words.split_whitespace());
    command.env_remove("KUBECONFIG").env("HOME", cache.path());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("no kubectl: run `cargo xtask setup`, or apt-get install kubernetes-client");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .await
        .unwrap();
    child.wait_with_output().await.unwrap()
}

#[tokio::test]
async fn kubectl_applies_gets_describes_patches_and_deletes() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        run("apply -f -", APP).await,
        "app.dormouse.dev/docs created\npod/one created\n"
    );
    assert_eq!(
        run("apply -f -", APP).await,
        "app.dormouse.dev/docs unchanged\npod/one unchanged\n"
    );
    let changed = APP.replace("6s", "8s").replace("front", "back");
    assert_eq!(
        run("apply -f -", &changed).await,
        "app.dormouse.dev/docs configured\npod/one configured\n"
    );
    let apps = run("get apps", "").await;
    assert!(
        apps.starts_with(
            "NAME   STATE    MODE    READY   WANTED   LAST WAKE   VIP          AGE   REASON\n"
        ),
        "{apps}"
    );
    assert!(
        apps.contains("docs   Asleep   Proxy   0       0                    fd00:10::1"),
        "{apps}"
    );
    let pods = run("get pods -o wide -l tier=back", "").await;
    assert!(
        pods.contains("one    0/1     Pending") && pods.contains("node-1"),
        "{pods}"
    );
    assert!(run("describe app docs", "").await.contains("Window:"));
    assert!(run("describe pod one", "").await.contains("/bin/true"));
    run(
        "patch app docs --type=merge -p {\"spec\":{\"scale\":{\"max\":3}}}",
        "",
    )
    .await;
    assert!(
        run("get app docs -o yaml", "")
            .await
            .contains("    max: 3\n")
    );
    let deleted = run("delete -f -", APP).await;
    assert_eq!(
        deleted,
        "app.dormouse.dev \"docs\" deleted\npod \"one\" deleted\n"
    );
}

#[tokio::test]
async fn kubectl_shows_the_invalid_field() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let wrong = APP.replace("window", "windwo");
    let output = kubectl(&world, &cache, "apply -f -", &wrong).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        stderr.contains("spec.scale.windwo: unknown field; did you mean `window`?"),
        "{stderr}"
    );
    let output = kubectl(&world, &cache, "get apps -o name", "").await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[tokio::test]
async fn kubectl_lists_revisions_and_waits_for_a_rollout() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("apply -f -", APP).await;
    run("apply -f -", &APP.replace("/bin/true", "/bin/false")).await;
    let revisions = run("get revisions -o wide -l dormouse.dev/app=docs", "").await;
    let rows: Vec<Vec<&str>> = revisions
        .lines()
        .map(|line| line.split_whitespace().take(6).collect())
        .collect();
    assert_eq!(rows[0][..5], ["NAME", "APP", "REVISION", "IMAGE", "AGE"]);
    assert_eq!(rows[1][..4], ["docs-1", "docs", "1", "<none>"]);
    assert_eq!(rows[2][5], "/bin/false");
    let report = async |status: &str, reason: &str| {
        let condition = format!(
            "{{\"status\":{{\"conditions\":[{{\"type\":\"RolledOut\",\"status\":\"{status}\",\"message\":\"\",\
            \"reason\":\"{reason}\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}}]}}}}"
        );
        let patch = format!("patch app docs --subresource=status --type=merge -p {condition}");
        run(&patch, "").await;
    };
    report("Unknown", "RollingOut").await;
    let wait = "wait app/docs --for=condition=RolledOut";
    let early = kubectl(&world, &cache, &format!("{wait} --timeout=1s"), "").await;
    assert!(!early.status.success());
    report("True", "NewRevisionAvailable").await;
    let waited = run(&format!("{wait} --timeout=20s"), "").await;
    assert_eq!(waited, "app.dormouse.dev/docs condition met\n");
}

#[tokio::test]
async fn kubectl_scales_an_app_and_cordons_a_node() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("apply -f -", APP).await;
    run("scale app docs --replicas=2", "").await;
    let min = run("get app docs -o jsonpath={.spec.scale.min}", "").await;
    assert_eq!(min, "2");
    run("scale app docs --replicas=0 --current-replicas=2", "").await;
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
    run("create -f -", node).await;
    run("cordon node-1", "").await;
    assert!(run("get nodes", "").await.contains("SchedulingDisabled"));
    run("uncordon node-1", "").await;
    assert!(!run("get nodes", "").await.contains("SchedulingDisabled"));
}

#[tokio::test]
async fn kubectl_drains_a_node() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let objects = "\
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Pod
metadata:
  name: of-an-app
  labels: {dormouse.dev/app: docs}
  annotations: {dormouse.dev/vip-index: '1'}
spec: {nodeName: node-1, containers: [{name: app, command: [/bin/true]}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: of-something-else
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: job, uid: u1, controller: true}]
spec: {nodeName: node-1, containers: [{name: app, command: [/bin/true]}]}
";
    run("create -f -", objects).await;
    let drained = async {
        let text = run("drain node-1 --force --timeout=60s", "").await;
        assert!(text.contains("node/node-1 drained"), "{text}");
    };
    // The controller removes a marked pod when no node sends to it any more.
    let removed = async {
        let key = Key::new("default", "of-an-app");
        loop {
            let pod = world.store.get::<Pod>(&key).await.unwrap().unwrap();
            if pod.metadata.deletion_timestamp.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world
            .store
            .delete::<Pod>(&key, &Guard::default())
            .await
            .unwrap();
    };
    tokio::join!(drained, removed);
    assert_eq!(run("get pods -o name", "").await, "");
    assert!(run("get nodes", "").await.contains("SchedulingDisabled"));
}

#[tokio::test]
async fn kubectl_explains_fields() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    for (words, want) in [
        (
            "explain app",
            "A workload that scales from and to zero behind one VIP.",
        ),
        ("explain app.spec.scale.min", "Minimum number of pods."),
        ("explain pod.spec.nodeName", "FIELD: nodeName <string>"),
    ] {
        let output = kubectl(&world, &cache, words, "").await;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(want), "{words}: {text}{errors}");
    }
}

#[tokio::test]
async fn kubectl_applies_the_autoscalers_config_map_and_annotations() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| kubectl(&world, &cache, words, stdin).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let map = |window: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: config-autoscaler, namespace: dormouse-system}}\n\
             data:\n  min-scale: \"2\"\n  stable-window: {window}\n"
        )
    };
    let refused = run("apply -f -", &map("5s")).await;
    let error = text(&refused.stderr);
    assert!(
        error.contains("data.stable-window: \"5s\" is not valid"),
        "{error}"
    );
    for window in ["40s", "50s"] {
        let applied = run("apply -f -", &map(window)).await;
        assert!(applied.status.success(), "{}", text(&applied.stderr));
    }
    let read = "get cm config-autoscaler -n dormouse-system -o jsonpath={.data.stable-window}";
    assert_eq!(text(&run(read, "").await.stdout), "50s");
    let map = world.store.get(&autoscaler_config::key()).await;
    let map: ConfigMap = map.unwrap().unwrap();
    let in_force = autoscaler_config::settings(&map, Cluster::starting_asleep(0));
    world.autoscaling.send_replace(Arc::new(in_force.unwrap()));
    assert!(run("apply -f -", APP).await.status.success());
    let replicas = "get --raw /apis/dormouse.dev/v1alpha1/namespaces/default/apps/docs/scale";
    let scale = text(&run(replicas, "").await.stdout);
    assert!(scale.contains("\"spec\":{\"replicas\":2}"), "{scale}");
    let annotated = run("annotate app docs autoscaling.knative.dev/min-scale=x", "").await;
    let error = text(&annotated.stderr);
    let field = "metadata.annotations.autoscaling.knative.dev/min-scale: \"x\" is not valid";
    assert!(error.contains(field), "{error}");
    let annotated = run("annotate app docs autoscaling.knative.dev/min-scale=3", "").await;
    assert!(annotated.status.success(), "{}", text(&annotated.stderr));
    let scale = text(&run(replicas, "").await.stdout);
    assert!(scale.contains("\"spec\":{\"replicas\":3}"), "{scale}");
    let deleted = run("delete cm config-autoscaler -n dormouse-system", "").await;
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    let error = text(&run("apply -f -", other).await.stderr);
    assert!(
        error.contains("dormouse-system/config-autoscaler"),
        "{error}"
    );
}

fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
}

#[tokio::test]
async fn kubectl_creates_lists_and_deletes_namespaces() {
    let (world, cache) = (World::start().await, tempfile::tempdir().unwrap());
    let run = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fails = async |words: &str, stdin: &str| {
        let output = kubectl(&world, &cache, words, stdin).await;
        assert!(!output.status.success(), "kubectl {words}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        run("get ns -o name", "").await,
        "namespace/default\nnamespace/kube-system\n"
    );
    assert_eq!(
        run("create -f -", &namespace("shop")).await,
        "namespace/shop created\n"
    );
    let table = run("get namespaces", "").await;
    assert!(table.starts_with("NAME          STATUS   AGE\n"), "{table}");
    assert!(table.contains("shop          Active   "), "{table}");
    let selected = "get ns -l kubernetes.io/metadata.name=shop -o name";
    assert_eq!(run(selected, "").await, "namespace/shop\n");
    for (name, why) in [("shop", "already exists"), ("Shop", "metadata.name")] {
        let refused = fails("create -f -", &namespace(name)).await;
        assert!(refused.contains(why), "{refused}");
    }

    // A namespace comes into being with its first object, and cannot be deleted while it has one.
    assert_eq!(
        run("delete ns shop", "").await,
        "namespace \"shop\" deleted\n"
    );
    let dry = run("apply -n shop --dry-run=server -f -", APP).await;
    assert!(dry.contains("docs created"), "{dry}");
    assert!(fails("get ns shop", "").await.contains("not found"));
    run("apply -n shop -f -", APP).await;
    assert_eq!(run("get ns shop -o name", "").await, "namespace/shop\n");
    let refused = fails("delete ns shop", "").await;
    assert!(refused.contains("delete them first (apps"), "{refused}");
    run("delete -n shop -f -", APP).await;
    run("delete ns shop", "").await;
    for name in ["default", "kube-system"] {
        let refused = fails(&format!("delete ns {name}"), "").await;
        assert!(refused.contains("may not be deleted"), "{refused}");
    }
}
