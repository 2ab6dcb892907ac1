//! Services from a Kubernetes API server, with the real agent: the server changes objects, forgets events, breaks off in the
//! middle of a line, goes away, and comes back from a backup.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; what is skipped is printed"
)]

mod admission;
mod bad_input;
mod credentials;
mod kube_apiserver;
mod own_node;
mod rights;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use dormouse_agent_datapath::Pinned;
use dormouse_rig::{Agent, Node, on_node, wait};
use serde_json::{Value, json};

use server::{SERVICES, SLICES, Server};

/// The backends in the kernel's maps, by frontend.
type Programmed = BTreeMap<(IpAddr, u16, u8), Vec<(IpAddr, u16)>>;

const TCP: u8 = 6;
const METRICS: &str = "[::1]:10249";

/// Everything that the maps of this node hold about Services; nothing before an agent has created them.
fn programmed(node: &Node) -> Programmed {
    let Ok(pinned) = Pinned::open(node.bpffs()) else {
        return Programmed::new();
    };
    let places = pinned.frontends().unwrap();
    let entries = pinned.followed().filter_map(|(slot, _, set)| {
        let place = pinned.own_frontend(slot).or(places.get(&slot).copied())?;
        let mut backends: Vec<_> = pinned.backends(set).collect();
        backends.sort_unstable();
        Some(((place.address, place.port, place.protocol), backends))
    });
    entries.collect()
}

/// Waits until this frontend has backends with these last parts of the address.
fn wait_for(node: &Node, service: u16, hosts: &[u16]) {
    let mut wanted: Vec<_> = hosts.iter().map(|host| (backend(*host), 8_080)).collect();
    wanted.sort_unstable();
    let frontend = (vip(service), 80, TCP);
    wait(&format!("service {service} to have {hosts:?}"), || {
        programmed(node).get(&frontend) == Some(&wanted)
    });
}

fn wait_for_absence(node: &Node, service: u16) {
    wait(&format!("service {service} to be gone"), || {
        !programmed(node).contains_key(&(vip(service), 80, TCP))
    });
}

fn vip(service: u16) -> IpAddr {
    format!("fd00:20::{service}").parse().unwrap()
}

fn backend(host: u16) -> IpAddr {
    format!("2001:db8:77::{host}").parse().unwrap()
}

fn service(number: u16) -> Value {
    let ip = vip(number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": format!("s{number}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv6"],
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    })
}

fn slice(number: u16, hosts: &[u16]) -> Value {
    let endpoints: Vec<_> = hosts
        .iter()
        .map(|host| json!({"addresses": [backend(*host)], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "namespace": "shop", "name": format!("s{number}-a"),
            "labels": {"kubernetes.io/service-name": format!("s{number}")},
        },
        "ports": [{"name": "p", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}

/// Sets a service with these backends.
fn put(server: &Server, number: u16, hosts: &[u16]) {
    server.put(SERVICES, service(number));
    server.put(SLICES, slice(number, hosts));
}

fn delete(server: &Server, number: u16) {
    server.delete(SERVICES, &format!("s{number}"));
    server.delete(SLICES, &format!("s{number}-a"));
}

/// Starts the agent, and returns when it serves.
fn start(node: &Node, urls: &str, log: &Path) -> Agent {
    start_with(node, urls, log, &[])
}

/// The same with more flags.
fn start_with(node: &Node, urls: &str, log: &Path, more: &[&str]) -> Agent {
    start_command(node, node.home().run(), urls, log, more)
}

/// The same with the flags of this command.
fn start_command(
    node: &Node,
    mut command: Command,
    urls: &str,
    log: &Path,
    more: &[&str],
) -> Agent {
    command
        .args(more)
        .args(["--api-server", urls, "--service-range", "fd00:20::/112"])
        .args(["--health", "[::1]:0", "--metrics", METRICS])
        .stderr(fs::File::create(log).unwrap());
    Agent::serving(&mut command, &node.home().socket())
}

fn wait_for_log(log: &Path, text: &str) {
    wait(text, || fs::read_to_string(log).unwrap().contains(text));
}

/// What the agent answers to a request for this path.
fn get(path: &str) -> String {
    let mut stream = TcpStream::connect(METRICS).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A metric that counts; 0 where there is none.
fn metric(name: &str) -> u64 {
    let text = get("/metrics");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

/// The agent follows the server through everything that it does; its maps are then those of an agent that starts afresh.
fn follows(streams: bool) {
    on_node(move |node| {
        node.take_address();
        let server = Server::start(streams);
        for number in 1..=7 {
            put(&server, number, &[number, 100 + number]);
        }
        let log = node.dir().join("log");
        // The first server of the two is not there.
        let agent = start(node, &format!("http://[::1]:1,{}", server.url()), &log);
        wait_for(node, 7, &[7, 107]);

        put(&server, 1, &[1, 101, 201]);
        wait_for(node, 1, &[1, 101, 201]);
        put(&server, 8, &[8]);
        delete(&server, 2);
        wait_for(node, 8, &[8]);
        wait_for_absence(node, 2);

        // The server breaks off in the middle of a line; what it did not send whole comes with the next watch.
        server.break_off(SLICES, slice(3, &[33]));
        wait_for(node, 3, &[33]);

        // Away: nothing changes.
        server.go_away();
        put(&server, 4, &[44]);
        delete(&server, 5);
        wait_for_log(&log, "cannot be followed");
        wait_for(node, 4, &[4, 104]);
        wait_for(node, 5, &[5, 105]);
        // Back, without a memory: each watch gets 410.
        server.come_back();
        wait_for(node, 4, &[44]);
        wait_for_absence(node, 5);

        // Restored from a backup: its versions are lower, and it has other objects.
        server.restore(|server| {
            put(server, 6, &[66]);
            delete(server, 7);
        });
        wait_for(node, 6, &[66]);
        wait_for_absence(node, 7);

        for reason in ["start", "expired", "reset"] {
            let name =
                format!("dormouse_kubernetes_lists_total{{kind=\"Service\",reason=\"{reason}\"}}");
            assert!(metric(&name) >= 1, "{reason}");
        }
        let watch = r#"dormouse_kubernetes_connected{kind="EndpointSlice"}"#;
        wait("the watch to be open", || metric(watch) == 1);

        let followed = programmed(node);
        agent.kill();
        node.home().detach();
        let _agent = start(node, &server.url(), &log);
        wait_for(node, 6, &[66]);
        assert_eq!(followed, programmed(node));
        assert_eq!(followed.len(), 5, "{followed:?}");
    });
}

#[test]
fn an_agent_that_followed_has_the_maps_of_one_that_starts_afresh_with_streaming_lists() {
    follows(true);
}

#[test]
fn an_agent_that_followed_has_the_maps_of_one_that_starts_afresh_with_paged_lists() {
    follows(false);
}

#[test]
fn a_new_agent_removes_nothing_before_all_lists_are_complete() {
    on_node(|node| {
        node.take_address();
        let server = Server::start(true);
        put(&server, 1, &[1]);
        put(&server, 2, &[2]);
        let log = node.dir().join("log");
        let agent = start(node, &server.url(), &log);
        wait_for(node, 2, &[2]);
        let before = programmed(node);
        agent.kill();
        server.go_away();
        delete(&server, 2);
        let _agent = start(node, &server.url(), &log);
        wait_for_log(&log, "cannot be followed");
        assert_eq!(programmed(node), before);
        server.come_back();
        wait_for_absence(node, 2);
        wait_for(node, 1, &[1]);
    });
}
