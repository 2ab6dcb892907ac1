//! Renewal under load: for a minute all certificates live for ten seconds, no stream ends, and no request fails.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dormouse_cluster::client::{KeyRange, Previous};
use dormouse_cluster::{Client, channel};
use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, LogLink, Target, connect};
use dormouse_fleet::join;
use dormouse_fleet::membership::Membership;
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::{Beat, Up};
use dormouse_trust::Identity;
use etcd_client::{Txn, TxnOp};
use futures::StreamExt;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::processes::ACTIVATOR;
use super::{READY, Trusted, open, output};
use crate::world::{TIMEOUT, in_namespace};

const LIFE: &str = "10s";
const LOAD: Duration = Duration::from_mins(1);
/// Interval of the requests of one client.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of what costs more: joins, new connections, and events of watches.
const LONG_PAUSE: Duration = Duration::from_secs(1);
const STORE: &str = "https://[::1]:2379";
const KEYS: &str = "/renewal/";

/// The load, and what it has counted.
struct Load {
    control: Trusted,
    end: Instant,
    /// The requests, joins, grants and events of each client.
    done: RefCell<BTreeMap<&'static str, usize>>,
    /// The contents that each file of a certificate has had.
    certificates: RefCell<BTreeMap<PathBuf, BTreeSet<Vec<u8>>>>,
}

impl Load {
    /// Runs a client every `pause` until the end.
    async fn repeat(
        &self,
        name: &'static str,
        pause: Duration,
        mut client: impl AsyncFnMut(usize),
    ) {
        for count in 1.. {
            client(count).await;
            self.done.borrow_mut().insert(name, count);
            sleep(pause).await;
            if Instant::now() >= self.end {
                return;
            }
        }
    }

    fn counted(&self, name: &'static str) {
        *self.done.borrow_mut().entry(name).or_default() += 1;
    }

    fn see(&self, certificate: &Path) {
        let content = std::fs::read(certificate).unwrap();
        let mut seen = self.certificates.borrow_mut();
        seen.entry(certificate.into()).or_default().insert(content);
    }
}

/// A member whose certificate is renewed until the guard is dropped.
struct Renewed {
    target: Target,
    store: Target,
    pem: PathBuf,
    _renewal: DropGuard,
}

async fn member(control: &Trusted, args: &[&str], identity: Identity) -> Renewed {
    let line = control.line(args).await.reveal();
    let folder = control.world.folder.path().join(identity.name());
    let file = match &identity {
        Identity::Node(_) => "node.pem",
        _ => "role.pem",
    };
    let joined = Membership::open(&folder, identity, Some(line.as_str())).await;
    let membership = joined.unwrap().unwrap();
    let shutdown = CancellationToken::new();
    let renewed = Renewed {
        target: membership.target(None).unwrap(),
        store: Target::secured(STORE, membership.client().unwrap()).unwrap(),
        pem: folder.join(file),
        _renewal: shutdown.clone().drop_guard(),
    };
    tokio::spawn(membership.renew(shutdown));
    renewed
}

/// `dormouse get`, and the health of all roles, each on a connection of its own.
async fn requests(load: &Load, files: &[PathBuf]) {
    let ca = load.control.pki("ca.crt");
    let gets = load.repeat("gets", LONG_PAUSE, async |_count| {
        let (ok, said) = load.control.admin(&["get", "nodes"]).await;
        assert!(ok, "{said}");
    });
    let healths = load.repeat("healths", PAUSE, async |_count| {
        let args = ["-gs", "--cacert", &ca, READY];
        let (_, said) = output("curl", &args).await;
        assert_eq!(said, "ok");
        for file in files {
            load.see(file);
        }
    });
    tokio::join!(gets, healths);
}

/// kubectl's watch, which does not connect again, and objects for it.
async fn watch(load: &Load) {
    let kubeconfig = load.control.pki("admin.kubeconfig");
    let file = load.control.world.folder.path().join("object.json");
    let kubectl = |words: &str| {
        let mut command = Command::new("kubectl");
        command.args(["--kubeconfig", &kubeconfig]);
        command.args(words.split(' ')).kill_on_drop(true);
        command.stdout(Stdio::piped());
        command
    };
    let watch = kubectl("get namespaces --watch -o name").spawn();
    let mut watch = watch.unwrap();
    let mut events = BufReader::new(watch.stdout.take().unwrap()).lines();
    load.repeat("events of the API", LONG_PAUSE, async |count| {
        let name = format!("renewal-{count}");
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        std::fs::write(&file, object.to_string()).unwrap();
        let create = format!("create -f {}", file.display());
        let created = kubectl(&create).output().await.unwrap();
        assert!(created.status.success(), "{created:?}");
        let wanted = format!("namespace/{name}");
        let event = async {
            loop {
                let line = events.next_line().await.unwrap();
                if line.expect("the watch has ended") == wanted {
                    return;
                }
            }
        };
        timeout(TIMEOUT, event).await.expect("no event");
    })
    .await;
}

