//! Real connections of a client through the node, with bodies in large segments, with and without checksum offload.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv6Addr;
use std::process::{Child, Command, Stdio};

use dormouse_rig::address::{CLIENT, CONTROL, NODE, POD};
use dormouse_rig::{FAR_END, Netns, UPLINK, ip};

use super::node::{ACTING_FOR_VIP, VIP, serving, sleeping, with_node};

/// Echoes one connection; writes first that it listens.
const SERVER: &str = "
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6)
print('listening', flush=True)
c, _ = s.accept()
got = b''.join(iter(lambda: c.recv(1 << 20), b''))
c.sendall(got)
";
/// Sends a body to a VIP; fails unless the same comes back.
const ASKER: &str = "
import os, socket, sys
sent = os.urandom(8 << 20)
c = socket.create_connection((sys.argv[1], 80), timeout=10)
c.sendall(sent)
c.shutdown(socket.SHUT_WR)
got = b''.join(iter(lambda: c.recv(1 << 20), b''))
sys.exit(got != sent)
";
/// ETHTOOL_STXCSUM: the sender's kernel computes checksums, not the interface.
const NO_OFFLOAD: &str = "
import array, fcntl, socket, struct, sys
off = array.array('B', struct.pack('II', 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack('16sP', sys.argv[1].encode(), off.buffer_info()[0]))
";

/// A Python program, to be started inside a namespace.
fn python(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]).args(arguments);
    command
}

/// Has what is sent on an interface of the calling thread's namespace carry whole checksums.
fn no_offload(interface: &str) {
    let done = python(NO_OFFLOAD, &[interface]).status();
    assert!(done.unwrap().success(), "checksums in software");
}

fn serve(host: &Netns, address: &str, port: &str) -> Child {
    let mut command = python(SERVER, &[address, port]);
    let mut server = host.inside(|| command.stdout(Stdio::piped()).spawn());
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    server
}

/// The client's host, where the activator is too, on the other end of the uplink; and a pod.
fn wire() -> (Netns, Netns) {
    let outside = Netns::new("out");
    outside.ip("link set lo up");
    ip(&format!("link set {FAR_END} netns {}", outside.name()));
    outside.ip(&format!("link set {FAR_END} up"));
    for address in [CLIENT, CONTROL] {
        outside.ip(&format!("addr add {address}/64 dev {FAR_END} nodad"));
    }
    outside.ip(&format!("addr add {ACTING_FOR_VIP}/128 dev lo nodad"));
    outside.ip(&format!("route add fd00:10::/108 via {NODE}"));
    ip(&format!("addr add {NODE}/64 dev {UPLINK} nodad"));
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();

    let pod = Netns::new("pod");
    pod.ip("link set lo up");
    ip(&format!(
        "link add pod0 type veth peer name eth0 netns {}",
        pod.name()
    ));
    ip("addr add fe80::1/64 dev pod0 nodad");
    ip("link set pod0 up");
    pod.ip("link set eth0 up");
    pod.ip(&format!("addr add {POD}/128 dev eth0 nodad"));
    pod.ip("route add fe80::1/128 dev eth0");
    pod.ip("route add default via fe80::1 dev eth0");
    ip(&format!("route add {POD}/128 dev pod0"));
    (outside, pod)
}

/// Sends a large body through the VIP to a server on `host`, and compares what comes back.
fn exchange(outside: &Netns, host: &Netns, address: Ipv6Addr, port: &str) {
    let mut server = serve(host, &address.to_string(), port);
    let mut client = python(ASKER, &[&VIP.to_string()]);
    let asked = outside.enter(|| client.status());
    let _ = server.kill();
    let _ = server.wait();
    assert!(asked.unwrap().success(), "a body through {address}");
}

/// A node of which `pick` has some interfaces compute checksums: before or after packets are changed.
fn large_bodies(pick: impl FnOnce(&Netns, &Netns) + Send + 'static) {
    with_node(|node| {
        let (outside, pod) = wire();
        pick(&outside, &pod);
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        exchange(&outside, &pod, POD, "8000");
        datapath.apps.publish(&sleeping()).unwrap();
        exchange(&outside, &outside, ACTING_FOR_VIP, "80");
    });
}

#[test]
fn large_bodies_go_both_ways_when_checksums_are_offloaded() {
    large_bodies(|_outside, _pod| {});
}

#[test]
fn large_bodies_go_both_ways_when_the_ends_compute_checksums() {
    large_bodies(|outside, pod| {
        outside.enter(|| no_offload(FAR_END));
        pod.enter(|| no_offload("eth0"));
    });
}

#[test]
fn large_bodies_go_both_ways_when_the_node_computes_checksums() {
    large_bodies(|_outside, _pod| {
        for interface in [UPLINK, "pod0"] {
            no_offload(interface);
        }
    });
}
