//! A pod's TCP tables: its open connections, so that a stopping pod runs until the last one is closed, and the sockets on which it
//! listens, which explain why it is not ready. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// TCP_LISTEN (include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// The states of open connections (include/net/tcp_states.h): ESTABLISHED, SYN_RECV, and CLOSE_WAIT, in which the client has
/// finished its request and waits for the response.
const ALIVE: [&str; 3] = ["01", "03", "08"];

/// Whether `/proc/PID/net/tcp6` contains an open connection on this local port.
pub(super) fn has_connection(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(_remote), Some(state)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        let number = local
            .rsplit_once(':')
            .and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        number == Some(port) && ALIVE.contains(&state)
    })
}

/// A listening socket. In order of ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listener {
    pub(super) port: u16,
    pub(super) address: IpAddr,
}

impl Listener {
    /// Whether connections to this address reach the socket.
    pub(super) fn accepts(&self, address: Ipv6Addr) -> bool {
        self.address == address || self.address == Ipv6Addr::UNSPECIFIED
    }
}

/// The listening sockets in a table: `/proc/PID/net/tcp6` or `/proc/PID/net/tcp`.
pub(super) fn listeners(table: &str) -> impl Iterator<Item = Listener> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':').filter(|_| state == LISTEN)?;
        Some(Listener {
            port: u16::from_str_radix(port, 16).ok()?,
            address: address_of(address)?,
        })
    })
}

/// The kernel prints an address as words in the machine's byte order.
fn address_of(text: &str) -> Option<IpAddr> {
    let mut octets = Vec::new();
    for start in (0..text.len()).step_by(8) {
        let word = u32::from_str_radix(text.get(start..start + 8)?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let v6 = <[u8; 16]>::try_from(octets.as_slice()).map(Ipv6Addr::from);
    let v4 = <[u8; 4]>::try_from(octets.as_slice()).map(Ipv4Addr::from);
    v6.map(IpAddr::V6).or(v4.map(IpAddr::V4)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_have_their_address_and_port() {
        let found: Vec<Listener> = listeners(TABLE).collect();
        let any = Listener {
            port: 0x1F40,
            address: Ipv6Addr::UNSPECIFIED.into(),
        };
        assert_eq!(found, [any]);
        let tcp = "header
   0: 0100007F:1F90 00000000:0000 0A 0 0
   1: 00000000000000000000000001000000:1F91 0:0 0A 0
   2: 0100007F:1F92 00000000:0000 01 0 0
   3: 0100007:1F93 00000000:0000 0A
   4: zz
";
        let found: Vec<_> = listeners(tcp)
            .map(|one| (one.address.to_string(), one.port))
            .collect();
        assert_eq!(
            found,
            [("127.0.0.1".to_owned(), 8080), ("::1".to_owned(), 8081)]
        );
    }

    const TABLE: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: B80D0120D0000000000001000700:1F41 B80D0120D00000000000000000000000:9C40 01 00000000:00000000 00:00000000 00000000     0        0 12 1
   2: B80D0120D0000000000001000700:1F42 B80D0120D00000000000000000000000:9C41 06 00000000:00000000 00:00000000 00000000     0        0 0 3
   3: B80D0120D0000000000001000700:1F43 B80D0120D00000000000000000000000:9C42 03 00000000:00000000 00:00000000 00000000     0        0 0 3
";

    #[test]
    fn only_open_connections_of_the_port_count() {
        assert!(
            !has_connection(TABLE, 0x1F40),
            "a listening socket is not a connection"
        );
        assert!(has_connection(TABLE, 0x1F41));
        assert!(!has_connection(TABLE, 0x1F42), "TIME_WAIT is closed");
        assert!(has_connection(TABLE, 0x1F43), "SYN_RECV is open");
        let half_closed = TABLE.replace(" 06 ", " 08 ");
        assert!(has_connection(&half_closed, 0x1F42), "CLOSE_WAIT is open");
        assert!(!has_connection(TABLE, 0x9C40), "remote ports do not count");
    }

    #[test]
    fn a_truncated_table_has_no_connection() {
        for table in ["", "header only", "header\n 0: 12", "header\n 0: :zz x 01"] {
            assert!(!has_connection(table, 80));
        }
    }
}