/// A node's stream, which gets the grants of its beats, and new connections beside it.
async fn fleet(load: &Load, node: &'static str, member: &Renewed) {
    let channel = connect(member.target.clone()).await.unwrap();
    let mut core = Node::new(node.into(), "boot".into(), "0.1.0".into(), &[]);
    let mut link = Link::open(channel, core.open(Boottime::now()))
        .await
        .unwrap();
    let stream = async {
        let mut beats = interval(PAUSE);
        let mut applied = 0;
        while Instant::now() < load.end {
            let beat = tokio::select! {
                down = link.receive() => {
                    let down = down.expect("the stream has ended");
                    if down.grant.is_some() {
                        load.counted("grants");
                    }
                    applied = down.seq;
                    None
                }
                _ = beats.tick() => Some(Beat { at_ns: Boottime::now().0 }),
            };
            if link.has_room() {
                let up = Up {
                    applied,
                    beat,
                    ..Up::default()
                };
                link.send(up).expect("the stream has ended");
            }
        }
    };
    let connections = load.repeat("connections", LONG_PAUSE, async |_count| {
        let channel = connect(member.target.clone()).await.unwrap();
        LogLink::open(channel, node.into()).await.unwrap();
    });
    tokio::join!(stream, connections);
}

/// Writes to the store on connections of their own, and a watch of them on one.
async fn store(load: &Load, member: &Renewed) {
    let client = async || {
        let channel = channel::over(member.store.clone().lazy());
        Client::over(channel).await.unwrap()
    };
    let watching = client().await;
    let (_, revision) = watching.range(KEYS, 0).await.unwrap();
    let keys = KeyRange::of_prefix(KEYS);
    let events = watching.watch(&keys, revision, Previous::LeftOut).await;
    let mut events = std::pin::pin!(events.unwrap());
    load.repeat("events of the store", PAUSE, async |count| {
        let put = TxnOp::put(format!("{KEYS}{count}"), "", None);
        let txn = Txn::new().and_then([put]);
        client().await.txn(txn).await.unwrap();
        let event = timeout(TIMEOUT, events.next()).await.unwrap();
        event.expect("the watch has ended").unwrap();
        watching.range(KEYS, 0).await.unwrap();
    })
    .await;
}

/// Nodes that join, and open their streams.
async fn joins(load: &Load) {
    load.repeat("joins", LONG_PAUSE, async |count| {
        let node = format!("joins-{count}");
        let line = load.control.line(&["--node", &node]).await;
        let joined = join::join(&line, &node).await.unwrap();
        open(&joined, &node).await.unwrap();
    })
    .await;
}

#[test]
fn streams_and_requests_go_on_while_all_certificates_are_renewed() {
    in_namespace(async || {
        let flags = ["--without", "scheduler", "--certificate-life", LIFE];
        let control = Trusted::start_with(&flags, |process, folder| {
            // A pipe that is not read would hold the process up.
            process.stderr(File::create(folder.join("up.log")).unwrap());
        })
        .await;
        let line = control.role_line("scheduler").await;
        let _scheduler = control.role(&["scheduler"], &["--join", &line]);
        let line = control.role_line("activator").await;
        let _activator = control.role(&ACTIVATOR, &["--join", &line]);
        control.until_ready().await;
        let a = member(&control, &["--node", "a"], Identity::node("a").unwrap()).await;
        let b = member(&control, &["--node", "b"], Identity::node("b").unwrap()).await;
        let role = Identity::control("store").unwrap();
        let role = member(&control, &["--role", "store"], role).await;
        let roles = control.world.folder.path().join("roles");
        let of_role = |role: &str| roles.join(role).join("identity/role.pem");
        let files = [
            control.pki("admin.kubeconfig").into(),
            of_role("scheduler"),
            of_role("activator"),
            a.pem.clone(),
            b.pem.clone(),
            role.pem.clone(),
        ];
        let load = Load {
            control,
            end: Instant::now() + LOAD,
            done: RefCell::default(),
            certificates: RefCell::default(),
        };
        tokio::join!(
            requests(&load, &files),
            watch(&load),
            fleet(&load, "a", &a),
            fleet(&load, "b", &b),
            store(&load, &role),
            joins(&load),
        );
        let done = load.done.borrow();
        assert!(
            done.len() == 7 && done.values().all(|count| *count > 10),
            "{done:?}"
        );
        // At two thirds of ten seconds: eight or nine times in a minute.
        for (file, seen) in &*load.certificates.borrow() {
            assert!(seen.len() > 5, "{}: {}", file.display(), seen.len());
        }
    });
}
