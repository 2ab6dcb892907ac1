//! The XDP program in the drivers of two nodes on one cable: a veth takes the answers of its peer's program only if it has a program itself.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use dormouse_rig::{dial, wait};

use crate::node::{Flags, Node, UPLINK};
use crate::{NODE, NODE_MAC, host};

const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xb);
const PEER_MAC: &str = "02:00:00:00:00:0b";
/// Answers that the agent has to be away for, and back.
const ANSWERS: u64 = 200;

/// Two nodes whose agents want the program in the driver.
fn pair() -> [Node; 2] {
    let (first, second) = (host("node"), host("node"));
    first.cable((UPLINK, NODE_MAC), &second, (UPLINK, PEER_MAC));
    let of = |netns: dormouse_rig::Netns, address: Ipv6Addr, prefix| {
        netns.ip(&format!("address add {address}/64 dev {UPLINK} nodad"));
        let flags = Flags {
            profile: "on-link",
            prefix,
            address,
        };
        let mut node = Node::new(netns, flags).also(&["--xdp", "native"]);
        node.start();
        node
    };
    [
        of(first, NODE, "2001:db8:d0::1:0:0/96"),
        of(second, PEER, "2001:db8:d0::2:0:0/96"),
    ]
}

/// A counter of the uplink's driver.
fn counted(node: &Node, name: &str) -> u64 {
    let counters = node.netns.run("ethtool", &format!("-S {UPLINK}"));
    let lines = counters.lines().filter(|line| line.contains(name));
    let counts = lines.filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok());
    counts.sum()
}

#[test]
fn drivers_answer_for_pods_and_pass_what_is_for_them() {
    let nodes = pair();
    let [a, b] = [&nodes[0], &nodes[1]];
    let (first, second) = (a.add("a"), b.add("b"));
    for (from, to) in [(&first, &second), (&second, &first)] {
        assert_eq!(
            dial(&from.netns, &to.netns, to.address).unwrap(),
            from.address
        );
    }
    for (node, other, pod) in [(a, NODE_MAC, &first), (b, PEER_MAC, &second)] {
        assert!(counted(node, "xdp_tx:") > 0, "a solicitation is answered");
        let neighbor = if node.netns.name() == a.netns.name() {
            b
        } else {
            a
        };
        assert_eq!(neighbor.netns.neighbor(pod.address).as_deref(), Some(other));
    }
    let dropped = counted(b, "xdp_drops:");
    // A pod of the second node that the first one claims to have.
    a.netns
        .ip(&format!("address add {}/128 dev lo nodad", second.address));
    let forged = a.netns.send(second.address, (PEER, 9).into());
    forged.unwrap();
    wait("the driver to drop it", || {
        counted(b, "xdp_drops:") > dropped
    });
}

#[test]
fn connections_go_on_while_an_agent_is_killed_and_the_next_replaces_its_program() {
    let [mut a, b] = pair();
    let (first, second) = (a.add("a"), b.add("b"));
    let listener = second
        .netns
        .inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 7)));
    let mut client = first
        .netns
        .inside(|| TcpStream::connect((second.address, 7)));
    let (mut server, _) = listener.accept().unwrap();
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut word = [0; 8];
            while server.read_exact(&mut word).is_ok() {
                server.write_all(&word).unwrap();
            }
        });
        let asking = scope.spawn(|| {
            let mut word = [7; 8];
            while !is_over.load(Ordering::Relaxed) {
                client.write_all(&word)?;
                client.read_exact(&mut word)?;
                answers.fetch_add(1, Ordering::Relaxed);
            }
            client.shutdown(std::net::Shutdown::Both)
        });
        for _ in 0..3 {
            let more = |count: u64| {
                let goal = answers.load(Ordering::Relaxed) + count;
                wait("answers", || {
                    answers.load(Ordering::Relaxed) > goal || asking.is_finished()
                });
            };
            more(ANSWERS);
            a.kill();
            more(ANSWERS);
            a.start();
        }
        is_over.store(true, Ordering::Relaxed);
        asking.join().unwrap().expect("no question was lost");
    });
    let program = a.netns.ip(&format!("link show dev {UPLINK}"));
    assert!(program.contains("prog/xdp"), "{program}");
}
