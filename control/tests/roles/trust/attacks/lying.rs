//! A node with a valid certificate that lies about its prefix and its pods, beside one that does not: no activator connects to the false addresses.

use std::net::Ipv6Addr;
use std::time::Duration;

use dormouse_fleet::client::Link;
use dormouse_fleet::join::Joined;
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::NodeStatus;
use dormouse_fleet::{Backend, Boottime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{PODS, report};
use crate::node::POD;
use crate::trust::processes::ACTIVATOR;
use crate::trust::{Trusted, target, text};
use crate::world::{TIMEOUT, get, in_namespace, ip, served, until};

/// What the honest node has; [`POD`] is in it.
const HONEST: [&str; 2] = ["2001:db8:d0::1:0:0/96", "2001:db8:d0::1:0:1"];
/// What the other node has, and a pod of it.
const LIAR: [&str; 2] = ["2001:db8:d2::/96", "2001:db8:d2::1"];
const LIARS_POD: &str = "2001:db8:d2::7";
/// The VIP indexes of the apps whose pods they have.
const OF_HONEST: u32 = 1;
const OF_LIAR: u32 = 2;
/// Time in which a pod with its right address serves.
const SOON: Duration = Duration::from_secs(20);

/// The stream of a node with this prefix and address, which follows both apps, or why control refuses it.
async fn claims(joined: &Joined, node: &str, [prefix, address]: [&str; 2]) -> Result<Link, String> {
    let mut core = Node::new(
        node.into(),
        "boot".into(),
        "0.1.0".into(),
        &[OF_HONEST, OF_LIAR],
    );
    core.describe(NodeStatus {
        prefix: prefix.into(),
        address: address.into(),
        pods: 100,
        cpu_milli: 4_000,
        memory_bytes: 8 << 30,
        runs_pods: true,
        ..NodeStatus::default()
    });
    let opened = async {
        let channel = dormouse_fleet::client::connect(target(joined)).await?;
        let mut link = Link::open(channel, core.open(Boottime::now())).await?;
        link.receive().await?;
        Ok(link)
    };
    opened
        .await
        .map_err(|error: dormouse_fleet::client::LinkError| text(&error))
}

/// Answers all connections to an address with its name.
async fn listen(address: &'static str) {
    let pod = TcpListener::bind((address, 8_000)).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = pod.accept().await.unwrap();
            let length = address.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{address}"
            );
            tokio::spawn(async move {
                // A client that has gone, or only probes, needs no answer.
                if let Ok(1..) = stream.read(&mut [0; 1_024]).await {
                    drop(stream.write_all(answer.as_bytes()).await);
                }
            });
        }
    });
}

impl Trusted {
    /// Creates an app whose only pod is on a node; the name of that.
    async fn app(&self, vip: u32, node: &str) -> String {
        let app = json!({"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": format!("app-{vip}")},
            "spec": {"vip": format!("fd00:10::{vip:x}"), "port": 18_080, "targetPort": 8_000, "wakeTimeout": "2s",
                "container": {"name": "app", "command": ["serve"]},
                "nodeSelector": {"kubernetes.io/hostname": node},
                "scale": {"min": 1, "targetBurstCapacity": 0}}});
        let apps = "/apis/dormouse.dev/v1alpha1/namespaces/default/apps";
        self.create(apps, &app).await;
        let mut name = None;
        until("the pod is on its node", async || {
            let pods: Value = serde_json::from_str(&self.get(PODS, &self.root()).await).unwrap();
            let pods = pods["items"].as_array().unwrap();
            let on = pods.iter().find(|pod| pod["spec"]["nodeName"] == node);
            name = on.and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned));
            name.is_some()
        })
        .await;
        name.unwrap()
    }

    /// Waits until a pod is not ready for its address, which the reason names.
    async fn until_refused(&self, pod: &str, address: &str) {
        until(address, async || {
            let status = self.status(pod).await;
            let conditions = status["conditions"].as_array().cloned();
            let ready = conditions.unwrap_or_default().into_iter();
            let ready = ready
                .filter(|one| one["type"] == "Ready")
                .collect::<Vec<_>>();
            let is_refused = |one: &Value| {
                one["reason"] == "AddressRefused"
                    && one["status"] == "False"
                    && one["message"].as_str().unwrap().contains(address)
            };
            status.get("podIP").is_none() && ready.iter().any(is_refused)
        })
        .await;
    }
}

