//! The metadata service of a machine at AWS (IMDSv2): the prefix that the network delivers to an interface.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The service's addresses, on every machine.
const SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
const PORT: u16 = 80;
/// Limit for connecting, and for each read and write: the service is on the machine's own host.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of an answer that are read.
const ANSWER_MAX: u64 = 1 << 16;
/// A token is used at once.
const TOKEN_LIFETIME: &str = "X-aws-ec2-metadata-token-ttl-seconds: 60";
const TOKEN_HEADER: &str = "X-aws-ec2-metadata-token";

/// The prefix of the interface with this link-layer address, as the service writes it; none if the interface has none. Blocks the
/// thread.
pub fn ipv6_prefix(mac: &[u8]) -> io::Result<Option<String>> {
    let mut outcome = Err(io::Error::other("no address of a metadata service"));
    for server in SERVERS {
        outcome = prefix_at(SocketAddr::new(server, PORT), mac);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn prefix_at(server: SocketAddr, mac: &[u8]) -> io::Result<Option<String>> {
    let token = match ask(server, "PUT /latest/api/token", TOKEN_LIFETIME)? {
        (200, token) => token,
        (status, _) => return Err(refused(status)),
    };
    let header = format!("{TOKEN_HEADER}: {}", token.trim());
    match ask(server, &format!("GET {}", path(mac)), &header)? {
        (200, body) => Ok(body
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned)),
        (404, _) => Ok(None),
        (status, _) => Err(refused(status)),
    }
}

/// Where the service has the prefixes of an interface, one a line.
fn path(mac: &[u8]) -> String {
    let bytes: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let mac = bytes.join(":");
    format!("/latest/meta-data/network/interfaces/macs/{mac}/ipv6-prefix")
}

fn refused(status: u16) -> io::Error {
    io::Error::other(format!("the metadata service answered {status}"))
}

/// The status and the body of an answer.
fn ask(server: SocketAddr, request: &str, header: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let close = "Connection: close\r\nContent-Length: 0";
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {server}\r\n{header}\r\n{close}\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| io::Error::other("the answer of the metadata service is not of HTTP"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_by_its_link_layer_address() {
        assert_eq!(
            path(&[2, 0, 0xab, 0, 0, 0x1f]),
            "/latest/meta-data/network/interfaces/macs/02:00:ab:00:00:1f/ipv6-prefix"
        );
    }

    #[test]
    fn what_is_no_answer_of_http_is_refused() {
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(parse(answer), Some((404, "no".to_owned())));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 no\r\n\r\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
