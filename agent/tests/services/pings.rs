//! Echo requests to addresses of Services, and segments to ports that a Service does not have: refused or dropped by the first
//! node, and never sent back to the router.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use dormouse_rig::Sockets;
use dormouse_rig::frame::ones_sum;
use dormouse_rig::sockets::ANSWER_LIMIT;
use socket2::{Domain, Protocol, Socket, Type};

use crate::cluster::Origin;
use crate::families::{DRIVEN_DUAL, DUAL, Dual};

/// Cluster IPs with a Service, and without one.
const ALLOCATED: [&str; 2] = ["fd00:20::51", "10.96.0.51"];
const UNALLOCATED: [&str; 2] = ["fd00:20::7777", "10.96.77.77"];
/// External addresses of a Service, which the router sends to a node.
const EXTERNAL: [&str; 2] = ["fd00:30::51", "203.0.113.51"];
/// Nothing comes back within this time. Short: a local network answers in microseconds.
const SILENCE: Duration = Duration::from_millis(300);

/// Sends an echo request; whether the address answers with "port unreachable" within this time.
fn is_refused(sockets: &Sockets, to: IpAddr, limit: Duration) -> bool {
    let (domain, protocol, kind) = if to.is_ipv4() {
        (Domain::IPV4, Protocol::ICMPV4, 8)
    } else {
        (Domain::IPV6, Protocol::ICMPV6, 128)
    };
    let opened = sockets.inside(|| Socket::new(domain, Type::RAW, Some(protocol)));
    let mut socket = opened.unwrap();
    socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    // Identifier 1, sequence number 1. The kernel computes ICMPv6's checksum.
    let mut message = [kind, 0, 0, 0, 0, 1, 0, 1];
    let sum = !ones_sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    socket.send(&message).unwrap();
    loop {
        match socket.read(&mut [0; 256]) {
            // The message itself, which such a socket gets, too; the kernel reports the error by the next call.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{to}: {error}"),
        }
    }
}

#[test]
fn an_allocated_address_refuses_and_an_unallocated_one_is_silent() {
    check_addresses(&DUAL.lease());
}

#[test]
fn an_allocated_address_refuses_and_an_unallocated_one_is_silent_with_the_drivers_program() {
    check_addresses(&DRIVEN_DUAL.lease());
}

fn check_addresses(it: &Dual) {
    for from in [Origin::Far, Origin::Outside, Origin::PodPackets] {
        let sockets = it.cluster.sockets(from);
        for address in ALLOCATED {
            let to = address.parse().unwrap();
            assert!(
                is_refused(sockets, to, ANSWER_LIMIT),
                "{address} from {from:?}"
            );
        }
        for address in UNALLOCATED {
            let to = address.parse().unwrap();
            assert!(!is_refused(sockets, to, SILENCE), "{address} from {from:?}");
        }
    }
}

#[test]
fn a_ping_passes_the_router_once() {
    check_router(&DUAL.lease());
}

#[test]
fn a_ping_passes_the_router_once_with_the_drivers_program() {
    check_router(&DRIVEN_DUAL.lease());
}

fn check_router(it: &Dual) {
    let router = &it.cluster.router;
    let rules = "add table inet pings; \
         add counter inet pings passed; \
         add chain inet pings pass { type filter hook forward priority 0; }; \
         add rule inet pings pass icmp type echo-request counter name passed; \
         add rule inet pings pass icmpv6 type echo-request counter name passed; \
         add rule inet pings pass tcp dport 81 counter name passed";
    router.run("nft", rules);
    let mut sent = 0;
    for address in ALLOCATED.iter().chain(&UNALLOCATED).chain(&EXTERNAL) {
        is_refused(&it.cluster.far, address.parse().unwrap(), SILENCE);
        sent += 1;
        assert_eq!(router.counted("inet pings passed"), sent, "{address}");
    }
    // Nor does a segment to a port that the Service does not have.
    for address in EXTERNAL {
        let to = SocketAddr::new(address.parse().unwrap(), 81);
        let connected = it
            .cluster
            .far
            .inside(|| TcpStream::connect_timeout(&to, SILENCE));
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::TimedOut);
        sent += 1;
        assert_eq!(router.counted("inet pings passed"), sent, "{address}");
    }
    router.run("nft", "delete table inet pings");
}
