//! A node whose data path the test opens in its own process: one pod, one range of VIPs, one activator.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::Command;

use aya::maps::{HashMap, Map, MapData};
use dormouse_agent_datapath::{
    Activator, Backend, Config, Datapath, Entry, KernelEventKind, Mode, Pinned, PodEntry, Verdict,
    VipRange, XdpMode,
};
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey, OPENING};
use dormouse_rig::address::{CONTROL, NODE, POD};
use dormouse_rig::{UPLINK, on_node};

pub(crate) const VIP_INDEX: u32 = 7;
pub(crate) const VIP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 7);
pub(crate) const ACTING: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0xa1, 0, 0);
pub(crate) const ACTING_FOR_VIP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0xa1, 0, 7);

/// A node and what its data path is opened with.
pub(crate) struct Node {
    pub(crate) config: Config,
}

/// Runs a test on a node of its own.
pub(crate) fn with_node(test: impl FnOnce(&Node) + Send + 'static) {
    on_node(move |host| {
        let config = Config {
            bpffs: host.bpffs().to_owned(),
            uplink: UPLINK.to_owned(),
            cgroup: host.cgroup().to_owned(),
            node_prefix: (NODE, 96),
            node_address: NODE,
            flows_max: FLOWS_MAX,
            xdp: XdpMode::Off,
            log_packets: None,
        };
        test(&Node { config });
    });
}

impl Node {
    /// An agent's data path here, with the range, the activator and one pod.
    pub(crate) fn open(&self) -> Datapath {
        self.open_sized(FLOWS_MAX)
    }

    /// The same with a flow table of this size.
    pub(crate) fn open_sized(&self, flows_max: u32) -> Datapath {
        self.open_with(|config| config.flows_max = flows_max)
    }

    /// The same with other settings.
    pub(crate) fn open_with(&self, change: impl FnOnce(&mut Config)) -> Datapath {
        let datapath = self.open_without_pods(change);
        datapath.pods.add(local_pod()).expect("a pod");
        datapath
    }

    /// The same without the pod, whose link is not here.
    pub(crate) fn open_without_pods(&self, change: impl FnOnce(&mut Config)) -> Datapath {
        let mut config = self.config.clone();
        change(&mut config);
        let datapath = Datapath::open(config).expect("a data path");
        let range = VipRange {
            prefix: "fd00:10::".parse().unwrap(),
            length: 108,
            base: 0,
        };
        datapath
            .facts
            .configure(
                &[range],
                &[Activator {
                    prefix: ACTING,
                    via: CONTROL,
                }],
            )
            .expect("configured");
        datapath.apps.grant(u64::MAX);
        datapath
    }
}

impl Node {
    /// Replaces or, with none, removes each flow.
    pub(crate) fn change_flows(&self, change: impl Fn(&FlowKey, &Flow) -> Option<Flow>) {
        let folders = std::fs::read_dir(&self.config.bpffs).unwrap();
        let folder = folders.map(|folder| folder.unwrap().path()).next().unwrap();
        let [mut established, mut opening] = ["flow", "opening"].map(|name| {
            let map = MapData::from_pin(folder.join(name)).unwrap();
            let map = Map::from_map_data(map).unwrap();
            HashMap::<_, FlowKey, Flow>::try_from(map).unwrap()
        });
        let mut flows = Vec::new();
        let pinned = Pinned::open(&self.config.bpffs).unwrap();
        let collected = pinned.flows(|key, flow| {
            flows.push((*key, *flow));
            true
        });
        collected.unwrap();
        for (key, flow) in flows {
            let table = if flow.is(OPENING) {
                &mut opening
            } else {
                &mut established
            };
            match change(&key, &flow) {
                Some(changed) => table.insert(key, changed, 0).unwrap(),
                None => table.remove(&key).unwrap(),
            }
        }
    }

    /// Flows whose last packet was within this time.
    pub(crate) fn flows_since(&self, within_ns: u64) -> usize {
        let (now_ns, mut count) = (now_ns(), 0);
        let pinned = Pinned::open(&self.config.bpffs).unwrap();
        let counted = pinned.flows(|_, flow| {
            count += usize::from(flow.silent_ns(now_ns) < within_ns);
            true
        });
        counted.unwrap();
        count
    }

    /// Makes the last packet of each flow older: the kernel's clock cannot be turned.
    pub(crate) fn age_flows(&self, by_ns: u64) {
        self.change_flows(|_, flow| {
            Some(Flow {
                seen_ns: flow.seen_ns.saturating_sub(by_ns),
                ..*flow
            })
        });
    }
}

/// A link and the program that it runs, by the kernel's numbers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) link: u64,
    pub(crate) program: u64,
}

impl Node {
    /// The pinned links of all layouts.
    pub(crate) fn links(&self) -> BTreeMap<String, Link> {
        let folders = std::fs::read_dir(&self.config.bpffs).unwrap();
        let pins = folders
            .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap())
            .map(|entry| entry.unwrap().path());
        pins.filter(|pin| {
            pin.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("link_"))
        })
        .map(|pin| {
            let shown = bpftool(&["link", "show", "pinned", &pin.display().to_string()]);
            let number = |field: &str| shown[field].as_u64().unwrap();
            (
                pin.display().to_string(),
                Link {
                    link: number("id"),
                    program: number("prog_id"),
                },
            )
        })
        .collect()
    }
}

/// What bpftool shows.
pub(crate) fn bpftool(arguments: &[&str]) -> serde_json::Value {
    let shown = Command::new("bpftool").arg("-j").args(arguments).output();
    serde_json::from_slice(&shown.expect("bpftool is installed").stdout).unwrap()
}

/// The pod of each node.
pub(crate) fn local_pod() -> PodEntry {
    PodEntry {
        address: POD,
        address4: None,
        // No link of this namespace: what passes its loopback is no pod's.
        ifindex: 4_000_000,
        mac: [2, 0, 0, 0, 0, 7],
        direct: true,
    }
}

/// An entry that serves these pods on port 8000.
pub(crate) fn serving(pods: &[Ipv6Addr]) -> Entry {
    let backends = pods
        .iter()
        .map(|&address| Backend {
            address,
            port: 8000,
            weight: 1,
        })
        .collect();
    Entry {
        vip: VIP_INDEX,
        mode: Mode::Serve,
        share: 0,
        backends,
        leased: true,
        asleep: false,
        gone: false,
        port: 80,
        protocol: 6,
    }
}

/// An entry of a sleeping app.
pub(crate) fn sleeping() -> Entry {
    Entry {
        mode: Mode::Proxy,
        asleep: true,
        ..serving(&[])
    }
}

/// The events so far.
pub(crate) fn events(
    events: &mut dormouse_agent_datapath::KernelEvents,
) -> Vec<(u32, KernelEventKind)> {
    std::iter::from_fn(|| events.try_next())
        .map(|event| (event.vip, event.kind))
        .collect()
}

/// How often a verdict was given.
pub(crate) fn given(datapath: &Datapath, verdict: Verdict) -> u64 {
    datapath
        .stats()
        .iter()
        .find(|(other, _)| *other == verdict)
        .map_or(0, |(_, count)| *count)
}

/// CLOCK_BOOTTIME, the clock of flows and leases.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    u64::try_from(std::time::Duration::from(now).as_nanos()).unwrap()
}

/// Returns after at least this many of the kernel's ticks.
pub(crate) fn pass_ticks(count: u32) {
    // Its value changes with the ticks.
    let clock = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC_COARSE).unwrap();
    for _ in 0..count {
        let now = clock();
        while clock() == now {
            std::thread::yield_now();
        }
    }
}
