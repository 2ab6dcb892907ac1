//! Attacks from outside: stolen certificates, replayed tokens, nodes that lie, and processes of pods that reach for the control plane.

mod forged;
mod lying;
mod pod;

use std::time::{Duration, SystemTime};

use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, LogLink, connect};
use dormouse_fleet::join::{self, Joined};
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::fleet_client::FleetClient;
use dormouse_fleet::proto::{LogChunk, PodStatus, Up, pod_status::Phase};
use dormouse_trust::{Authority, Credentials, Current, Identity, Validity, folder};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tonic::Code;

use super::{Trusted, open, output, target};
use crate::world::{in_namespace, until};

const DAY: Duration = Duration::from_hours(24);
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/services";
const PROCESSES: usize = 16;

impl Trusted {
    /// A node that has joined.
    async fn node(&self, name: &str) -> Joined {
        let line = self.line(&["--node", name]).await;
        join::join(&line, name).await.unwrap()
    }

    /// The arguments with which curl is an administrator.
    fn root(&self) -> [String; 2] {
        self.certificate(&self.user("root", "system:masters"))
    }

    /// Creates a pod that is on a node.
    async fn pod(&self, name: &str, node: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "app", "command": ["serve"]}]}});
        self.create(PODS, &pod).await;
    }

    /// Creates an object.
    async fn create(&self, path: &str, object: &Value) {
        let (object, [cert, file]) = (object.to_string(), self.root());
        let (ca, url) = (self.pki("ca.crt"), format!("https://[::1]:6443{path}"));
        let (ok, said) = output(
            "curl",
            &[
                "-gsf",
                "--cacert",
                &ca,
                &cert,
                &file,
                "-d",
                &object,
                "-H",
                "content-type: application/json",
                &url,
            ],
        )
        .await;
        assert!(ok, "{said}");
    }

    async fn status(&self, pod: &str) -> Value {
        let answer = self.get(&format!("{PODS}/{pod}"), &self.root()).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"].clone()
    }

    async fn until_address(&self, pod: &str, address: &str) {
        until("the address of the pod", async || {
            self.status(pod).await["podIP"] == address
        })
        .await;
    }
}

/// The open stream of a node.
async fn stream(joined: &Joined, node: &str) -> Link {
    let channel = connect(target(joined)).await.unwrap();
    let mut core = Node::new(node.into(), "boot".into(), "0.1.0".into(), &[]);
    let mut link = Link::open(channel, core.open(Boottime::now()))
        .await
        .unwrap();
    link.receive().await.unwrap();
    link
}

fn report(pod: &str, address: &str) -> Up {
    let status = PodStatus {
        namespace: "default".into(),
        name: pod.into(),
        phase: Phase::Running.into(),
        address: address.into(),
        ready: true,
        ..PodStatus::default()
    };
    Up {
        pods: vec![status],
        ..Up::default()
    }
}

#[test]
fn a_node_that_reports_another_nodes_pod_is_not_believed() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (a, b) = (control.node("a").await, control.node("b").await);
        let (a, b) = (stream(&a, "a").await, stream(&b, "b").await);
        control.pod("one", "a").await;
        control.pod("two", "b").await;
        // The controller has both pods once it believes a report about the second.
        until("the report about the second pod", async || {
            b.send(report("two", "2001:db8::2")).unwrap();
            control.status("two").await["podIP"] == "2001:db8::2"
        })
        .await;
        b.send(report("one", "2001:db8::bad")).unwrap();
        b.send(report("two", "2001:db8::3")).unwrap();
        control.until_address("two", "2001:db8::3").await;
        let status = control.status("one").await;
        assert!(status.get("podIP").is_none(), "{status}");
        a.send(report("one", "2001:db8::1")).unwrap();
        control.until_address("one", "2001:db8::1").await;
        b.send(report("one", "2001:db8::bad")).unwrap();
        b.send(report("two", "2001:db8::4")).unwrap();
        control.until_address("two", "2001:db8::4").await;
        assert_eq!(control.status("one").await["podIP"], "2001:db8::1");
    });
}

#[test]
fn a_node_answers_no_request_for_the_log_of_another_nodes_pod() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (a, b) = (control.node("a").await, control.node("b").await);
        let _streams = (stream(&a, "a").await, stream(&b, "b").await);
        control.pod("one", "a").await;
        let logs = connect(target(&a)).await.unwrap();
        let mut logs = LogLink::open(logs, "a".into()).await.unwrap();
        let chunk = |id, text: &str| LogChunk {
            id,
            text: text.into(),
            ..LogChunk::default()
        };
        let path = format!("{PODS}/one/log");
        let root = control.root();
        let answers = async {
            let id = logs.receive().await.unwrap().id;
            let channel = connect(target(&b)).await.unwrap();
            let lie = futures::stream::iter([chunk(id, "a lie")]);
            let refused = FleetClient::new(channel).send_log(lie).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
            let (chunks, answer) = mpsc::channel(1);
            chunks.send(chunk(id, "the truth")).await.unwrap();
            drop(chunks);
            logs.answer(answer).await.unwrap();
        };
        let (read, ()) = tokio::join!(control.get(&path, &root), answers);
        assert_eq!(read, "the truth");
    });
}

