//! Names and addresses that follow from a pod's suffix, so that kernel state explains itself without any table. Pure.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_agent_ipam::{LeaseKey, Suffix};

/// The bridge's link-layer address: fixed, so that pods may know their gateway for ever.
pub const BRIDGE_MAC: [u8; 6] = [0x02, 0xd0, 0, 0, 0, 1];
/// Begins the name of each pod's link on the host.
pub const LINK_PREFIX: &str = "dm";
const ALIAS_PREFIX: &str = "dormouse";

/// Host end of the pod's veth.
pub fn link_name(suffix: Suffix) -> String {
    format!("{LINK_PREFIX}{suffix}")
}

/// The suffix that a link's name says.
pub fn suffix_of_link(name: &str) -> Option<Suffix> {
    let digits = name.strip_prefix(LINK_PREFIX).filter(|d| d.len() == 8)?;
    u32::from_str_radix(digits, 16).ok().map(Suffix)
}

/// Link-layer address of the pod's end.
pub fn pod_mac(suffix: Suffix) -> [u8; 6] {
    mac(0xd0, suffix)
}

/// Link-layer address of the host's end.
pub fn host_mac(suffix: Suffix) -> [u8; 6] {
    mac(0xd1, suffix)
}

fn mac(second: u8, suffix: Suffix) -> [u8; 6] {
    let [a, b, c, d] = suffix.0.to_be_bytes();
    [0x02, second, a, b, c, d]
}

/// As `02:d0:…`.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The pod's link-local address. Suffixes below 16 are the host's, so it is never the gateway's.
pub fn link_local(suffix: Suffix) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(suffix.0))
}

/// The interface index that is asked for first: choosing it saves looking it up.
pub fn ifindex(suffix: Suffix) -> u32 {
    (suffix.0 & 0x7fff_ffff).max(1 << 16)
}

/// The link's alias: what it is, for people and for a restarted agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Whose it is.
    pub key: LeaseKey,
    /// Which pod's.
    pub suffix: Suffix,
    /// Link-layer address of the pod's end; told only where someone chose it.
    pub mac: [u8; 6],
    /// The pod's IPv4 address; told as eight hexadecimal digits, for the longest key leaves no room for more.
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

/// Reads an alias.
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
    fn a_link_says_whose_it_is() {
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
    fn addresses_follow_from_the_suffix() {
        let suffix = Suffix(0x1_0002);
        assert_eq!(mac_text(pod_mac(suffix)), "02:d0:00:01:00:02");
        assert_eq!(link_local(suffix).to_string(), "fe80::1:2");
        assert_eq!(ifindex(Suffix(16)), 65_536);
    }
}
