//! Names and addresses derived from a pod's suffix, so the kernel's objects can be mapped to pods without a table. Pure.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_agent_ipam::{LeaseKey, Suffix};

/// Link-layer address of all bridges: constant, so that pods have a permanent neighbour entry for the gateway.
pub const BRIDGE_MAC: [u8; 6] = dormouse_agent_datapath::GATEWAY_MAC;
/// Prefix of the names of the pods' links on the host.
pub const LINK_PREFIX: &str = "dm";
const ALIAS_PREFIX: &str = "dormouse";

/// Name of the host side of the pod's veth pair.
pub fn link_name(suffix: Suffix) -> String {
    format!("{LINK_PREFIX}{suffix}")
}

/// The suffix in a link's name.
pub fn suffix_of_link(name: &str) -> Option<Suffix> {
    let digits = name.strip_prefix(LINK_PREFIX).filter(|d| d.len() == 8)?;
    u32::from_str_radix(digits, 16).ok().map(Suffix)
}

/// Link-layer address of the pod's side.
pub fn pod_mac(suffix: Suffix) -> [u8; 6] {
    mac(0xd0, suffix)
}

/// Link-layer address of the host side.
pub fn host_mac(suffix: Suffix) -> [u8; 6] {
    mac(0xd1, suffix)
}

fn mac(second: u8, suffix: Suffix) -> [u8; 6] {
    let [a, b, c, d] = suffix.0.to_be_bytes();
    [0x02, second, a, b, c, d]
}

/// A link-layer address as `02:d0:…`.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The pod's link-local address. Suffixes below 16 are reserved for the host, so it never equals the gateway's.
pub fn link_local(suffix: Suffix) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(suffix.0))
}

/// The preferred ifindex: choosing it avoids reading it back.
pub fn ifindex(suffix: Suffix) -> u32 {
    (suffix.0 & 0x7fff_ffff).max(1 << 16)
}

/// The alias of a pod's link (IFLA_IFALIAS), from which a restarted agent recovers the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The holder.
    pub key: LeaseKey,
    /// The pod's suffix.
    pub suffix: Suffix,
    /// Link-layer address of the pod's side; written only if it was requested explicitly.
    pub mac: [u8; 6],
    /// The pod's IPv4 address; written as eight hexadecimal digits, because the longest key leaves no more room.
    pub address4: Option<Ipv4Addr>,
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, suffix, .. } = self;
        write!(f, "{ALIAS_PREFIX} {suffix} {key}")?;
        if self.mac != pod_mac(*suffix) {
            write!(f, " {}", mac_text(self.mac))?;
        }
        match self.address4 {
            Some(address) => write!(f, " {:08x}", address.to_bits()),
            None => Ok(()),
        }
    }
}

/// Parses an alias.
pub fn parse_alias(text: &str) -> Option<Alias> {
    let mut words = text.split(' ');
    if words.next()? != ALIAS_PREFIX {
        return None;
    }
    let suffix = u32::from_str_radix(words.next()?, 16).ok().map(Suffix)?;
    let mut parts = words.next()?.splitn(3, '/').map(str::to_owned);
    let key = LeaseKey {
        network: parts.next()?,
        container: parts.next()?,
        ifname: parts.next()?,
    };
    let mut alias = Alias {
        key,
        suffix,
        mac: pod_mac(suffix),
        address4: None,
    };
    for word in words {
        if word.contains(':') {
            alias.mac = parse_mac(word)?;
        } else {
            let bits = u32::from_str_radix(word, 16).ok()?;
            alias.address4 = Some(Ipv4Addr::from_bits(bits));
        }
    }
    Some(alias)
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_read_back() {
        let key = LeaseKey {
            network: "pods".into(),
            container: "c1".into(),
            ifname: "eth0".into(),
        };
        let suffix = Suffix(0x1_0002);
        assert_eq!(link_name(suffix), "dm00010002");
        assert_eq!(suffix_of_link("dm00010002"), Some(suffix));
        assert_eq!(suffix_of_link("dmz0"), None);
        let usual = Alias {
            key,
            suffix,
            mac: pod_mac(suffix),
            address4: None,
        };
        let chosen = Alias {
            mac: [2, 0, 0, 0xaa, 0, 1],
            ..usual.clone()
        };
        let dual = Alias {
            address4: Some(Ipv4Addr::new(10, 1, 2, 3)),
            ..usual.clone()
        };
        let both = Alias {
            address4: dual.address4,
            ..chosen.clone()
        };
        for (alias, text) in [
            (usual, "dormouse 00010002 pods/c1/eth0"),
            (chosen, "dormouse 00010002 pods/c1/eth0 02:00:00:aa:00:01"),
            (dual, "dormouse 00010002 pods/c1/eth0 0a010203"),
            (
                both,
                "dormouse 00010002 pods/c1/eth0 02:00:00:aa:00:01 0a010203",
            ),
        ] {
            assert_eq!(alias.to_string(), text);
            assert_eq!(parse_alias(text), Some(alias));
        }
        assert_eq!(parse_alias("dormouse 00010002 pods/c1/eth0 02:00"), None);
        assert_eq!(parse_alias("uplink to rack 3"), None);
    }

    #[test]
    fn the_longest_key_fits_an_alias() {
        let key = LeaseKey {
            network: "n".repeat(dormouse_cni::names::NETWORK_LEN_MAX),
            container: "c".repeat(dormouse_cni::names::CONTAINER_ID_LEN_MAX),
            ifname: "i".repeat(dormouse_cni::names::IFNAME_LEN_MAX),
        };
        let alias = Alias {
            key,
            suffix: Suffix(u32::MAX),
            mac: [0xff; 6],
            address4: Some(Ipv4Addr::BROADCAST),
        };
        assert!(alias.to_string().len() < 256);
    }

    #[test]
    fn addresses_are_derived_from_the_suffix() {
        let suffix = Suffix(0x1_0002);
        assert_eq!(mac_text(pod_mac(suffix)), "02:d0:00:01:00:02");
        assert_eq!(link_local(suffix).to_string(), "fe80::1:2");
        assert_eq!(ifindex(Suffix(16)), 65_536);
    }
}
