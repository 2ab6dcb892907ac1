//! The load of backends: flows and sockets begun and ended, each counted once.

use std::net::{SocketAddr, UdpSocket};

use dormouse_agent_datapath::{BackendCount, Datapath, Hook};
use dormouse_agent_inspect::frame::Opening;
use dormouse_ebpf::packet::UDP;

use dormouse_rig::address::{CLIENT, FAR_POD, POD};
use dormouse_rig::frame::{ACK, FIN, RST, SYN, tcp};
use dormouse_rig::ip;

use super::node::{VIP, VIP_INDEX, serving, with_node};
use super::{HERE, THERE, arrive, in_pod};

fn backend(datapath: &Datapath) -> BackendCount {
    let counts = datapath.backend_counts(VIP_INDEX);
    assert_eq!(counts.len(), 1);
    counts[0]
}

/// Flows of the VIP's only backend: begun, open.
fn flows(datapath: &Datapath) -> (u32, u32) {
    let load = backend(datapath).load;
    assert_eq!(load.sockets.begun, 0);
    (load.flows.begun, load.flows.open())
}

/// Connections of sockets to it: begun, open.
fn sockets(datapath: &Datapath) -> (u32, u32) {
    let load = backend(datapath).load;
    assert_eq!(load.flows.begun, 0);
    (load.sockets.begun, load.sockets.open())
}

#[test]
fn a_flow_begins_once_and_ends_once() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        assert_eq!(flows(&datapath), (0, 0));
        let second = (CLIENT, 40_001);
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        arrive(&datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(flows(&datapath), (1, 1), "asked twice");
        arrive(&datapath, &tcp(second, THERE, SYN));
        assert_eq!(flows(&datapath), (2, 2));
        arrive(&datapath, &tcp(HERE, THERE, FIN));
        arrive(&datapath, &tcp(HERE, THERE, RST));
        let reply = |to, flags| {
            let frame = tcp((POD, 8000), to, flags);
            datapath.programs.run(Hook::UplinkOut, &frame).unwrap();
        };
        reply(HERE, FIN);
        assert_eq!(flows(&datapath), (2, 1), "ended by both sides");
        reply(second, RST);
        assert_eq!(flows(&datapath), (2, 0));
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(flows(&datapath), (3, 1), "the same ends again");
        arrive(&datapath, &tcp((CLIENT, 40_002), THERE, ACK));
        assert_eq!(flows(&datapath), (4, 2), "begun before this agent");
        arrive(&datapath, &tcp((CLIENT, 40_003), THERE, RST));
        assert_eq!(flows(&datapath), (4, 2), "an end alone begins nothing");
    });
}

#[test]
fn datagrams_are_a_flow_until_they_fall_silent() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let datagram = |port: u16| {
            Opening {
                source: SocketAddr::from((CLIENT, port)),
                target: SocketAddr::from((VIP, 80)),
                protocol: UDP,
            }
            .frame()
        };
        for port in [40_000, 40_001, 40_000, 40_001, 40_000] {
            arrive(&datapath, &datagram(port));
        }
        assert_eq!(flows(&datapath), (2, 2));
        datapath.apps.expire_idle(u64::MAX / 2, 0).unwrap();
        assert_eq!(flows(&datapath), (2, 0));
    });
}

#[test]
fn a_flow_to_a_backend_of_another_node_is_counted_there() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[FAR_POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(flows(&datapath), (0, 0));
    });
}

#[test]
fn the_next_backend_of_an_id_begins_at_zero_and_ends_nothing_of_the_former_one() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        arrive(&datapath, &tcp((CLIENT, 40_001), THERE, SYN));
        let former = backend(&datapath);
        assert_eq!(former.load.flows.open(), 2);
        datapath.apps.publish(&serving(&[])).unwrap();
        assert_eq!(datapath.backend_counts(VIP_INDEX), []);
        // Ids go round: only another agent begins at the first one again.
        drop(datapath);
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        assert_eq!(backend(&datapath).id, former.id);
        assert_eq!(flows(&datapath), (0, 0));
        arrive(&datapath, &tcp((CLIENT, 40_002), THERE, SYN));
        arrive(&datapath, &tcp(HERE, THERE, FIN));
        assert_eq!(flows(&datapath), (1, 1), "a flow of the former backend");
        datapath.apps.expire_idle(u64::MAX / 2, 0).unwrap();
        assert_eq!(flows(&datapath), (1, 0), "swept are those of both");
    });
}

#[test]
fn the_next_agent_goes_on_counting() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        drop(datapath);
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        assert_eq!(flows(&datapath), (1, 1));
        arrive(&datapath, &tcp(HERE, THERE, FIN));
        assert_eq!(flows(&datapath), (1, 0));
    });
}

#[test]
fn sockets_are_counted_until_they_end_or_are_connected_elsewhere() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let server = UdpSocket::bind((POD, 8000)).unwrap();
        let mut pod = in_pod(
            node,
            &format!(
                "
import socket, sys
def wait(): sys.stdin.readline()
made = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in range(5)]
for s in made: s.connect(('fd00:10::7', 80))
made[0].send(b'5')
wait(); made[1].close(); made[2].connect(('{POD}', 8000)); made[0].send(b'3')
wait(); made[3].connect(('fd00:10::7', 80)); made[0].send(b'again')
wait()
"
            ),
        );
        let mut on = || std::io::Write::write_all(pod.stdin.as_mut().unwrap(), b"\n").unwrap();
        let receive = || server.recv_from(&mut [0; 9]).unwrap();
        receive();
        assert_eq!(sockets(&datapath), (5, 5));
        on();
        receive();
        assert_eq!(
            sockets(&datapath),
            (5, 3),
            "one closed, one connected elsewhere"
        );
        on();
        receive();
        assert_eq!(sockets(&datapath), (6, 3), "one connected to it again");
        on();
        assert!(pod.wait().unwrap().success());
        assert_eq!(sockets(&datapath), (6, 0));
    });
}

#[test]
fn a_socket_of_a_backend_that_is_gone_ends_nothing_of_the_next_one() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let server = UdpSocket::bind((POD, 8000)).unwrap();
        let mut pod = in_pod(
            node,
            "import socket, sys\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.connect(('fd00:10::7', 80))\ns.send(b'x')\nsys.stdin.read()",
        );
        server.recv_from(&mut [0; 9]).unwrap();
        let id = backend(&datapath).id;
        assert_eq!(sockets(&datapath), (1, 1));
        datapath.apps.publish(&serving(&[])).unwrap();
        drop(datapath);
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        assert_eq!(backend(&datapath).id, id);
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
        let tally = backend(&datapath).load.sockets;
        assert_eq!((tally.begun, tally.ended), (0, 0));
    });
}
