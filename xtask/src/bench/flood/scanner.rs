//! The host that scans: at the switch by a cable of its own, so that its packets meet those of the clients at the nodes only.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_world::{Host, LINK_PREFIX_LEN, Process, Program, VIP_RANGE, VIP_RANGE_LEN, World};
use serde_json::Value;

use super::super::Options;
use super::super::dataplane::commands::{ip, run, set};
use super::super::dataplane::load_program;

/// All VIPs of the cluster's range.
pub(super) const VIPS: u32 = 1 << 20;
/// Addresses, as many as VIPs, that the switch drops.
pub(super) const DROPPED: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xdead, 0, 0, 0, 0, 0, 0);
/// Sources of scans, each in a /64 of its own, which is another one than the clients': they would have no wakes left else.
pub(super) const SOURCES: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0x5ca0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0x5ca1, 0, 0, 0, 0, 1),
];
/// The prefix of both, which the other hosts route to the scanner: it gets their replies.
const SOURCES_PREFIX: &str = "2001:db8:5ca0::/47";
/// Addresses of the scanner and of the switch on the link of all hosts.
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x5ca);
const SWITCH: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x5);
/// A scan that exceeds its length by this hangs.
const HANG: Duration = Duration::from_mins(1);

/// The host, whose packets to all VIPs go to one node.
pub(super) struct Scanner<'a> {
    host: Host,
    load: PathBuf,
    world: &'a World,
    options: &'a Options,
}

/// First segments of connections to addresses in turn.
#[derive(Clone, Copy)]
pub(super) struct Scan {
    /// The source.
    pub(super) from: Ipv6Addr,
    /// The first address.
    pub(super) first: Ipv6Addr,
    /// The number of addresses.
    pub(super) addresses: u32,
    /// Segments in a second; as many as one core sends without it.
    pub(super) per_second: Option<f64>,
    /// Length of the scan, which begins again with the first address; without it, one segment to each.
    pub(super) length: Option<Duration>,
}

/// What a scan has sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sent {
    /// Segments that the kernel took.
    pub(super) segments: f64,
    /// The same in a second.
    pub(super) per_second: f64,
}

impl<'a> Scanner<'a> {
    /// Makes the host.
    pub(super) fn attach(options: &'a Options, world: &'a World, node: &Host) -> Result<Self> {
        let name = format!("{}-scanner", world.prefix());
        let host = Host {
            address: ADDRESS,
            netns: world.switch().with_file_name(&name),
            name,
            ..world.client().clone()
        };
        wire(&host, world, node).context("failed to make the host that scans")?;
        Ok(Self {
            host,
            load: load_program(&options.binaries.hello)?,
            world,
            options,
        })
    }

    /// Begins a scan.
    pub(super) fn start(&self, scan: Scan) -> Result<Process> {
        let to = SocketAddrV6::new(scan.first, 80, 0, 0);
        let mut program = Program::new(&self.load)
            .args(["scan", "--from", &scan.from.to_string()])
            .args(["--addresses", &scan.addresses.to_string()]);
        if let Some(per_second) = scan.per_second {
            program = program.args(["--per-second", &per_second.to_string()]);
        }
        if let Some(length) = scan.length {
            program = program.args(["--milliseconds", &length.as_millis().to_string()]);
        }
        let log = self.host.folder.join("scan.json");
        // A log is appended to.
        std::fs::write(&log, "").context("failed to empty the log of the scan")?;
        let program = program.arg(to.to_string()).log(log);
        Ok(self.world.spawn(&self.host, &program)?)
    }

    /// Waits until a scan of about this length ends.
    pub(super) fn finish(&self, mut scan: Process, length: Duration) -> Result<Sent> {
        let interrupt = &self.options.interrupt;
        let ended = interrupt.wait_for("the scan to end", length + HANG, || Ok(scan.ended()))?;
        let output = scan.output();
        ensure!(ended.success(), "the scan failed: {output}");
        sent(&output).with_context(|| format!("the scan printed: {output}"))
    }
}

fn sent(output: &str) -> Option<Sent> {
    let printed: Value = serde_json::from_str(output).ok()?;
    let segments = printed["sent"].as_f64()?;
    Some(Sent {
        segments,
        per_second: segments / printed["seconds"].as_f64()?,
    })
}

/// The world removes the namespace, by its name.
fn wire(host: &Host, world: &World, node: &Host) -> Result<()> {
    let switch = world.switch();
    let ends = format!("{}-switch", world.prefix());
    ip(
        None,
        &[
            format!("netns add {}", host.name),
            format!(
                "link add eth0 netns {} type veth peer name scanner netns {ends}",
                host.name
            ),
        ],
    )?;
    for netns in [&switch, &host.netns] {
        set(netns, "ipv6/conf/all/disable_ipv6", "0")?;
    }
    set(&switch, "ipv6/conf/br0/disable_ipv6", "0")?;
    run(
        Some(&switch),
        &["ethtool", "-K", "scanner", "gro", "on"],
        "",
    )?;
    ip(
        Some(&switch),
        &[
            "link set scanner addrgenmode none master br0 up".to_owned(),
            format!("address add {SWITCH}/{LINK_PREFIX_LEN} dev br0 nodad"),
            format!("route add blackhole {DROPPED}/{VIP_RANGE_LEN}"),
        ],
    )?;
    let mut lines = vec![format!(
        "address add {ADDRESS}/{LINK_PREFIX_LEN} dev eth0 nodad"
    )];
    lines.extend(SOURCES.map(|source| format!("address add {source}/64 dev eth0 nodad")));
    lines.extend([
        "link set lo up".to_owned(),
        "link set eth0 up".to_owned(),
        format!(
            "route add {VIP_RANGE}/{VIP_RANGE_LEN} via {} dev eth0",
            node.address
        ),
        format!("route add {DROPPED}/{VIP_RANGE_LEN} via {SWITCH} dev eth0"),
    ]);
    ip(Some(&host.netns), &lines)?;
    let back = [format!("route add {SOURCES_PREFIX} dev eth0")];
    let hosts = world.nodes().iter().chain([world.control()]);
    hosts
        .into_iter()
        .try_for_each(|other| ip(Some(&other.netns), &back))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_scan_is_that_of_the_segments_that_were_sent() {
        let expected = Sent {
            segments: 300.0,
            per_second: 200.0,
        };
        let printed = "{\"sent\": 300, \"seconds\": 1.5}\n";
        assert_eq!(sent(printed), Some(expected));
        assert_eq!(sent("failed"), None);
    }

    #[test]
    fn each_source_of_scans_has_a_prefix_of_its_own() {
        let prefixes = SOURCES.map(|source| source.to_bits() >> 64);
        assert_ne!(prefixes[0], prefixes[1]);
    }
}
