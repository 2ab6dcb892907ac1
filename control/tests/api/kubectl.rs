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

impl World {
    /// Runs `kubectl`, or the program that `DORMOUSE_KUBECTL` names; returns what it prints.
    pub(crate) async fn kubectl(&self, words: &str, stdin: &str) -> String {
        let output = self.kubectl_output(words, stdin).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// As [`World::kubectl`], for a command that fails; returns its error.
    async fn kubectl_fails(&self, words: &str, stdin: &str) -> String {
        let output = self.kubectl_output(words, stdin).await;
        assert!(!output.status.success(), "kubectl {words}");
        String::from_utf8(output.stderr).unwrap()
    }

    async fn kubectl_output(&self, words: &str, stdin: &str) -> Output {
        let program = std::env::var_os("DORMOUSE_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(&program);
        let home = self.home.path();
        command
            .args(["--server", &self.endpoint, "--cache-dir"])
            .arg(home)
            .args(words.split_whitespace());
        command.env_remove("KUBECONFIG").env("HOME", home);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .expect("no kubectl: run `cargo xtask setup`, or apt-get install kubernetes-client");
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).await.unwrap();
        drop(pipe);
        child.wait_with_output().await.unwrap()
    }
}

#[tokio::test]
async fn kubectl_applies_gets_describes_patches_and_deletes() {
    let world = World::start().await;
    assert_eq!(
        world.kubectl("apply -f -", APP).await,
        "app.dormouse.dev/docs created\npod/one created\n"
    );
    assert_eq!(
        world.kubectl("apply -f -", APP).await,
        "app.dormouse.dev/docs unchanged\npod/one unchanged\n"
    );
    let changed = APP.replace("6s", "8s").replace("front", "back");
    assert_eq!(
        world.kubectl("apply -f -", &changed).await,
        "app.dormouse.dev/docs configured\npod/one configured\n"
    );
    let apps = world.kubectl("get apps", "").await;
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
    let pods = world.kubectl("get pods -o wide -l tier=back", "").await;
    assert!(
        pods.contains("one    0/1     Pending") && pods.contains("node-1"),
        "{pods}"
    );
    assert!(
        world
            .kubectl("describe app docs", "")
            .await
            .contains("Window:")
    );
    assert!(
        world
            .kubectl("describe pod one", "")
            .await
            .contains("/bin/true")
    );
    world
        .kubectl(
            "patch app docs --type=merge -p {\"spec\":{\"scale\":{\"max\":3}}}",
            "",
        )
        .await;
    assert!(
        world
            .kubectl("get app docs -o yaml", "")
            .await
            .contains("    max: 3\n")
    );
    let deleted = world.kubectl("delete -f -", APP).await;
    assert_eq!(
        deleted,
        "app.dormouse.dev \"docs\" deleted\npod \"one\" deleted\n"
    );
}

#[tokio::test]
async fn kubectl_shows_the_invalid_field() {
    let world = World::start().await;
    let wrong = APP.replace("window", "windwo");
    let stderr = world.kubectl_fails("apply -f -", &wrong).await;
    assert!(
        stderr.contains("spec.scale.windwo: unknown field; did you mean `window`?"),
        "{stderr}"
    );
    assert_eq!(world.kubectl("get apps -o name", "").await, "");
}

#[tokio::test]
async fn kubectl_lists_revisions_and_waits_for_a_rollout() {
    let world = World::start().await;
    world.kubectl("apply -f -", APP).await;
    world
        .kubectl("apply -f -", &APP.replacen("/bin/true", "/bin/false", 1))
        .await;
    let revisions = world
        .kubectl("get revisions -o wide -l dormouse.dev/app=docs", "")
        .await;
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
        world.kubectl(&patch, "").await;
    };
    report("Unknown", "RollingOut").await;
    let wait = "wait app/docs --for=condition=RolledOut";
    let early = format!("{wait} --timeout=1s");
    world.kubectl_fails(&early, "").await;
    report("True", "NewRevisionAvailable").await;
    let waited = world.kubectl(&format!("{wait} --timeout=20s"), "").await;
    assert_eq!(waited, "app.dormouse.dev/docs condition met\n");
}

#[tokio::test]
async fn kubectl_scales_an_app_and_cordons_a_node() {
    let world = World::start().await;
    world.kubectl("apply -f -", APP).await;
    world.kubectl("scale app docs --replicas=2", "").await;
    let min = world
        .kubectl("get app docs -o jsonpath={.spec.scale.min}", "")
        .await;
    assert_eq!(min, "2");
    world
        .kubectl("scale app docs --replicas=0 --current-replicas=2", "")
        .await;
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
    world.kubectl("create -f -", node).await;
    world.kubectl("cordon node-1", "").await;
    assert!(
        world
            .kubectl("get nodes", "")
            .await
            .contains("SchedulingDisabled")
    );
    world.kubectl("uncordon node-1", "").await;
    assert!(
        !world
            .kubectl("get nodes", "")
            .await
            .contains("SchedulingDisabled")
    );
}

