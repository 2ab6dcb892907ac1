//! Real connections of a client through the node, with bodies in large segments, with and without checksum offload.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv6Addr;
use std::process::{Child, Command, Stdio};

use super::place::{
    ACTING_FOR_VIP, CLIENT, CONTROL, NODE, POD, VIP, ip, serving, sleeping, with_place,
};

/// Answers one connection with what it got, and says first that it listens.
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
/// ETHTOOL_STXCSUM: who sends on this interface computes checksums himself.
const NO_OFFLOAD: &str = "
import array, fcntl, socket, struct, sys
off = array.array('B', struct.pack('II', 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack('16sP', sys.argv[1].encode(), off.buffer_info()[0]))
";

fn no_offload(mut python: Command) {
    assert!(python.status().unwrap().success(), "checksums in software");
}

/// A named network namespace; gone when dropped.
struct Host(String);

impl Host {
    fn new(name: String) -> Self {
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        Self(name)
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.0));
    }

    fn python(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, "python3", "-c", program]);
        command.args(arguments);
        command
    }

    fn serve(&self, address: &str, port: &str) -> Child {
        let mut server = self
            .python(SERVER, &[address, port])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        server
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// The client's host, where the activator is too, on the other end of the uplink; and a pod.
fn wire(name: &str) -> (Host, Host) {
    let outside = Host::new(format!("{name}-out"));
    ip(&format!("link set peer0 netns {}", outside.0));
    outside.ip("link set peer0 up");
    for address in [CLIENT, CONTROL] {
        outside.ip(&format!("addr add {address}/64 dev peer0 nodad"));
    }
    outside.ip(&format!("addr add {ACTING_FOR_VIP}/128 dev lo nodad"));
    outside.ip(&format!("route add fd00:10::/108 via {NODE}"));
    ip(&format!("addr add {NODE}/64 dev up0 nodad"));
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();

    let pod = Host::new(format!("{name}-pod"));
    ip(&format!(
        "link add pod0 type veth peer name eth0 netns {}",
        pod.0
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
fn exchange(outside: &Host, host: &Host, address: Ipv6Addr, port: &str) {
    let mut server = host.serve(&address.to_string(), port);
    let asked = outside.python(ASKER, &[&VIP.to_string()]).status();
    let _ = server.kill();
    let _ = server.wait();
    assert!(asked.unwrap().success(), "a body through {address}");
}

/// A place whose interfaces outside, or whose own, compute checksums themselves: before or after packets are changed.
fn large_bodies(pick: impl FnOnce(&Host, &Host) + Send + 'static) {
    with_place(|place| {
        let name = place.config.cgroup.file_name().unwrap().to_string_lossy();
        let (outside, pod) = wire(&name);
        pick(&outside, &pod);
        let datapath = place.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        exchange(&outside, &pod, POD, "8000");
        datapath.apps.publish(&sleeping()).unwrap();
        exchange(&outside, &outside, ACTING_FOR_VIP, "80");
    });
}

#[test]
fn large_bodies_go_both_ways_when_nobody_computes_checksums() {
    large_bodies(|_outside, _pod| {});
}

#[test]
fn large_bodies_go_both_ways_when_the_ends_compute_checksums() {
    large_bodies(|outside, pod| {
        no_offload(outside.python(NO_OFFLOAD, &["peer0"]));
        no_offload(pod.python(NO_OFFLOAD, &["eth0"]));
    });
}

#[test]
fn large_bodies_go_both_ways_when_the_node_computes_checksums() {
    large_bodies(|_outside, _pod| {
        for interface in ["up0", "pod0"] {
            let mut python = Command::new("python3");
            python.args(["-c", NO_OFFLOAD, interface]);
            no_offload(python);
        }
    });
}
