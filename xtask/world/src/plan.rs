//! The hosts of a world, their addresses, and the commands that wire them. Pure.

use std::net::Ipv6Addr;

use crate::error::WorldError;

/// Length of the prefix that all hosts share on the switch.
pub const LINK_PREFIX_LEN: u8 = 64;
/// The client's address.
pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x100);
/// The control host's address.
pub const CONTROL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xc);
/// The /96 in which the activator on the control host stands for sleeping apps.
pub const ACTING_PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0xa1, 0, 0);
/// The apps' addresses, which the client routes to the nodes.
pub const VIP_RANGE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0);
/// Length of [`VIP_RANGE`]: 2^20 addresses.
pub const VIP_RANGE_LEN: u8 = 108;
/// Node numbers end before the acting prefix's.
pub const NODES_MAX: u8 = 100;
const _: () = assert!((NODES_MAX as u16) < ACTING_PREFIX.segments()[5]);

/// A prefix with the longest host name behind it must stay readable in `ip netns`.
const PREFIX_LEN_MAX: usize = 8;

/// What world to build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The name in front of everything that the world makes: letters and digits.
    pub prefix: String,
    /// How many nodes.
    pub nodes: u8,
}

impl Spec {
    /// Refuses what cannot be built, before anything is.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        check_prefix(&self.prefix)?;
        if (1..=NODES_MAX).contains(&self.nodes) {
            return Ok(());
        }
        Err(WorldError::Nodes {
            nodes: self.nodes,
            max: NODES_MAX,
        })
    }

    /// The hosts beside the switch: the nodes in their order, the client, the control host.
    pub(crate) fn seats(&self) -> Vec<Seat> {
        let client = Seat {
            name: "client".to_owned(),
            role: Role::Client,
            address: CLIENT,
        };
        let control = Seat {
            name: "control".to_owned(),
            role: Role::Control,
            address: CONTROL,
        };
        (1..=self.nodes)
            .map(node)
            .chain([client, control])
            .collect()
    }
}

/// Refuses a prefix that would make names ambiguous.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), WorldError> {
    let length_fits = (1..=PREFIX_LEN_MAX).contains(&prefix.len());
    if length_fits && prefix.bytes().all(|letter| letter.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(WorldError::Prefix {
        prefix: prefix.to_owned(),
    })
}

/// A host's purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Runs pods; owns this /96.
    Node { prefix: Ipv6Addr },
    /// Connects to apps; runs no part of Dormouse.
    Client,
    /// Runs control; owns the acting prefix.
    Control,
}

/// One host's place at the switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seat {
    /// The host's name without the world's prefix; also its port's name at the switch.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: Role,
    /// Its own address.
    pub(crate) address: Ipv6Addr,
}

impl Seat {
    /// The /96 that is routed to this host.
    pub(crate) fn prefix(&self) -> Option<Ipv6Addr> {
        match self.role {
            Role::Node { prefix } => Some(prefix),
            Role::Control => Some(ACTING_PREFIX),
            Role::Client => None,
        }
    }
}

fn node(number: u8) -> Seat {
    let address = |host| Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, u16::from(number), 0, host);
    let role = Role::Node { prefix: address(0) };
    Seat {
        name: format!("node-{number}"),
        role,
        address: address(1),
    }
}

/// Lines for `ip -batch` in the machine's own namespace: the namespaces.
pub(crate) fn namespaces(prefix: &str, seats: &[Seat]) -> Vec<String> {
    let names = seats
        .iter()
        .map(|seat| seat.name.as_str())
        .chain(["switch"]);
    names
        .map(|name| format!("netns add {prefix}-{name}"))
        .collect()
}

/// Lines for `ip -batch` in the machine's own namespace: a cable from each host to the switch.
pub(crate) fn cables(prefix: &str, seats: &[Seat]) -> Vec<String> {
    let cable = |Seat { name, .. }: &Seat| {
        format!(
            "link add eth0 netns {prefix}-{name} type veth peer name {name} netns {prefix}-switch"
        )
    };
    seats.iter().map(cable).collect()
}

