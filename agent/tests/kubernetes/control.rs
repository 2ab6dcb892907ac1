//! `dormouse up` on the test's node, and changes of the objects at its API.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dormouse_rig::{Agent, Node, binaries, wait};
use serde_json::{Value, json};

/// Where the API listens.
pub(crate) const API: &str = "[::1]:6443";

/// A server that can be killed and started again.
pub(crate) struct Control {
    folder: PathBuf,
    process: Option<Agent>,
}

impl Control {
    /// Starts it, and waits until it serves.
    pub(crate) fn start(node: &Node) -> Self {
        let folder = node.dir().join("control");
        fs::create_dir_all(&folder).unwrap();
        let mut control = Self {
            folder,
            process: None,
        };
        control.revive();
        control
    }

    /// Starts it again after [`Control::crash`], with its objects.
    pub(crate) fn revive(&mut self) {
        let log = self.folder.join("log");
        let log = File::options().create(true).append(true).open(log);
        let mut command = Command::new(binaries::control());
        command
            .args(["up", "--address", "::1"])
            .args(["--acting-prefix", "2001:db8:d0:0:0:a1::/96", "--data-dir"])
            .arg(self.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        let process = self.process.insert(Agent::start(&mut command));
        wait("the API to serve", || {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap();
            assert_eq!(process.ended(), None, "{}", log());
            send("GET", "/api/v1", &Value::Null).is_ok_and(|status| status == 200)
        });
    }

    /// Kills it.
    pub(crate) fn crash(&mut self) {
        drop(self.process.take());
    }
}

/// Sets a Service with these backends. A server that is away, or dies meanwhile, is asked again.
pub(crate) fn put(number: u16, hosts: &[u16]) {
    let namespace = "/namespaces/shop";
    let services = format!("/api/v1{namespace}/services");
    let slices = format!("/apis/discovery.k8s.io/v1{namespace}/endpointslices");
    for (path, object) in [
        (services, crate::service(number)),
        (slices, crate::slice(number, hosts)),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        until_done(&path, || match send("POST", &path, &object)? {
            409 => send("PUT", &format!("{path}/{name}"), &object),
            status => Ok(status),
        });
    }
}

/// Deletes a Service and its slice.
pub(crate) fn delete(number: u16) {
    for path in [
        format!("/api/v1/namespaces/shop/services/s{number}"),
        format!("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/s{number}-a"),
    ] {
        // It may have been deleted by a request whose answer was lost.
        until_done(&path, || match send("DELETE", &path, &Value::Null)? {
            404 => Ok(200),
            status => Ok(status),
        });
    }
}

fn until_done(what: &str, attempt: impl Fn() -> io::Result<u16>) {
    wait(what, || match attempt() {
        Ok(200 | 201) => true,
        // Away, or not ready yet; a POST whose answer was lost, and then a PUT of another's.
        Ok(404 | 409 | 429 | 500..) | Err(_) => false,
        Ok(status) => panic!("{what}: {status}"),
    });
}

/// Sends a request; returns the status of the response.
fn send(method: &str, path: &str, object: &Value) -> io::Result<u16> {
    let body = match object {
        Value::Null => json!({}).to_string(),
        object => object.to_string(),
    };
    let mut stream = TcpStream::connect(API)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: api\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let head = String::from_utf8_lossy(&response);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
