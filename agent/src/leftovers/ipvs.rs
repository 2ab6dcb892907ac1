//! The services of IPVS, as the kernel lists them. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's list.
pub const SERVERS: &str = "/proc/net/ip_vs";

/// A service of IPVS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

impl VirtualServer {
    /// The arguments with which ipvsadm deletes it.
    pub fn removal(&self) -> [String; 3] {
        let flag = format!("--{}-service", self.protocol.to_ascii_lowercase());
        let at = SocketAddr::new(self.address, self.port);
        ["--delete-service".to_owned(), flag, at.to_string()]
    }
}

impl fmt::Display for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = SocketAddr::new(self.address, self.port);
        write!(f, "{} {at}", self.protocol)
    }
}

/// Reads the list. Its destinations, and services by firewall mark, are left out.
pub fn servers(list: &str) -> Vec<VirtualServer> {
    let lines = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let protocol = words
            .next()
            .filter(|word| matches!(*word, "TCP" | "UDP" | "SCTP"))?;
        let (address, port) = words.next()?.rsplit_once(':')?;
        Some(VirtualServer {
            protocol: protocol.to_owned(),
            address: self::address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
        })
    });
    lines.collect()
}

fn address(text: &str) -> Option<IpAddr> {
    let in_brackets = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if let Some(text) = in_brackets {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let bits = u32::from_str_radix(text, 16).ok()?;
    Some(IpAddr::V4(Ipv4Addr::from_bits(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_in_both_families_without_their_destinations() {
        let list = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> C0000201:192B      Masq    1      0          0
UDP  [fd00:0020:0000:0000:0000:0000:0000:000a]:0035 rr
FWM  00000001 rr
";
        let servers = servers(list);
        let texts: Vec<_> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["TCP 10.96.0.1:443", "UDP [fd00:20::a]:53"]);
        assert_eq!(
            servers[1].removal(),
            ["--delete-service", "--udp-service", "[fd00:20::a]:53"]
        );
    }
}
