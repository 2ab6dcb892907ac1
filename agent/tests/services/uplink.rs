//! Where a node handles packets from outside first: in the classifier of its uplink, or in the driver.
//!
//! A veth stands for the network card. Its peer takes what the program sends back only if it has a program, too, and computes the checksums that
//! senders have left to a card: frames that a card has received have theirs.

use std::fs;
use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Config, Datapath, XdpMode};
use dormouse_rig::Sockets;
use dormouse_world::{Host, World};

/// Flows of the data paths at the switch, which have none.
const FLOWS_MAX: u32 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// The agent's choice for a veth.
    Classifier,
    /// The XDP program, before the classifier.
    Driver,
}

impl Uplink {
    /// What it is on the agent's command line.
    pub(crate) const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Classifier => &[],
            Self::Driver => &["--xdp", "native"],
        }
    }

    /// The agent has attached the program if it is to.
    pub(crate) fn check(self, node: &Host) {
        let shown =
            Sockets::bare(&node.netns).run("ip", &format!("link show dev {}", node.uplink()));
        assert_eq!(shown.contains("prog/xdp"), self == Self::Driver, "{shown}");
    }

    /// Prepares the nodes, and their ports of the switch: returns these ports' data paths.
    pub(crate) fn prepare(self, world: &World) -> Vec<Datapath> {
        if self == Self::Classifier {
            return Vec::new();
        }
        let switch = Sockets::bare(&world.switch());
        // Their pins have the place of another host's each, which has none.
        let places = [world.client(), world.control()];
        let ports = world.nodes().iter().zip(places).zip(1..);
        let ports = ports.map(|((node, place), number)| {
            // The program asks the host's routes, which a host that forwards nothing of IPv4 has not.
            let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
            Sockets::bare(&node.netns).inside(forward).unwrap();
            let port = format!("node-{number}");
            switch.run("ethtool", &format!("--features {port} tx off"));
            switch
                .inside(|| Datapath::open(config(port, place)))
                .unwrap()
        });
        ports.collect()
    }
}

/// A data path whose uplink is a port of the switch: its programs have nothing to do there.
fn config(port: String, place: &Host) -> Config {
    Config {
        bpffs: place.bpffs.clone(),
        uplink: port,
        cgroup: place.cgroup.clone(),
        node_prefix: (Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 0), 96),
        node_address: Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1),
        flows_max: FLOWS_MAX,
        xdp: XdpMode::Native,
        log_packets: None,
    }
}

/// Each case by a cluster of each kind, which `$cluster` leases.
macro_rules! by_each_uplink {
    ($cluster:ident: $($case:ident)+) => {
        mod by_the_classifier {
            $(
                #[test]
                fn $case() {
                    super::$case(&super::$cluster(&crate::cluster::SERVING));
                }
            )+
        }

        mod by_the_driver {
            $(
                #[test]
                fn $case() {
                    super::$case(&super::$cluster(&crate::cluster::DRIVEN));
                }
            )+
        }
    };
}
pub(crate) use by_each_uplink;
