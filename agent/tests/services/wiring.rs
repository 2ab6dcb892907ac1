//! Addresses and ways: everybody has both families, services are reached by the first node, the far host by a router.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dormouse_world::World;

use crate::place::Place;
use crate::stage::{CLIENT, CLIENT4, FAR, FAR4};

const ROUTER4: &str = "192.0.2.12";
/// With which the names of our worlds begin, one after the other.
pub(crate) const LETTERS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];

/// A host behind the control host, which becomes its router.
pub(crate) fn far(world: &World, prefix: &str) -> Place {
    let router = &world.control().name;
    let far = format!("{prefix}-far");
    ip(&format!("netns add {far}"));
    ip(&format!(
        "-n {router} link add eth1 type veth peer name eth0 netns {far}"
    ));
    let place = Place::outside(&PathBuf::from("/run/netns").join(&far));
    let router = Place::outside(&world.control().netns);
    for (place, device, v6, v4) in [
        (&router, "eth1", "2001:db8:fa::1", "198.51.100.1"),
        (&place, "eth0", FAR, FAR4),
    ] {
        place.run("ip", "link set lo up");
        place.run("ip", &format!("-6 address add {v6}/64 dev {device} nodad"));
        place.run("ip", &format!("address add {v4}/24 dev {device}"));
        place.run("ip", &format!("link set {device} up"));
    }
    let forward = ["ipv6/conf/all/forwarding", "ipv4/ip_forward"];
    router.inside(|| {
        for name in forward {
            fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
        fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "0").unwrap();
    });
    place.run("ip", "-6 route add default via 2001:db8:fa::1");
    place.run("ip", "route add default via 198.51.100.1");
    place
}

/// Clients use a port again a second after they have ended its connection: a load needs more than there are.
pub(crate) fn hurry(place: &Place) {
    place.inside(|| fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").unwrap());
}

/// IPv4 addresses for all, and the ways: to the far host by its router, to services by the first node.
pub(crate) fn route(world: &World) {
    let nodes = world.nodes();
    let hosts = nodes.iter().chain([world.client(), world.control()]);
    let addresses = ["192.0.2.1", "192.0.2.2", CLIENT4, ROUTER4];
    let router = world.control().address;
    let client = Place::outside(&world.client().netns);
    client.run("ip", &format!("-6 address add {CLIENT}/64 dev eth0 nodad"));
    client.run(
        "ip",
        &format!("-6 address del {}/64 dev eth0", world.client().address),
    );
    client.run("ip", "-6 route add 2001:db8:d0::/64 dev eth0");
    for (host, address) in hosts.zip(addresses) {
        let place = Place::outside(&host.netns);
        place.run("ip", &format!("address add {address}/24 dev eth0"));
        if address != ROUTER4 {
            place.run(
                "ip",
                &format!("-6 route add 2001:db8:fa::/64 via {router} dev eth0"),
            );
            place.run("ip", &format!("route add 198.51.100.0/24 via {ROUTER4}"));
        }
        if host.name != world.client().name {
            place.run("ip", "-6 route add 2001:db8:c0::/64 dev eth0");
        }
    }
    for host in [world.client(), world.control()] {
        let place = Place::outside(&host.netns);
        for range in ["fd00:20::/112", "fd00:30::/64"] {
            place.run(
                "ip",
                &format!("-6 route add {range} via {}", nodes[0].address),
            );
        }
        for range in ["10.96.0.0/16", "203.0.113.0/24"] {
            place.run("ip", &format!("route add {range} via 192.0.2.1"));
        }
    }
}

pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(done.success(), "ip {arguments}");
}

/// Removes the worlds of runs that were killed: the names of ours are a letter and the number of the test's process.
pub(crate) fn clear_dead() {
    for file in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let prefix = name.split('-').next().unwrap_or_default();
        let process = prefix
            .strip_prefix(LETTERS)
            .and_then(|pid| pid.parse::<u32>().ok());
        if process.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            // Another run may be at it.
            let _ = World::clear(prefix);
        }
    }
}
