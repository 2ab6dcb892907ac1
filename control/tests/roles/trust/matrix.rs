//! Every gRPC method by every identity: allowed or refused as `matrix.txt` says. The methods are those of all `.proto` files of the control plane.

#[path = "../../etcd_vectors/rpc.rs"]
mod rpc;

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_fleet::client::Target;
use dormouse_fleet::join;
use dormouse_fleet::join_proto::SignRequest;
use dormouse_fleet::proto::{Hello, LogHello, Up};
use dormouse_trust::{Authority, Credentials, Current, Identity, Validity, client, folder};
use futures::StreamExt;
use futures::future::join_all;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Trusted, text};
use crate::world::{TIMEOUT, in_namespace, until};

/// A call that may be made and has no answer by then waits for an event. For a refusal, the test waits longer.
const ANSWER: Duration = Duration::from_secs(2);
/// What a client gets whose certificate is refused, or missing, in the handshake.
const REFUSALS: [&str; 3] = [
    "needs a certificate",
    "does not admit this identity",
    "from another certificate authority",
];

/// What it gets instead if the connection ends while it sends.
const ENDS: [&str; 3] = ["connection closed", "broken pipe", "reset by peer"];

/// A row of the table for one method.
struct Row {
    port: u16,
    /// With its package and service.
    method: String,
    /// `y` or `.` for each identity.
    allowed: String,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("matrix.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let rows = rows.flat_map(|line| {
        let [served, methods, allowed] = line.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        let (port, service) = served.split_once(' ').unwrap();
        methods.split(' ').map(move |method| Row {
            port: port.parse().unwrap(),
            method: format!("{service}.{method}"),
            allowed: allowed.to_owned(),
        })
    });
    rows.collect()
}

fn add_protos(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_protos(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "proto") {
            found.push(path);
        }
    }
}

/// The services of the `.proto` files, and those of other packages that the store serves.
fn methods() -> Vec<MethodDescriptor> {
    let mut files = Vec::new();
    add_protos(Path::new(env!("CARGO_MANIFEST_DIR")), &mut files);
    let folders: BTreeSet<_> = files.iter().filter_map(|file| file.parent()).collect();
    let set = tempfile::NamedTempFile::new().unwrap();
    let protoc = std::env::var_os("PROTOC").unwrap_or_else(|| OsString::from("protoc"));
    let mut protoc = std::process::Command::new(protoc);
    protoc.arg(format!("--descriptor_set_out={}", set.path().display()));
    for folder in folders {
        protoc.arg(format!("-I{}", folder.display()));
    }
    let status = protoc.args(&files).arg("--include_imports").status();
    assert!(status.unwrap().success());
    let set = std::fs::read(set.path()).unwrap();
    let mut pool = DescriptorPool::decode(set.as_slice()).unwrap();
    for others in [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        pool.decode_file_descriptor_set(others).unwrap();
    }
    let methods = pool.services().map(|service| {
        let methods = service.methods();
        methods.collect::<Vec<_>>()
    });
    methods.flatten().collect()
}

#[test]
fn every_method_has_a_row() {
    let known: BTreeSet<String> = rows().into_iter().map(|row| row.method).collect();
    let methods = methods().into_iter();
    let methods: BTreeSet<String> = methods.map(|one| one.full_name().to_owned()).collect();
    assert!(methods.len() > 50, "{methods:?}");
    let missing: Vec<_> = methods.difference(&known).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let gone: Vec<_> = known.difference(&methods).collect();
    assert!(
        gone.is_empty(),
        "a row of what the services do not have: {gone:?}"
    );
}

/// An identity as a client.
struct Caller {
    tls: Arc<ClientConfig>,
    metadata: rpc::Meta,
}

/// The identities, in the order of the table's columns.
async fn callers(control: &Trusted) -> Vec<Caller> {
    let ca = control.pki("ca.crt");
    let authorities = folder::load_certificates(ca.as_ref()).unwrap();
    let caller = |credentials: Option<Credentials>| {
        let current = credentials.map(|one| Current::new(one).unwrap());
        Caller {
            tls: client::config(&authorities, current).unwrap(),
            metadata: Vec::new(),
        }
    };
    let joined = async |args: &[&str], node: &str| {
        let line = control.line(args).await;
        Some(join::join(&line, node).await.unwrap().credentials)
    };
    let root = ["--group", "system:masters"];
    let token = control.user_token("root", &root).await;
    let bearer = format!("Bearer {token}");
    let now = SystemTime::now();
    let foreign = Authority::create(now).unwrap();
    let store = Identity::control("store").unwrap();
    let foreign = foreign.client(&store, Validity::issued(now, TIMEOUT, None));
    vec![
        caller(None),
        caller(joined(&["--node", "a"], "a").await),
        caller(joined(&["--node", "b"], "b").await),
        caller(Some(control.user("eve", "dev"))),
        Caller {
            metadata: vec![("authorization".to_owned(), bearer)],
            ..caller(None)
        },
        caller(Some(foreign.unwrap())),
        caller(joined(&["--role", "store"], "").await),
        caller(Some(control.user("root", "system:masters"))),
    ]
}

