//! The state of sockets: real ones, of a process in the cgroup.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::process::Child;

use dormouse_rig::address::POD;
use dormouse_rig::ip;

use super::node::{serving, with_node};
use super::{in_pod, open_connections};

/// Reads one line that the pod writes.
fn line_of(pod: &mut Child) -> String {
    let mut line = String::new();
    let mut stdout = BufReader::with_capacity(1, pod.stdout.as_mut().unwrap());
    stdout.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Ends the pod's process.
fn ends(mut pod: Child) {
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}

#[test]
fn a_sweep_never_takes_a_connection_from_the_socket_that_holds_it() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let listener = TcpListener::bind((POD, 8000)).unwrap();
        let pod = in_pod(
            node,
            "import socket, sys\ns = [socket.create_connection(('fd00:10::7', 80)) for _ in range(3)]\ns[0].close()\nsys.stdin.read()",
        );
        let mut streams: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        // The first one's end has come: it was counted before it was sent.
        assert_eq!(streams[0].read(&mut [0]).unwrap(), 0);
        assert_eq!(open_connections(&datapath), 2);
        for _ in 0..2 {
            assert_eq!(datapath.apps.expire_idle(u64::MAX / 2, 0).unwrap(), 0);
            assert_eq!(open_connections(&datapath), 2);
        }
        ends(pod);
        assert_eq!(open_connections(&datapath), 0);
    });
}

#[test]
fn a_socket_that_is_connected_elsewhere_sees_its_real_peer() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let server = UdpSocket::bind((POD, 8000)).unwrap();
        let mut pod = in_pod(
            node,
            &format!(
                "
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for target in [('fd00:10::7', 80), ('{POD}', 8000), ('fd00:10::7', 80)]:
    s.connect(target)
    s.send(b'ask')
    print(*s.getpeername()[:2], *s.recvfrom(9)[1][:2])
"
            ),
        );
        let (vip, real) = (
            "fd00:10::7 80 fd00:10::7 80".to_owned(),
            format!("{POD} 8000 {POD} 8000"),
        );
        for expected in [&vip, &real, &vip] {
            let (_, from) = server.recv_from(&mut [0; 9]).unwrap();
            server.send_to(b"answer", from).unwrap();
            assert_eq!(&line_of(&mut pod), expected);
        }
        ends(pod);
    });
}

#[test]
fn a_connection_that_fails_is_counted_until_its_socket_tries_another_or_ends() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let elsewhere = TcpListener::bind((POD, 9000)).unwrap();
        let mut pod = in_pod(
            node,
            &format!(
                "
import socket, sys
s = socket.socket(socket.AF_INET6)
for _ in range(3):
    try: s.connect(('fd00:10::7', 80))
    except ConnectionRefusedError: print('refused')
s.connect(('{POD}', 9000))
sys.stdin.read()
"
            ),
        );
        for _ in 0..3 {
            assert_eq!(line_of(&mut pod), "refused");
        }
        let _stream = elsewhere.accept().unwrap();
        let counts = datapath.apps.counts();
        assert_eq!((counts[0].connections, counts[0].open), (3, 0));
        ends(pod);
        assert_eq!(open_connections(&datapath), 0);
    });
}
