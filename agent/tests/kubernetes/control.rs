//! `dormouse up` on the test's node, and changes of the objects at its API.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_rig::{Agent, Node, binaries, ip, wait};
use serde_json::Value;

use crate::{service, slice};

/// Where the API listens.
pub(crate) const API: &str = "[::1]:6443";

const ACTING_PREFIX: &str = "2001:db8:d0:0:0:a1::/96";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
/// Longest time of an answer: a server that is killed does not answer at all.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A server that can be killed and started again.
pub(crate) struct Control {
    folder: PathBuf,
    process: Option<Agent>,
}

impl Control {
    /// Starts it, and waits until it serves.
    pub(crate) fn start(node: &Node) -> Self {
        ip(&format!("-6 route add local {ACTING_PREFIX} dev lo"));
        let folder = node.dir().join("control");
        fs::create_dir_all(&folder).unwrap();
        let mut control = Self {
            folder,
            process: None,
        };
        control.revive();
        control
    }

    /// The API's URL.
    pub(crate) fn url() -> String {
        format!("http://{API}")
    }

    /// Starts it again after [`Control::crash`], with its objects.
    pub(crate) fn revive(&mut self) {
        let path = self.folder.join("log");
        let log = File::options().create(true).append(true).open(&path);
        let mut command = Command::new(binaries::control());
        command
            .args(["up", "--insecure", "--acting-prefix", ACTING_PREFIX])
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        let process = self.process.insert(Agent::start(&mut command));
        wait("the API to serve", || {
            let log = || fs::read_to_string(&path).unwrap();
            assert_eq!(process.ended(), None, "{}", log());
            send("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200)
        });
    }

    /// Kills it.
    pub(crate) fn crash(&mut self) {
        drop(self.process.take());
    }
}

/// Sets a Service with these backends.
pub(crate) fn put(number: u16, hosts: &[u16]) {
    set(SERVICES, &service(number));
    put_slice(number, hosts);
}

/// Sets the backends of a Service.
pub(crate) fn put_slice(number: u16, hosts: &[u16]) {
    set(SLICES, &slice(number, hosts));
}

/// Deletes a Service and its slice.
pub(crate) fn delete(number: u16) {
    for path in [
        format!("{SERVICES}/s{number}"),
        format!("{SLICES}/s{number}-a"),
    ] {
        // A request whose answer was lost may have deleted it.
        until_done(&path, || match send("DELETE", &path, None)? {
            (404, text) => Ok((200, text)),
            answer => Ok(answer),
        });
    }
}

/// Replaces an object, or creates it.
fn set(kind: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let path = format!("{kind}/{name}");
    until_done(&path, || match send("PUT", &path, Some(object))? {
        (404, _) => send("POST", kind, Some(object)),
        answer => Ok(answer),
    });
}

/// Repeats a write while the server is away, dies meanwhile, or is not ready yet.
fn until_done(path: &str, attempt: impl Fn() -> io::Result<(u16, String)>) {
    wait(path, || match attempt() {
        Ok((200 | 201, _)) => true,
        Ok((429 | 500.., _)) | Err(_) => false,
        Ok((status, text)) => panic!("{path}: {status}: {text}"),
    });
}

/// Sends a request; returns the status of the response, and the response.
fn send(method: &str, path: &str, object: Option<&Value>) -> io::Result<(u16, String)> {
    let body = object.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(API)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).map(str::parse);
    match status {
        Some(Ok(status)) => Ok((status, response)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
