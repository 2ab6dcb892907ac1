//! Addresses and routes: all hosts have both families, services are reached by the first node, the far host by a router.

use std::fs;

use dormouse_rig::{Netns, Sockets};
use dormouse_world::World;

use crate::cluster::{CLIENT, CLIENT4, FAR, FAR4};

const ROUTER4: &str = "192.0.2.12";

/// A host behind the control host, which becomes its router.
pub(crate) fn far(world: &World) -> Netns {
    let far = Netns::named(&format!("{}-far", world.prefix()));
    let router = Sockets::bare(&world.control().netns);
    let name = far.name();
    router.run(
        "ip",
        &format!("link add eth1 type veth peer name eth0 netns {name}"),
    );
    let end = Sockets::bare(far.path());
    for (sockets, device, v6, v4) in [
        (&router, "eth1", "2001:db8:fa::1", "198.51.100.1"),
        (&end, "eth0", FAR, FAR4),
    ] {
        sockets.run("ip", "link set lo up");
        sockets.run("ip", &format!("-6 address add {v6}/64 dev {device} nodad"));
        sockets.run("ip", &format!("address add {v4}/24 dev {device}"));
        sockets.run("ip", &format!("link set {device} up"));
    }
    let forward = ["ipv6/conf/all/forwarding", "ipv4/ip_forward"];
    router.inside(|| {
        for name in forward {
            fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
        fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "0").unwrap();
    });
    far.ip("-6 route add default via 2001:db8:fa::1");
    far.ip("route add default via 198.51.100.1");
    far
}

/// Lets clients use a port again a second after its connection ended: a load needs more ports than there are.
pub(crate) fn reuse_ports(sockets: &Sockets) {
    sockets.inside(|| fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").unwrap());
}

/// Gives all hosts IPv4 addresses, and routes: to the far host by its router, to services by the first node.
pub(crate) fn route(world: &World) {
    let nodes = world.nodes();
    let hosts = nodes.iter().chain([world.client(), world.control()]);
    let addresses = ["192.0.2.1", "192.0.2.2", CLIENT4, ROUTER4];
    let router = world.control().address;
    let client = Sockets::bare(&world.client().netns);
    client.run("ip", &format!("-6 address add {CLIENT}/64 dev eth0 nodad"));
    client.run(
        "ip",
        &format!("-6 address del {}/64 dev eth0", world.client().address),
    );
    client.run("ip", "-6 route add 2001:db8:d0::/64 dev eth0");
    for (host, address) in hosts.zip(addresses) {
        let sockets = Sockets::bare(&host.netns);
        sockets.run("ip", &format!("address add {address}/24 dev eth0"));
        if address != ROUTER4 {
            sockets.run(
                "ip",
                &format!("-6 route add 2001:db8:fa::/64 via {router} dev eth0"),
            );
            sockets.run("ip", &format!("route add 198.51.100.0/24 via {ROUTER4}"));
        }
        if host.name != world.client().name {
            sockets.run("ip", "-6 route add 2001:db8:c0::/64 dev eth0");
        }
    }
    for host in [world.client(), world.control()] {
        let sockets = Sockets::bare(&host.netns);
        for range in ["fd00:20::/112", "fd00:30::/64"] {
            sockets.run(
                "ip",
                &format!("-6 route add {range} via {}", nodes[0].address),
            );
        }
        for range in ["10.96.0.0/16", "203.0.113.0/24"] {
            sockets.run("ip", &format!("route add {range} via 192.0.2.1"));
        }
    }
}
