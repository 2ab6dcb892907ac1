//! Checks of what a client of a service gets, in all ways in which it can ask.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dormouse_rig::client::{Answer, connected_udp, tcp, udp};
use dormouse_rig::{Sockets, wait};
use socket2::{Domain, Type};

/// A refusal comes at once, not when the client repeats its first segment after a second.
const REFUSED_WITHIN: Duration = Duration::from_millis(500);
/// One refusal of so many has to come at once: a machine that does much else delays some.
const REFUSALS: usize = 10;
/// After so many questions two backends have both answered, but for one time in a million.
pub(crate) const MANY: usize = 20;

/// An address of a service.
pub(crate) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Asks in all three ways: the server `name` answers, sees the client as `seen`, and is seen as the VIP.
pub(crate) fn check(sockets: &Sockets, to: SocketAddr, name: &str, seen: IpAddr) {
    let expected = Answer {
        name: name.to_owned(),
        seen,
        from: to,
    };
    assert_eq!(tcp(sockets, to).unwrap(), expected, "TCP");
    assert_eq!(udp(sockets, to).unwrap(), expected, "UDP");
    assert_eq!(
        connected_udp(sockets, to).unwrap(),
        expected,
        "connected UDP"
    );
}

/// Asks until each of the servers has answered; each must see the client as the address beside its name.
pub(crate) fn check_all(sockets: &Sockets, to: SocketAddr, expected: &[(&str, IpAddr)]) {
    for ask in [tcp, udp, connected_udp] {
        let mut left: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
        for _ in 0..8 * MANY {
            let answer = ask(sockets, to).unwrap();
            assert_eq!(answer.from, to);
            let (_, seen) = expected
                .iter()
                .find(|(name, _)| *name == answer.name)
                .unwrap_or_else(|| panic!("{answer:?} is none of {expected:?}"));
            assert_eq!(answer.seen, *seen, "{answer:?}");
            left.retain(|name| *name != answer.name);
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "{left:?} never answered at {to}");
    }
}

/// A connection and a datagram are refused at once.
pub(crate) fn refused(sockets: &Sockets, to: SocketAddr) {
    for (kind, ask) in [
        ("TCP", tcp as fn(&Sockets, SocketAddr) -> _),
        ("UDP", connected_udp),
    ] {
        let mut took = Vec::new();
        while took.last().is_none_or(|last| *last > REFUSED_WITHIN) {
            assert!(took.len() < REFUSALS, "{kind} {to}: {took:?}");
            let began = Instant::now();
            let error = ask(sockets, to).unwrap_err();
            // A kernel sends one host few ICMP errors a second: that of a datagram may be missing.
            let missing = kind == "UDP" && error.kind() == ErrorKind::WouldBlock;
            assert!(
                missing || error.kind() == ErrorKind::ConnectionRefused,
                "{kind} {to}: {error}"
            );
            took.push(began.elapsed());
        }
    }
}

/// Nothing comes back. Short: a local network answers in microseconds.
pub(crate) fn silent(sockets: &Sockets, to: SocketAddr) {
    let (datagram, stream) = answers(sockets, to);
    assert_eq!(datagram, ErrorKind::WouldBlock, "UDP {to}");
    assert_eq!(stream, ErrorKind::TimedOut, "TCP {to}");
}

/// Nothing comes back any more, before long.
pub(crate) fn falls_silent(sockets: &Sockets, to: SocketAddr) {
    let silence = (ErrorKind::WouldBlock, ErrorKind::TimedOut);
    wait("a deleted service to be silent", || {
        answers(sockets, to) == silence
    });
}

/// How a datagram and a connection fail; `Other` for one that does not.
fn answers(sockets: &Sockets, to: SocketAddr) -> (ErrorKind, ErrorKind) {
    let limit = Duration::from_millis(300);
    let kind = |error: Option<std::io::Error>| error.map_or(ErrorKind::Other, |e| e.kind());
    let socket = sockets.datagrams(to).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    socket.connect(to).unwrap();
    socket.send(b"question").unwrap();
    let datagram = kind(socket.recv(&mut [0; 64]).err());
    let stream = sockets
        .socket(Domain::for_address(to), Type::STREAM)
        .unwrap();
    let asked = stream.connect_timeout(&to.into(), limit).and_then(|()| {
        stream.set_read_timeout(Some(limit))?;
        // A client that closes before it has read the greeting resets the connection.
        BufReader::new(&stream).read_line(&mut String::new())
    });
    (datagram, kind(asked.err()))
}
