//! A node's metrics about wiring pods, with the real agent and the real plugin.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;

use dormouse_rig::netns::links;
use dormouse_rig::{Agent, Call, Netns, Node, on_node, wait};

const METRICS: &str = "[::1]:10249";

fn start(node: &Node) -> Agent {
    let mut command = node.home().run();
    let agent = Agent::serving(command.args(["--metrics", METRICS]), &node.home().socket());
    wait("the metrics", || TcpStream::connect(METRICS).is_ok());
    agent
}

/// Calls the plugin as a container runtime does.
fn call(node: &Node, command: &str, pod: &Netns) {
    let home = node.home();
    let call = Call::new(command, Call::network(&home.socket(), &home.state_dir()));
    call.attachment(pod.name(), pod.path()).succeeds();
}

fn scrape() -> String {
    let mut stream = TcpStream::connect(METRICS).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a series; 0 where there is none.
fn series(name: &str) -> f64 {
    let text = scrape();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// The same of one that counts.
fn count(name: &str) -> i64 {
    format!("{:.0}", series(name)).parse().unwrap()
}

fn stage(command: &str, stage: &str) -> String {
    format!(r#"dormouse_cni_stage_duration_seconds_count{{command="{command}",stage="{stage}"}}"#)
}

fn pool(state: &str) -> String {
    format!(r#"dormouse_address_pool{{state="{state}"}}"#)
}

#[test]
fn adds_deletes_the_pool_and_reclaimed_addresses_are_counted() {
    on_node(|node| {
        node.take_address();
        let agent = start(node);
        let free = count(&pool("free"));
        let (a, b) = (node.pod("a"), node.pod("b"));
        call(node, "ADD", &a);
        call(node, "ADD", &b);
        for part in ["journal", "host", "inside", "datapath"] {
            assert_eq!(count(&stage("ADD", part)), 2, "{part}");
        }
        let sum = r#"dormouse_cni_stage_duration_seconds_sum{command="ADD",stage="host"}"#;
        assert!(series(sum) > 0.0);
        call(node, "DEL", &a);
        for part in ["journal", "host", "datapath"] {
            assert_eq!(count(&stage("DEL", part)), 1, "{part}");
        }
        let states = ["leased", "quarantined", "free"].map(|state| count(&pool(state)));
        assert_eq!(states, [1, 1, free - 2]);

        let repaired = r#"dormouse_addresses_reclaimed_total{what="lease"}"#;
        assert_eq!(count(repaired), 0);
        agent.kill();
        drop(b);
        wait("the pod's link to go", || {
            let links = links().unwrap();
            !links.iter().any(|name| name.starts_with("dm0"))
        });
        let _agent = start(node);
        assert_eq!(count(repaired), 1);
        assert_eq!(count(&pool("leased")), 0);
    });
}
