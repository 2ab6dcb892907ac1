//! What a client of a service must find, whatever way it asks.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Type};

use crate::client::{Heard, connected_udp, tcp, udp};
use crate::place::Place;
use crate::stage::wait;

/// A refusal comes at once, not by a timeout.
pub(crate) const REFUSED_WITHIN: Duration = Duration::from_millis(500);
/// Questions after which two backends have both answered, but for one time in a million.
pub(crate) const MANY: usize = 20;

/// An address of a service.
pub(crate) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// All three ways to ask give this answer: from the VIP, by the server `name`, who sees `seen`.
pub(crate) fn check(place: &Place, to: SocketAddr, name: &str, seen: IpAddr) {
    let expected = Heard {
        name: name.to_owned(),
        seen,
        from: to,
    };
    assert_eq!(tcp(place, to).unwrap(), expected, "TCP");
    assert_eq!(udp(place, to).unwrap(), expected, "UDP");
    assert_eq!(connected_udp(place, to).unwrap(), expected, "connected UDP");
}

/// Asks until each of `names` has answered; `seen` is what each must see.
pub(crate) fn check_all(place: &Place, to: SocketAddr, expected: &[(&str, IpAddr)]) {
    for ask in [tcp, udp, connected_udp] {
        let mut left: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
        for _ in 0..8 * MANY {
            let heard = ask(place, to).unwrap();
            assert_eq!(heard.from, to);
            let (_, seen) = expected
                .iter()
                .find(|(name, _)| *name == heard.name)
                .unwrap_or_else(|| panic!("{heard:?} is none of {expected:?}"));
            assert_eq!(heard.seen, *seen, "{heard:?}");
            left.retain(|name| *name != heard.name);
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "{left:?} never answered at {to}");
    }
}

pub(crate) fn refused(place: &Place, to: SocketAddr) {
    for (kind, ask) in [
        ("TCP", tcp as fn(&Place, SocketAddr) -> _),
        ("UDP", connected_udp),
    ] {
        let began = Instant::now();
        let error = ask(place, to).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::ConnectionRefused,
            "{kind} {to}: {error}"
        );
        assert!(
            began.elapsed() < REFUSED_WITHIN,
            "{kind} {to}: {:?}",
            began.elapsed()
        );
    }
}

/// Nothing comes back. Short: a local network answers in microseconds.
pub(crate) fn silent(place: &Place, to: SocketAddr) {
    let (datagram, stream) = answers(place, to);
    assert_eq!(datagram, ErrorKind::WouldBlock, "UDP {to}");
    assert_eq!(stream, ErrorKind::TimedOut, "TCP {to}");
}

/// Nothing comes back any more, before long.
pub(crate) fn falls_silent(place: &Place, to: SocketAddr) {
    let silence = (ErrorKind::WouldBlock, ErrorKind::TimedOut);
    wait("a deleted service to be silent", || {
        answers(place, to) == silence
    });
}

/// How a datagram and a connection fail; one that does not is told as `Other`.
fn answers(place: &Place, to: SocketAddr) -> (ErrorKind, ErrorKind) {
    let limit = Duration::from_millis(300);
    let kind = |error: Option<std::io::Error>| error.map_or(ErrorKind::Other, |e| e.kind());
    let socket = place.datagrams(to).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    socket.connect(to).unwrap();
    socket.send(b"anybody?").unwrap();
    let datagram = kind(socket.recv(&mut [0; 64]).err());
    let stream = place.socket(Domain::for_address(to), Type::STREAM).unwrap();
    let asked = stream.connect_timeout(&to.into(), limit).and_then(|()| {
        stream.set_read_timeout(Some(limit))?;
        // Who leaves without having heard the greeting would reset the connection.
        BufReader::new(&stream).read_line(&mut String::new())
    });
    (datagram, kind(asked.err()))
}