#[test]
fn of_many_processes_with_the_token_of_one_node_one_joins() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        let joins = (0..PROCESSES).map(|_| join::join(&line, "a"));
        let joined = join_all(joins).await.into_iter();
        assert_eq!(joined.flatten().count(), 1);
        // None has guessed: their source does not wait.
        let other = control.line(&["--node", "b"]).await;
        join::join(&other, "b").await.unwrap();
    });
}

/// Fails if a certificate of a node opens anything.
async fn opens_nothing(control: &Trusted, what: &str, stolen: &Joined, renewal: &str) {
    let opened = open(stolen, "a").await;
    assert!(opened.is_err(), "the stream, with {what}");
    let current = Current::new(stolen.credentials.clone()).unwrap();
    let renewed = join::renew(renewal, &stolen.authorities, current, "a").await;
    assert!(renewed.is_err(), "the renewal, with {what}");
    let shown = control.certificate(&stolen.credentials);
    let answer = control.get(SERVICES, &shown).await;
    assert!(!answer.contains("ServiceList"), "the API, with {what}");
}

#[test]
fn a_stolen_certificate_opens_nothing_after_its_end_its_revocation_or_in_another_cluster() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let revoked = control.node("a").await;
        let (ok, said) = control.admin(&["node", "revoke", "a"]).await;
        assert!(ok, "{said}");
        let line = control.line(&["--node", "a"]).await;
        let again = join::join(&line, "a").await.unwrap();
        let renewal = format!("https://{}", line.address);
        let with = |credentials: Credentials| Joined {
            credentials,
            authorities: again.authorities.clone(),
            control: again.control.clone(),
        };
        let of = |authority: &Authority, now| {
            let node = Identity::node("a").unwrap();
            let validity = Validity::issued(now, DAY, None);
            with(authority.client(&node, validity).unwrap())
        };
        let now = SystemTime::now();
        let own = folder::embedded(control.pki("").as_ref(), now).unwrap();
        let stolen = [
            ("one of before the revocation", revoked),
            ("an expired one", of(&own, now - 2 * DAY)),
            ("one of the future", of(&own, now + DAY)),
            (
                "one of another cluster",
                of(&Authority::create(now).unwrap(), now),
            ),
        ];
        // The name is free, and then it is the new host's.
        for (what, one) in &stolen {
            opens_nothing(&control, what, one, &renewal).await;
        }
        until("the node is admitted again", async || {
            open(&again, "a").await.is_ok()
        })
        .await;
        let open = stream(&again, "a").await;
        for (what, one) in &stolen {
            opens_nothing(&control, what, one, &renewal).await;
        }
        assert!(open.has_room());
        let shown = control.certificate(&again.credentials);
        let answer = control.get(SERVICES, &shown).await;
        assert!(answer.contains("ServiceList"), "{answer}");
    });
}

#[test]
fn kubectl_and_etcdctl_with_wrong_credentials_get_nothing() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let now = SystemTime::now();
        let own = folder::embedded(control.pki("").as_ref(), now).unwrap();
        let foreign = Authority::create(now).unwrap();
        let admin = Identity::user("root", vec!["system:masters".into()]).unwrap();
        let of = |authority: &Authority, at| {
            let validity = Validity::issued(at, DAY, None);
            control.certificate(&authority.client(&admin, validity).unwrap())[1].clone()
        };
        let ca = control.pki("ca.crt");
        let kubectl = async |more: &[&str]| {
            let server = [
                "--server",
                "https://[::1]:6443",
                "--certificate-authority",
                &ca,
            ];
            output("kubectl", &[&server, more, &["get", "namespaces"]].concat()).await
        };
        let etcdctl = async |more: &[&str]| {
            let server = ["--endpoints", "https://[::1]:2379", "--cacert", &ca];
            let limits = ["--command-timeout", "3s", "--dial-timeout", "3s"];
            let get = ["get", "", "--prefix", "--keys-only"];
            output("etcdctl", &[&server, &limits, more, &get].concat()).await
        };
        for (authority, at, admitted) in [
            (&own, now, true),
            (&own, now - 2 * DAY, false),
            (&foreign, now, false),
        ] {
            let pem = of(authority, at);
            let shown = ["--client-certificate", &pem, "--client-key", &pem];
            let (ok, said) = kubectl(&shown).await;
            assert_eq!(
                (ok, said.contains("default")),
                (admitted, admitted),
                "{said}"
            );
            let (ok, said) = etcdctl(&["--cert", &pem, "--key", &pem]).await;
            assert_eq!(
                (ok, said.contains("/registry")),
                (admitted, admitted),
                "{said}"
            );
        }
        let (ok, said) = kubectl(&["--token", "wrong"]).await;
        assert!(!ok && said.contains("Unauthorized"), "{said}");
        let root = ["--group", "system:masters"];
        let token = control.user_token("root", &root).await;
        let (ok, said) = kubectl(&["--token", &token]).await;
        assert!(ok && said.contains("default"), "{said}");
    });
}
