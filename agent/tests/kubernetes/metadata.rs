//! The prefix that a machine's metadata service names, where the network assigns one and the Node object has none: AWS, whose service
//! a thread plays.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dormouse_rig::address::NODE;
use dormouse_rig::plugin::address_of;
use dormouse_rig::{UPLINK, ip, wait};

use crate::own_node::{assert_waits, call, is_ready, object, start};
use crate::server::{NODES, Server};
use crate::with_server;

const SERVICE: &str = "169.254.169.254";
const MAC: &str = "02:00:00:00:00:aa";
const TOKEN: &str = "a-token";

/// The service, while it lives.
struct Metadata {
    prefix: Arc<Mutex<Option<&'static str>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metadata {
    /// Starts it in the calling thread's namespace; no prefix is assigned yet.
    fn start() -> Self {
        let listener = TcpListener::bind((SERVICE, 80)).unwrap();
        let prefix: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let (assigned, ends) = (Arc::clone(&prefix), Arc::clone(&over));
        let serve = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                answer(&stream.unwrap(), *assigned.lock().unwrap());
            }
        };
        Self {
            prefix,
            over,
            thread: Some(std::thread::spawn(serve)),
        }
    }

    fn assign(&self, prefix: &'static str) {
        *self.prefix.lock().unwrap() = Some(prefix);
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((SERVICE, 80));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// As IMDSv2: nothing without a token, 404 for what is not assigned.
fn answer(mut stream: &TcpStream, prefix: Option<&str>) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let asks = |line: &str| head.iter().any(|known| known == line);
    let path = format!("/latest/meta-data/network/interfaces/macs/{MAC}/ipv6-prefix");
    let (status, body) = if asks("PUT /latest/api/token HTTP/1.1") {
        ("200 OK", TOKEN)
    } else if !asks(&format!("X-aws-ec2-metadata-token: {TOKEN}")) {
        ("401 Unauthorized", "")
    } else if asks(&format!("GET {path} HTTP/1.1")) {
        prefix.map_or(("404 Not Found", "no such thing"), |prefix| {
            ("200 OK", prefix)
        })
    } else {
        ("404 Not Found", "")
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

#[test]
fn at_aws_the_prefix_of_the_uplink_is_read_from_the_machines_metadata() {
    with_server(Server::streaming, |node, server| {
        ip(&format!("address add {SERVICE}/32 dev lo"));
        ip(&format!("link set {UPLINK} address {MAC}"));
        let own = NODE.to_string();
        server.put(NODES, object(node, &[], &[&own]));
        let agent = start(node, server, "aws", &[]);
        assert_waits(node, "the metadata service names no IPv6 prefix");
        let metadata = Metadata::start();
        server.put(NODES, object(node, &[], &[&own]));
        assert_waits(node, "the metadata service names no IPv6 prefix");
        metadata.assign("2001:db8:d0:0:7::/80\n");
        // The range of the object is that of the other family.
        server.put(NODES, object(node, &["10.244.7.0/24"], &[&own]));
        wait("the node to be ready", is_ready);
        let pod = node.pod("p1");
        let added = call(node, "ADD").attachment("p1", pod.path()).succeeds();
        let address = address_of(&added).to_string();
        assert!(address.starts_with("2001:db8:d0:0:7:"), "{address}");
        assert!(added.to_string().contains("10.244.7."), "{added}");

        // The next agent starts with a copy, as of what the object says.
        agent.kill();
        drop(metadata);
        let _agent = start(node, server, "aws", &[]);
        wait("the next agent to be ready", is_ready);
    });
}
