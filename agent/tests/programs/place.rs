//! A place of one's own for a test: a network namespace with an uplink, a cgroup and a folder of pins, gone at its end.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use dormouse_agent_datapath::{
    Activator, Backend, Config, Datapath, Entry, KernelEventKind, Mode, PodEntry, Verdict,
    VipRange, detach,
};

use dormouse_ebpf::flow::FLOWS_MAX;

static PLACES: AtomicU32 = AtomicU32::new(0);

pub(crate) const VIP_INDEX: u32 = 7;
pub(crate) const VIP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 7);
pub(crate) const NODE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 1);
pub(crate) const POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x10);
pub(crate) const FAR_POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 0, 0x10);
pub(crate) const ACTING: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0xa1, 0, 0);
pub(crate) const ACTING_FOR_VIP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0xa1, 0, 7);
pub(crate) const CONTROL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xc);
pub(crate) const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x100);

/// Where one test's data path lives.
pub(crate) struct Place {
    pub(crate) config: Config,
}

/// Runs a test in a place of its own, on a thread of its own: the network namespace is the thread's.
pub(crate) fn with_place(test: impl FnOnce(&Place) + Send + 'static) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "run as root: sudo -E cargo test -p dormouse-agent --test programs"
    );
    let outcome = std::thread::spawn(move || test(&Place::make())).join();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

impl Place {
    fn make() -> Self {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let name = format!(
            "test-{}-{}",
            std::process::id(),
            PLACES.fetch_add(1, Ordering::Relaxed)
        );
        ip("link set lo up");
        ip("link add up0 type veth peer name peer0");
        ip("link set up0 up");
        ip("link set peer0 up");
        let cgroup = cgroup_root().join(format!("dormouse-{name}"));
        std::fs::create_dir(&cgroup).expect("a cgroup");
        let config = Config {
            bpffs: PathBuf::from("/sys/fs/bpf/dormouse").join(name),
            uplink: "up0".to_owned(),
            cgroup,
            node_prefix: (NODE, 96),
            node_address: NODE,
            flows_max: FLOWS_MAX,
        };
        Self { config }
    }

    /// An agent's data path here, with the range, the activator and one pod.
    pub(crate) fn open(&self) -> Datapath {
        self.open_sized(FLOWS_MAX)
    }

    /// The same with a flow table of this size.
    pub(crate) fn open_sized(&self, flows_max: u32) -> Datapath {
        let config = Config {
            flows_max,
            ..self.config.clone()
        };
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
        datapath
            .pods
            .add(PodEntry {
                address: POD,
                address4: None,
                // No link of this namespace: what passes its loopback is no pod's.
                ifindex: 4_000_000,
                mac: [2, 0, 0, 0, 0, 7],
                direct: true,
            })
            .expect("a pod");
        datapath.apps.grant(u64::MAX);
        datapath
    }
}

/// A link and the program that it runs, by the kernel's numbers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) link: u64,
    pub(crate) program: u64,
}

impl Place {
    /// The pinned links.
    pub(crate) fn links(&self) -> BTreeMap<String, Link> {
        let pins = std::fs::read_dir(self.config.bpffs.join("v5"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        pins.filter(|pin| {
            pin.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("link_"))
        })
        .map(|pin| {
            let shown = Command::new("bpftool")
                .args(["-j", "link", "show", "pinned"])
                .arg(&pin)
                .output();
            let shown = shown.expect("bpftool is installed").stdout;
            let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
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

impl Drop for Place {
    fn drop(&mut self) {
        let _ = detach(&self.config.bpffs);
        let _ = std::fs::remove_dir(&self.config.cgroup);
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

/// Runs `ip` in this thread's network namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Where cgroup2 is mounted; mounted for good if it is nowhere.
fn cgroup_root() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("/proc");
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(place))
    });
    mounted.unwrap_or_else(|| {
        let place = PathBuf::from("/run/dormouse-test-cgroup2");
        std::fs::create_dir_all(&place).expect("a folder for cgroup2");
        nix::mount::mount(
            Some("cgroup2"),
            &place,
            Some("cgroup2"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .expect("cgroup2");
        place
    })
}