/// Lines for `ip -batch` in the switch: one bridge, which learns and floods like any plain switch.
pub(crate) fn switch(seats: &[Seat]) -> Vec<String> {
    let mut lines = vec![
        "link add br0 type bridge mcast_snooping 0 stp_state 0 forward_delay 0".to_owned(),
        "link set br0 addrgenmode none up".to_owned(),
    ];
    for Seat { name, .. } in seats {
        lines.push(format!("link set {name} addrgenmode none master br0 up"));
    }
    lines
}

/// Lines for `ip -batch` in one host: its address, and its routes if it has any.
pub(crate) fn host(seat: &Seat, seats: &[Seat]) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!(
            "address add {}/{LINK_PREFIX_LEN} dev eth0 nodad",
            seat.address
        ),
        "link set eth0 up".to_owned(),
    ];
    match seat.role {
        Role::Node { .. } => {}
        Role::Client => lines.push(vip_route(seats)),
        Role::Control => lines.push(format!("route add local {ACTING_PREFIX}/96 dev lo")),
    }
    lines
}

/// The client's route for all VIPs: any node will do.
fn vip_route(seats: &[Seat]) -> String {
    let nodes = seats
        .iter()
        .filter(|seat| matches!(seat.role, Role::Node { .. }));
    let hops = nodes.map(|seat| format!(" nexthop via {} dev eth0", seat.address));
    format!(
        "route add {VIP_RANGE}/{VIP_RANGE_LEN}{}",
        hops.collect::<String>()
    )
}

/// Kernel settings of one host, set before its links exist: path below `/proc/sys/net`, value.
pub(crate) fn settings(role: Role) -> Vec<(&'static str, &'static str)> {
    // Addresses must work at once, also on machines whose default is no IPv6.
    let mut settings = vec![
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
    ];
    match role {
        // The data plane's address translation owns the ports above.
        Role::Node { .. } => settings.push(("ipv4/ip_local_port_range", "32768 60999")),
        // Connections, not only hosts, spread over the nodes; a load must not run out of ports.
        Role::Client => {
            settings.push(("ipv6/fib_multipath_hash_policy", "1"));
            settings.push(("ipv4/ip_local_port_range", "10000 65000"));
        }
        Role::Control => {}
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(prefix: &str, nodes: u8) -> Spec {
        Spec {
            prefix: prefix.to_owned(),
            nodes,
        }
    }

    #[test]
    fn a_node_owns_a_96_and_its_first_address() {
        let seats = spec("demo", 2).seats();
        assert_eq!(seats[1].name, "node-2");
        assert_eq!(seats[1].prefix().unwrap().to_string(), "2001:db8:d0::2:0:0");
        assert_eq!(seats[1].address.to_string(), "2001:db8:d0::2:0:1");
        assert_eq!(
            seats[3].prefix().unwrap().to_string(),
            "2001:db8:d0::a1:0:0"
        );
    }

    #[test]
    fn the_client_spreads_vips_over_all_nodes() {
        let seats = spec("demo", 2).seats();
        let lines = host(&seats[2], &seats);
        assert_eq!(
            lines.last().unwrap(),
            "route add fd00:10::/108 nexthop via 2001:db8:d0::1:0:1 dev eth0 \
             nexthop via 2001:db8:d0::2:0:1 dev eth0"
        );
    }

    #[test]
    fn every_host_has_a_cable_to_the_switch() {
        let seats = spec("demo", 1).seats();
        assert_eq!(cables("demo", &seats).len(), 3);
        assert_eq!(
            cables("demo", &seats)[0],
            "link add eth0 netns demo-node-1 type veth peer name node-1 netns demo-switch"
        );
        assert_eq!(
            namespaces("demo", &seats).last().unwrap(),
            "netns add demo-switch"
        );
    }

    #[test]
    fn a_prefix_that_could_be_mistaken_for_another_is_refused() {
        for prefix in ["", "a-b", "a/b", "..", "ninechars", "ä"] {
            assert!(spec(prefix, 1).check().is_err(), "{prefix}");
        }
        assert!(spec("demo2", 1).check().is_ok());
    }

    #[test]
    fn a_world_without_nodes_or_with_too_many_is_refused() {
        assert!(spec("demo", 0).check().is_err());
        assert!(spec("demo", NODES_MAX).check().is_ok());
        let error = spec("demo", NODES_MAX + 1).check().unwrap_err();
        assert_eq!(error.to_string(), "a world has 1 to 100 nodes, not 101");
    }
}