/// Reads a node's stream until an app has a backend: it is this one, and the app had no other before.
async fn first_backend(link: &mut Link, vip: u32, address: &str) {
    let first = async {
        loop {
            let down = link.receive().await.unwrap();
            for entry in down.entries.iter().filter(|entry| entry.vip == vip) {
                let backends = Backend::unpack(&entry.backends).unwrap();
                if let Some(backend) = backends.first() {
                    return backend.address();
                }
            }
        }
    };
    let first = timeout(TIMEOUT, first).await.unwrap();
    assert_eq!(first, address.parse::<Ipv6Addr>().unwrap());
}

#[test]
fn a_node_that_claims_what_another_one_or_the_cluster_has_is_refused_and_the_other_ones_pods_go_on()
{
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (a, b) = (control.node("a").await, control.node("b").await);
        let a = claims(&a, "a", HONEST).await.unwrap();
        let [prefix, address] = LIAR;
        for (claimed, reason) in [
            // The other node's, a part of it, a network around it, and its address.
            ([HONEST[0], address], "node a has 2001:db8:d0::1:0:0/96"),
            (["2001:db8:d0::1:0:0/112", address], "node a has"),
            (
                ["2001:db8:d0::/64", address],
                "no IPv6 prefix of at least 96",
            ),
            ([prefix, HONEST[1]], "node a has"),
            ([prefix, POD], "node a has"),
            // VIPs, cluster IPs, and the activator's.
            (["fd00:10::/108", address], "of the control plane"),
            (["fd00:10::/112", address], "of the control plane"),
            (["fd00:20::/112", address], "of the control plane"),
            (["2001:db8:a1::/96", address], "of the control plane"),
            ([prefix, "fd00:10::1"], "of the control plane"),
            // The host's own.
            (["::/96", address], "node b claims"),
            ([prefix, "::1"], "is a loopback address"),
        ] {
            let refused = claims(&b, "b", claimed).await.err();
            let refused = refused.unwrap_or_else(|| panic!("{claimed:?} was accepted"));
            assert!(refused.contains(reason), "{claimed:?}: {refused}");
        }
        let nodes = control.get("/api/v1/nodes", &control.root()).await;
        assert!(!nodes.contains("\"name\":\"b\""), "{nodes}");
        // The first node has its stream and its prefix.
        control.pod("one", "a").await;
        until("the report about the pod", async || {
            a.send(report("one", POD)).unwrap();
            control.status("one").await["podIP"] == POD
        })
        .await;
        claims(&b, "b", LIAR).await.unwrap();
    });
}

#[test]
fn nobody_connects_to_the_address_that_a_node_makes_up_for_its_pod_or_reports_for_another_ones() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.role_line("activator").await;
        let _activator = control.role(&ACTIVATOR, &["--join", &line]);
        control.until_ready().await;
        ip(&format!("-6 addr add {LIARS_POD}/128 dev lo nodad")).await;
        for address in ["::1", LIARS_POD] {
            listen(address).await;
        }
        let (a, b) = (control.node("a").await, control.node("b").await);
        let mut a = claims(&a, "a", HONEST).await.unwrap();
        let b = claims(&b, "b", LIAR).await.unwrap();
        let honest = control.app(OF_HONEST, "a").await;
        let liars = control.app(OF_LIAR, "b").await;
        a.send(report(&honest, POD)).unwrap();
        served(OF_HONEST).await;
        for made_up in [
            "::1",
            POD,
            "fd00:10::1",
            "fd00:20::1",
            "2001:db8:a1::1",
            "2001:db8:d3::7",
            "no address",
        ] {
            b.send(report(&liars, made_up)).unwrap();
            // An address of its own, for a pod that it does not have.
            b.send(report(&honest, LIARS_POD)).unwrap();
            control.until_refused(&liars, made_up).await;
        }
        // Each address at which a server listens would answer with 200.
        let answer = get(OF_LIAR).await;
        assert!(!answer.contains("200 OK"), "{answer}");
        assert!(get(OF_HONEST).await.ends_with("ok"));
        assert_eq!(control.status(&honest).await["podIP"], POD);
        b.send(report(&liars, LIARS_POD)).unwrap();
        let mut answer = String::new();
        let right = async {
            while !answer.ends_with(LIARS_POD) {
                answer = get(OF_LIAR).await;
            }
        };
        let served = timeout(SOON, right).await;
        assert!(served.is_ok(), "{answer}: {}", control.status(&liars).await);
        first_backend(&mut a, OF_LIAR, LIARS_POD).await;
        assert!(get(OF_HONEST).await.ends_with("ok"));
    });
}
