//! The members of a sharded scheduler: they join as the other roles, and admit no other clients to their streams.

use dormouse_cluster::{Client, channel};
use dormouse_fleet::client::Target;
use dormouse_fleet::join;
use dormouse_trust::{Current, client};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use tokio::process::Child;

use super::metrics::{page, shown};
use super::{Trusted, output};
use crate::world::{World, dormouse, ended, in_namespace, until};

const LEADER: [&str; 2] = ["scheduler", "--shards"];
const SHARD: [&str; 6] = [
    "scheduler",
    "--shard",
    "--listen=[::1]:10260",
    "--metrics-listen=[::1]:10261",
    "--name",
    "a",
];
const RELAY: [&str; 3] = ["relay", "--name", "a"];

async fn member(control: &Trusted, role: &str, command: &[&str]) -> Child {
    let line = control.role_line(role).await;
    control.role(command, &["--join", &line])
}

/// The store, as a role.
async fn store(control: &Trusted) -> Client {
    let line = control.line(&["--role", "scheduler"]).await;
    let joined = join::join(&line, "").await.unwrap();
    let current = Current::new(joined.credentials).unwrap();
    let config = client::config(&joined.authorities, Some(current)).unwrap();
    let target = Target::secured("https://[::1]:2379", config).unwrap();
    Client::over(channel::over(target.lazy())).await.unwrap()
}

async fn add_node_and_pod(store: &Client) {
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap();
    store.create(&node).await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }))
    .unwrap();
    store.create(&pod).await.unwrap();
}

#[test]
fn a_sharded_scheduler_with_certificates_binds_pods_and_admits_only_the_control_plane() {
    in_namespace(async || {
        let control = Trusted::start(&["--without", "scheduler"]).await;
        let _leader = member(&control, "scheduler", &LEADER).await;
        let _shard = member(&control, "shard", &SHARD).await;
        let _relay = member(&control, "relay", &RELAY).await;
        let store = store(&control).await;
        add_node_and_pod(&store).await;
        until("the pod is bound", async || {
            let pods = store.list::<Pod>(Some("default")).await.unwrap().items;
            let node = pods[0].spec.as_ref().unwrap().node_name.as_deref();
            node == Some("n")
        })
        .await;
        let leases = store.range("/registry/leases/kube-system/", 0).await;
        for lease in leases.unwrap().0 {
            let text = String::from_utf8_lossy(lease.value()).into_owned();
            assert!(!text.contains("http://"), "{text}");
        }

        let [node, role, _admin] = shown(&control).await;
        for port in [10_259, 10_260, 10_264] {
            let connect = format!("[::1]:{port}");
            for other in [&node[..], &[]] {
                let (status, _) = page(&control, port, "/", other).await;
                assert_eq!(status, "000", "{connect}");
            }
            let (status, _) = page(&control, port, "/", &role).await;
            assert_ne!(status, "000", "{connect}");
            let (_, said) = output("curl", &["-gs", &format!("http://{connect}")]).await;
            assert!(said.contains("HTTP request to an HTTPS server"), "{said}");
        }
    });
}

#[test]
fn a_member_without_a_certificate_does_not_listen_for_other_hosts() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let state = world.folder.path().join("roles");
        for (command, role) in [
            (
                &["scheduler", "--shards", "--advertise=http://c:1"][..],
                "scheduler",
            ),
            (&["scheduler", "--shard", "--advertise=http://c:1"], "shard"),
            (&["relay", "--advertise=http://c:1"], "relay"),
        ] {
            let store = ["--store=http://[::1]:2379", "--listen=[::]:10270"];
            let mut process = dormouse(command);
            process.args(store).arg("--state-dir").arg(&state);
            let (status, log) = ended(process.spawn().unwrap()).await;
            assert_eq!(status.code(), Some(1), "{log}");
            let remedy = format!("dormouse token create --role {role}");
            assert!(
                log.contains("this role has no certificate") && log.contains(&remedy),
                "{log}"
            );
        }
    });
}
