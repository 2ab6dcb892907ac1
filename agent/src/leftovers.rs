//! What kube-proxy leaves on a node when it ends: chains of iptables, tables of nftables, IPVS services and their link. Found by name:
//! nothing of other programs is touched, not even in the same tables.
//!
//! Reading order: the rules of one table, and what to remove of them ([`ruleset`], pure), the programs that read and change them
//! ([`tool`]), IPVS ([`ipvs`]), and all of it together ([`look`], [`Leftover::remove`]).

pub mod ipvs;
pub mod ruleset;
mod tool;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use dormouse_agent_inspect::kernel::{Kernel, ask};

use ipvs::VirtualServer;
use ruleset::Table;
use tool::Iptables;

/// kube-proxy's table, in both families.
const NFT_TABLE: &str = "kube-proxy";
/// The link that has the addresses of Services in mode ipvs.
const IPVS_LINK: &str = "kube-ipvs0";
/// Kubernetes' range of node ports, unless a cluster has another one (`--service-node-port-range`).
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// Something that kube-proxy left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Chains of one table of iptables, and the rules of built-in chains that jump to them.
    Chains {
        /// The programs that see the table.
        iptables: Iptables,
        /// The table, and what to remove.
        table: Table,
    },
    /// A table of nftables.
    NftTable {
        /// `ip` or `ip6`.
        family: &'static str,
    },
    /// A service of IPVS.
    VirtualServer(VirtualServer),
    /// The link of mode ipvs, with its addresses.
    Link {
        /// ifindex.
        index: u32,
    },
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What kube-proxy left, in the order in which it can be removed.
    pub leftovers: Vec<Leftover>,
    /// What could not be looked at, and why.
    pub unknown: Vec<String>,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chains { iptables, table } => {
                write!(f, "{iptables}, table {table}")
            }
            Self::NftTable { family } => write!(f, "nftables: table {family} {NFT_TABLE}"),
            Self::VirtualServer(server) => write!(f, "ipvs: {server}"),
            Self::Link { .. } => write!(f, "link {IPVS_LINK}"),
        }
    }
}

impl Leftover {
    /// The mode of kube-proxy that makes it.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Chains { .. } => "iptables",
            Self::NftTable { .. } => "nftables",
            Self::VirtualServer(_) | Self::Link { .. } => "ipvs",
        }
    }

    /// Each object, a line.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Chains { iptables, table } => {
                let (jumps, chains) = (table.jumps.iter(), table.chains.iter());
                let place = format!("{iptables}, table {}", table.name);
                let jumps = jumps.map(|rule| format!("{place}: rule {rule}"));
                let chains = chains.map(|chain| format!("{place}: chain {chain}"));
                jumps.chain(chains).collect()
            }
            other => vec![other.to_string()],
        }
    }

    /// Removes it.
    pub fn remove(&self) -> io::Result<()> {
        match self {
            Self::Chains { iptables, table } => iptables.restore(&table.removal()),
            Self::NftTable { family } => {
                tool::nft(&["delete", "table", family, NFT_TABLE]).map(drop)
            }
            Self::VirtualServer(server) => tool::ipvsadm(&server.removal()),
            Self::Link { index } => {
                let index = *index;
                ask(async |handle| {
                    handle
                        .link()
                        .del(index)
                        .execute()
                        .await
                        .map_err(io::Error::other)
                })
            }
        }
    }
}

/// Looks for all that kube-proxy leaves, in the network namespace of the calling thread. Changes nothing.
pub fn look() -> Found {
    let mut found = Found::default();
    for iptables in Iptables::ALL {
        match iptables.save() {
            Ok(Some(text)) => {
                let tables = ruleset::tables(&text)
                    .into_iter()
                    .filter(|table| !table.is_empty());
                found
                    .leftovers
                    .extend(tables.map(|table| Leftover::Chains { iptables, table }));
            }
            Ok(None) => {}
            Err(error) => found.unknown.push(format!("{iptables}: {error}")),
        }
    }
    match tool::nft(&["list", "tables"]) {
        Ok(Some(text)) => found.leftovers.extend(nft_tables(&text)),
        Ok(None) => {}
        Err(error) => found.unknown.push(format!("nftables: {error}")),
    }
    if !tool::is_any_installed() {
        let text = "neither iptables nor nft is installed here: run the command on the node itself, not in a container";
        found.unknown.push(text.to_owned());
    }
    ipvs(&mut found);
    found
}

fn nft_tables(text: &str) -> impl Iterator<Item = Leftover> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let has = move |family: &str| lines.contains(&format!("table {family} {NFT_TABLE}").as_str());
    ["ip", "ip6"]
        .into_iter()
        .filter(move |family| has(family))
        .map(|family| Leftover::NftTable { family })
}

/// The services of IPVS that kube-proxy has made ([`is_of_kube_proxy`]), and its link. Without the link, IPVS belongs to other
/// programs.
fn ipvs(found: &mut Found) {
    let kernel = match Kernel::look() {
        Ok(kernel) => kernel,
        Err(error) => return found.unknown.push(format!("links: {error}")),
    };
    let Some(link) = kernel.links.iter().find(|link| link.name == IPVS_LINK) else {
        return;
    };
    match servers() {
        Ok(servers) => {
            let servers = servers.into_iter().map(Leftover::VirtualServer);
            found.leftovers.extend(servers);
            found.leftovers.push(Leftover::Link { index: link.index });
        }
        // The link stays: by its addresses the services are found.
        Err(error) => found.unknown.push(format!("ipvs: {error}")),
    }
}

/// The services of IPVS that kube-proxy has made; none without IPVS in the kernel.
fn servers() -> io::Result<Vec<VirtualServer>> {
    let of_link = crate::addresses::of(IPVS_LINK)?;
    let local = crate::addresses::all()?;
    let text = match std::fs::read_to_string(ipvs::SERVERS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let mut servers = ipvs::servers(&text);
    servers.retain(|server| is_of_kube_proxy(server, &of_link, &local));
    Ok(servers)
}

/// Whether kube-proxy has made a service of IPVS: at an address of its link all are its own, at another address of the node those at
/// ports of the range of node ports ([`NODE_PORTS`]).
fn is_of_kube_proxy(server: &VirtualServer, of_link: &[IpAddr], local: &[IpAddr]) -> bool {
    let is_node_port = NODE_PORTS.contains(&server.port) && local.contains(&server.address);
    is_node_port || of_link.contains(&server.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tables_of_kube_proxy_are_found() {
        let text =
            "table ip nat\ntable ip6 kube-proxy\ntable inet kube-proxy\ntable ip kube-proxy2\n";
        let found: Vec<_> = nft_tables(text).collect();
        assert_eq!(found, [Leftover::NftTable { family: "ip6" }]);
    }

    #[test]
    fn services_of_ipvs_are_found_at_the_links_addresses_and_by_node_ports_at_those_of_the_node() {
        let [service, node, other] = ["10.96.0.1", "192.0.2.1", "192.0.2.9"]
            .map(|address| address.parse::<IpAddr>().unwrap());
        let is_found = |address, port| {
            let server = VirtualServer {
                protocol: "TCP".to_owned(),
                address,
                port,
            };
            is_of_kube_proxy(&server, &[service], &[service, node])
        };
        assert!(is_found(service, 443));
        assert!(is_found(node, 30_000) && is_found(node, 32_767));
        assert!(!is_found(node, 443) && !is_found(node, 29_999) && !is_found(node, 32_768));
        assert!(!is_found(other, 30_080));
    }
}
