//! The agent: its start beside a server, its log and its metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use dormouse_rig::{Agent, Node, on_node, wait};

use crate::server::Server;

const METRICS: &str = "[::1]:10249";

/// Runs a test on a node of its own, with its address and this server.
pub(crate) fn with_server(
    server: impl FnOnce() -> Server + Send + 'static,
    test: impl FnOnce(&Node, &Server) + Send + 'static,
) {
    on_node(|node| {
        node.take_address();
        test(node, &server());
    });
}

/// Starts the agent, and returns when it serves.
pub(crate) fn start(node: &Node, urls: &str) -> Agent {
    start_with(node, urls, &[])
}

/// The same with more flags.
pub(crate) fn start_with(node: &Node, urls: &str, more: &[&str]) -> Agent {
    start_command(node, node.home().run(), urls, more)
}

/// The same with the flags of this command.
pub(crate) fn start_command(node: &Node, mut command: Command, urls: &str, more: &[&str]) -> Agent {
    command
        .args(more)
        .args(["--api-server", urls, "--service-range", "fd00:20::/112"])
        .args(["--health", "[::1]:0", "--metrics", METRICS])
        .stderr(fs::File::create(log(node)).unwrap());
    Agent::serving(&mut command, &node.home().socket())
}

/// The log of the agent that was started last.
pub(crate) fn log(node: &Node) -> PathBuf {
    node.dir().join("log")
}

/// Waits until the log has this text.
pub(crate) fn wait_for_log(node: &Node, text: &str) {
    wait(text, || {
        fs::read_to_string(log(node)).unwrap().contains(text)
    });
}

/// The agent's answer to a request for this path.
pub(crate) fn get(path: &str) -> String {
    let mut stream = TcpStream::connect(METRICS).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A metric that counts; 0 where there is none.
pub(crate) fn metric(name: &str) -> u64 {
    let text = get("/metrics");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}
