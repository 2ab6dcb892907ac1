//! Golden screens of the commands at 40, 80 and 140 columns. `DORMOUSE_RENEW=1 cargo test -p dormouse --test api screens` writes
//! them again.

use std::path::Path;
use std::{env, fs};

use dormouse_cluster::{App, Revision, history};
use dormouse_command::Exit;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::commands::run_on_screen;
use crate::world::World;

const WIDTHS: [usize; 3] = [40, 80, 140];

/// The name of each screen, and its command.
const SCREENS: [(&str, &str); 17] = [
    ("get-apps", "get apps"),
    ("get-apps-wide", "get apps -A -o wide"),
    ("get-pods", "get pods -o wide"),
    ("get-nodes", "get nodes -o wide"),
    ("get-revisions", "get revisions"),
    ("events", "events -A"),
    ("explain-app", "explain app web"),
    ("explain-pod", "explain pod web-1d1619e"),
    ("explain-node", "explain node node-2"),
    ("explain-wake", "explain wake web"),
    ("explain-reason", "explain NotListening"),
    ("explain-code", "explain DM1307"),
    ("explain-drop", "explain DM6035"),
    ("wake-timeline", "wake timeline web --last 2"),
    ("rollout-status", "rollout status app web --watch=false"),
    ("rollout-history", "rollout history app web"),
    ("rollout-traffic", "rollout traffic app newsletter-archive"),
];

/// A time so long ago that its age is in whole days.
fn days_ago(days: i64) -> Value {
    let ago = SignedDuration::from_hours(24 * days + 1);
    json!((Timestamp::now() - ago).to_string())
}

fn meta(name: &str, days: i64, more: &Value) -> Value {
    let mut meta = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "creationTimestamp": days_ago(days), "generation": 2});
    let fields = more.as_object().unwrap().clone();
    meta.as_object_mut().unwrap().extend(fields);
    meta
}

fn app(name: &str, vip: &str, status: &Value) -> App {
    let app = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": meta(name, 410, &json!({})),
        "spec": {"vip": vip, "port": 80, "targetPort": 8000,
            "container": {"name": "app", "image": "registry.example/shop/web:2.4.1", "command": ["/srv/web", "--listen", "[::]:8000"]}},
        "status": status,
    });
    serde_json::from_value(app).unwrap()
}

fn pod(name: &str, node: &str, status: &Value) -> Pod {
    let labels = json!({"labels": {"dormouse.dev/app": "web", "dormouse.dev/revision": "2"}});
    let pod = json!({
        "metadata": meta(name, 405, &labels),
        "spec": {"nodeName": node, "containers": [{"name": "app", "command": ["/srv/web"]}]},
        "status": status,
    });
    serde_json::from_value(pod).unwrap()
}

fn node(name: &str, ready: &Value) -> Node {
    let node = json!({
        "metadata": {"name": name, "creationTimestamp": days_ago(500)},
        "spec": {"podCIDR": "2001:db8:d0::1:0:0/96"},
        "status": {"allocatable": {"cpu": "4000m", "memory": "16571600896", "pods": "500"}, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "2001:db8:d0::1:0:1"}],
            "nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "0.1.0", "machineID": "", "operatingSystem": "",
                "osImage": "", "systemUUID": ""}},
    });
    serde_json::from_value(node).unwrap()
}

fn event(reason: &str, about: &str, days: i64, message: &str) -> Event {
    let event = json!({
        "metadata": {"name": format!("{about}.{reason}").to_lowercase(), "namespace": "default"},
        "involvedObject": {"kind": "App", "name": about, "namespace": "default"},
        "type": "Warning", "reason": reason, "message": message, "count": 3,
        "firstTimestamp": days_ago(days + 5), "lastTimestamp": days_ago(days), "source": {"component": "dormouse"},
    });
    serde_json::from_value(event).unwrap()
}