/// The message of a call: node a's where it is a node's, else an empty one.
fn message(method: &MethodDescriptor) -> DynamicMessage {
    let node = "a".to_owned();
    let bytes = match method.full_name() {
        "dormouse.fleet.v1.Fleet.Follow" => {
            let hello = Hello {
                node,
                ..Hello::default()
            };
            let up = Up {
                hello: Some(hello),
                ..Up::default()
            };
            up.encode_to_vec()
        }
        "dormouse.fleet.v1.Fleet.FollowLogs" => LogHello { node }.encode_to_vec(),
        "dormouse.join.v1.Join.Sign" => {
            let asked = SignRequest {
                node,
                ..SignRequest::default()
            };
            asked.encode_to_vec()
        }
        _ => Vec::new(),
    };
    DynamicMessage::decode(method.input(), bytes.as_slice()).unwrap()
}

/// The first answer to a call.
async fn call(
    channel: &Channel,
    method: &MethodDescriptor,
    metadata: &rpc::Meta,
) -> Result<(), Status> {
    let message = message(method);
    if !method.is_client_streaming() && !method.is_server_streaming() {
        let answer = rpc::call(channel, method, &message, metadata).await;
        return answer.map(drop);
    }
    let messages = futures::stream::iter([message]);
    let mut answers = rpc::stream(channel, method, messages, metadata).await?;
    answers.next().await.transpose().map(drop)
}

/// Whether a call was refused; none: the connection has ended without a reason. Fails if the server cannot be
/// reached, or does not have the method.
fn is_refused(row: &Row, answer: &Result<(), Status>) -> Option<bool> {
    let Err(status) = answer else {
        return Some(false);
    };
    let said = text(status);
    let by_call = [Code::PermissionDenied, Code::Unauthenticated].contains(&status.code());
    if by_call || REFUSALS.iter().any(|refusal| said.contains(refusal)) {
        return Some(true);
    }
    if ENDS.iter().any(|end| said.contains(end)) {
        return None;
    }
    let is_missing = status.code() == Code::Unimplemented && status.message().is_empty();
    assert!(!is_missing, "{} is not served", row.method);
    assert!(status.source().is_none(), "{}: {said}", row.method);
    Some(false)
}

/// Whether a caller is refused, who is expected to be or not.
async fn refused(
    row: &Row,
    method: &MethodDescriptor,
    (caller, expected): (&Caller, bool),
) -> bool {
    let url = format!("https://[::1]:{}", row.port);
    let mut ended = false;
    let calls = async {
        loop {
            let target = Target::secured(&url, Arc::clone(&caller.tls)).unwrap();
            let channel = target.lazy();
            let answer = call(&channel, method, &caller.metadata).await;
            if let Some(refused) = is_refused(row, &answer) {
                return refused;
            }
            ended = true;
        }
    };
    let patience = if expected { TIMEOUT } else { ANSWER };
    let answer = timeout(patience, calls).await;
    answer.unwrap_or(ended)
}

async fn allowed(row: &Row, method: &MethodDescriptor, callers: &[Caller]) -> String {
    assert_eq!(row.allowed.len(), callers.len(), "{}", row.method);
    let callers = callers.iter().zip(row.allowed.chars());
    let answers = callers.map(|(caller, allowed)| refused(row, method, (caller, allowed == '.')));
    let answers = join_all(answers).await.into_iter();
    answers
        .map(|refused| if refused { '.' } else { 'y' })
        .collect()
}

#[test]
fn every_call_is_allowed_to_exactly_those_whom_the_table_names() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.role_line("scheduler").await;
        let own = ["--join", &line, "--listen", "[::1]:10260"];
        let _scheduler = control.role(&["scheduler"], &own);
        let line = control.role_line("shard").await;
        let ports = ["--listen=[::1]:10262", "--metrics-listen=[::1]:10263"];
        let own = ["--shard", "--join", &line, ports[0], ports[1]];
        let _shard = control.role(&["scheduler", "--name", "a"], &own);
        until("scheduler and shard listen", async || {
            let scheduler = TcpStream::connect("[::1]:10260").await;
            scheduler.is_ok() && TcpStream::connect("[::1]:10262").await.is_ok()
        })
        .await;
        let (methods, callers) = (methods(), callers(&control).await);
        let mut wrong = Vec::new();
        for part in rows().chunks(4) {
            let found = part.iter().map(async |row| {
                let method = methods.iter().find(|one| one.full_name() == row.method);
                (row, allowed(row, method.unwrap(), &callers).await)
            });
            let found = join_all(found).await.into_iter();
            let found = found.filter(|(row, found)| row.allowed != *found);
            wrong.extend(
                found.map(|(row, found)| format!("{} | {found}, not {}", row.method, row.allowed)),
            );
        }
        assert_eq!(wrong.join("\n"), "");
    });
}
