//! Connections in a pod's TCP table, so that a stopping pod runs until its last connection is closed. Pure.

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

#[cfg(test)]
mod tests {
    use super::*;

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