fn revision(app: &App, number: u32) -> Revision {
    let mut revision = history::revision(app, number);
    let created = days_ago(410 - i64::from(number));
    revision.metadata.creation_timestamp = serde_json::from_value(created).unwrap();
    let image = format!("registry.example/shop/web:2.4.{number}");
    revision.spec.template.container.image = Some(image);
    revision
}

/// Stores what the screens show.
async fn fill(world: &World) {
    let store = &world.store;
    let waking = json!({
        "state": "Waking", "mode": "Proxy", "ready": 1, "wanted": 3, "lastWake": days_ago(402), "reason": "ProbeFailed",
        "revision": 2, "previousRevision": 1, "readyRevision": 1, "observedGeneration": 2,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "RollingOut", "lastTransitionTime": days_ago(402),
            "message": "revision 2: 0 of 3 pods are ready, 1 of an earlier revision serves"}],
    });
    let web = app("web", "fd00:10::1f3a", &waking);
    store.create(&web).await.unwrap();
    let divided = json!({"revision": 12, "traffic": [
        {"revision": 11, "percent": 90, "vip": "fd00:10::2c02", "tag": "stable"},
        {"revision": 12, "percent": 10, "vip": "fd00:10::2c01", "latest": true},
    ]});
    store
        .create(&app("newsletter-archive", "fd00:10::2c01", &divided))
        .await
        .unwrap();
    let ready = json!({"phase": "Running", "podIP": "2001:db8:d0::1:0:7",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": days_ago(404)}]});
    store
        .create(&pod("web-7c9f21a", "node-1", &ready))
        .await
        .unwrap();
    let failing = json!({"phase": "Running", "podIP": "2001:db8:d0::1:0:9",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ProbeFailed", "lastTransitionTime": days_ago(404),
            "message": "GET /up on port 8000 is answered 500 Oops: db is down"}],
        "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"running": {"startedAt": days_ago(404)}}}]});
    store
        .create(&pod("web-1d1619e", "node-2", &failing))
        .await
        .unwrap();
    let connected = json!({"type": "Ready", "status": "True", "reason": "FleetConnected", "message": "the node has a fleet stream"});
    store.create(&node("node-1", &connected)).await.unwrap();
    let lost = json!({"type": "Ready", "status": "Unknown", "reason": "NoFleet", "lastTransitionTime": days_ago(403),
        "message": "the node has no fleet stream and its lease has expired"});
    store.create(&node("node-2", &lost)).await.unwrap();
    let events = [
        event(
            "ProbeFailed",
            "web",
            404,
            "GET /up on port 8000 is answered 500 Oops: db is down",
        ),
        event(
            "PodsLimited",
            "newsletter-archive",
            403,
            "the load wants 715 pods; --pods-per-app allows 100 of one app",
        ),
    ];
    for event in events {
        store.create(&event).await.unwrap();
    }
    for number in [1, 2] {
        store.create(&revision(&web, number)).await.unwrap();
    }
}

/// The screens of one command, one below the other.
async fn screens(world: &World, command: &str) -> String {
    let mut text = format!("$ dormouse {command}\n");
    for width in WIDTHS {
        let (ended, screen) = run_on_screen(&world.endpoint, command, Some(width)).await;
        assert_eq!(ended.unwrap(), Exit::Yes, "{command}");
        for line in screen.lines() {
            let chars = line.chars().count();
            assert!(
                chars <= width,
                "{command}: {chars} of {width} columns: {line}"
            );
            assert_eq!(line, line.trim_end(), "{command}");
        }
        text = text + &format!("-- {width} columns\n") + &screen;
    }
    text
}

#[tokio::test]
async fn the_screens_of_all_widths_are_the_golden_ones() {
    let world = World::start().await;
    fill(&world).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/screens");
    for (name, command) in SCREENS {
        let text = screens(&world, command).await;
        let path = folder.join(format!("{name}.txt"));
        if env::var_os("DORMOUSE_RENEW").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{}", path.display());
    }
}