#[tokio::test]
async fn kubectl_drains_a_node() {
    let world = World::start().await;
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
    world.kubectl("create -f -", objects).await;
    let drained = async {
        let text = world
            .kubectl("drain node-1 --force --timeout=60s", "")
            .await;
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
    assert_eq!(world.kubectl("get pods -o name", "").await, "");
    assert!(
        world
            .kubectl("get nodes", "")
            .await
            .contains("SchedulingDisabled")
    );
}

#[tokio::test]
async fn kubectl_explains_fields() {
    let world = World::start().await;
    for (words, want) in [
        (
            "explain app",
            "A workload that scales from and to zero behind one VIP.",
        ),
        ("explain app.spec.scale.min", "Minimum number of pods."),
        ("explain pod.spec.nodeName", "FIELD: nodeName <string>"),
    ] {
        let text = world.kubectl(words, "").await;
        assert!(text.contains(want), "{words}: {text}");
    }
}

#[tokio::test]
async fn kubectl_applies_the_autoscalers_config_map_and_annotations() {
    let world = World::start().await;
    let map = |window: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: config-autoscaler, namespace: dormouse-system}}\n\
             data:\n  min-scale: \"2\"\n  stable-window: {window}\n"
        )
    };
    let error = world.kubectl_fails("apply -f -", &map("5s")).await;
    assert!(
        error.contains("data.stable-window: \"5s\" is not valid"),
        "{error}"
    );
    for window in ["40s", "50s"] {
        world.kubectl("apply -f -", &map(window)).await;
    }
    let read = "get cm config-autoscaler -n dormouse-system -o jsonpath={.data.stable-window}";
    assert_eq!(world.kubectl(read, "").await, "50s");
    let map = world.store.get(&autoscaler_config::key()).await;
    let map: ConfigMap = map.unwrap().unwrap();
    let in_force = autoscaler_config::settings(&map, Cluster::starting_asleep(0));
    world.autoscaling.send_replace(Arc::new(in_force.unwrap()));
    world.kubectl("apply -f -", APP).await;
    let replicas = "get --raw /apis/dormouse.dev/v1alpha1/namespaces/default/apps/docs/scale";
    let scale = world.kubectl(replicas, "").await;
    assert!(scale.contains("\"spec\":{\"replicas\":2}"), "{scale}");
    let annotate = "annotate app docs autoscaling.knative.dev/min-scale";
    let error = world.kubectl_fails(&format!("{annotate}=x"), "").await;
    let field = "metadata.annotations.autoscaling.knative.dev/min-scale: \"x\" is not valid";
    assert!(error.contains(field), "{error}");
    world.kubectl(&format!("{annotate}=3"), "").await;
    let scale = world.kubectl(replicas, "").await;
    assert!(scale.contains("\"spec\":{\"replicas\":3}"), "{scale}");
    world
        .kubectl("delete cm config-autoscaler -n dormouse-system", "")
        .await;
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    let error = world.kubectl_fails("apply -f -", other).await;
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
    let world = World::start().await;
    assert_eq!(
        world.kubectl("get ns -o name", "").await,
        "namespace/default\nnamespace/kube-system\n"
    );
    assert_eq!(
        world.kubectl("create -f -", &namespace("shop")).await,
        "namespace/shop created\n"
    );
    let table = world.kubectl("get namespaces", "").await;
    assert!(table.starts_with("NAME          STATUS   AGE\n"), "{table}");
    assert!(table.contains("shop          Active   "), "{table}");
    let selected = "get ns -l kubernetes.io/metadata.name=shop -o name";
    assert_eq!(world.kubectl(selected, "").await, "namespace/shop\n");
    for (name, why) in [("shop", "already exists"), ("Shop", "metadata.name")] {
        let refused = world.kubectl_fails("create -f -", &namespace(name)).await;
        assert!(refused.contains(why), "{refused}");
    }

    // A namespace comes into being with its first object, and cannot be deleted while it has one.
    assert_eq!(
        world.kubectl("delete ns shop", "").await,
        "namespace \"shop\" deleted\n"
    );
    let dry = world
        .kubectl("apply -n shop --dry-run=server -f -", APP)
        .await;
    assert!(dry.contains("docs created"), "{dry}");
    assert!(
        world
            .kubectl_fails("get ns shop", "")
            .await
            .contains("not found")
    );
    world.kubectl("apply -n shop -f -", APP).await;
    assert_eq!(
        world.kubectl("get ns shop -o name", "").await,
        "namespace/shop\n"
    );
    let refused = world.kubectl_fails("delete ns shop", "").await;
    assert!(refused.contains("delete them first (apps"), "{refused}");
    world.kubectl("delete -n shop -f -", APP).await;
    world.kubectl("delete ns shop", "").await;
    for name in ["default", "kube-system"] {
        let refused = world.kubectl_fails(&format!("delete ns {name}"), "").await;
        assert!(refused.contains("may not be deleted"), "{refused}");
    }
}
