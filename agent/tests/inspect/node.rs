//! A node for inspection: an uplink, a pod's link, a folder of Services, and the bytes of its maps.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray, PerCpuHashMap};
use dormouse_agent_datapath::{Config, XdpMode};
use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey, SERVICE};
use dormouse_ebpf::maps::{
    Affinity, AffinityKey, DropKey, FragmentKey, FrontendKey, Pod, Ports, ReversePeer,
    ReversePeerKey, SlotOptions, SourceRange,
};
use dormouse_ebpf::wake_limit::{WakeLimit, WakeSource};
use dormouse_rig::address::{NODE, POD};
use dormouse_rig::{Agent, Node, UPLINK, binaries, ip, wait};

const METRICS: &str = "[::1]:10249";

/// The Services that every test looks at.
const SERVICES: &str = include_str!("services.yaml");

/// The node.
pub(crate) struct Inspected<'a> {
    pub(crate) node: &'a Node,
    manifests: PathBuf,
}

impl<'a> Inspected<'a> {
    pub(crate) fn make(node: &'a Node) -> Self {
        node.take_address();
        ip("address add 10.0.0.1/24 dev eth0");
        ip("link add pod0 type veth peer name inside");
        ip("link set pod0 up");
        let manifests = node.dir().join("manifests");
        fs::create_dir(&manifests).unwrap();
        let services = SERVICES.replace("THIS-NODE", node.name());
        fs::write(manifests.join("services.yaml"), services).unwrap();
        Self { node, manifests }
    }

    /// What a data path of the test's own process is opened with.
    pub(crate) fn config(&self) -> Config {
        Config {
            bpffs: self.node.bpffs().to_owned(),
            uplink: UPLINK.to_owned(),
            cgroup: self.node.cgroup().to_owned(),
            node_prefix: (NODE, 96),
            node_address: NODE,
            flows_max: FLOWS_MAX,
            xdp: XdpMode::Off,
            log_packets: None,
        }
    }

    /// Starts an agent and waits until `get services` succeeds.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(|_| {})
    }

    /// The same, with more about its process.
    pub(crate) fn agent_with(&self, more: impl FnOnce(&mut Command)) -> Agent {
        let mut command = self.node.home().run();
        command
            .args(["--address4", "10.0.0.1", "--metrics", METRICS])
            .args(["--health", "[::1]:10256"])
            .args(["--service-range", "fd00:20::/112,10.96.0.0/16"])
            .args(["--pod-range", "2001:db8:d0::/48,10.1.0.0/16"])
            .arg("--manifests")
            .arg(&self.manifests);
        more(&mut command);
        let agent = Agent::start(&mut command);
        wait("`get services` of the agent", || {
            self.ask(&["get", "services", "-A"]).status.success()
        });
        agent
    }

    /// Runs a command as a user would.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        Command::new(binaries::agent())
            .args(arguments)
            .env("DORMOUSE_NODE", self.node.name())
            .env("DORMOUSE_METRICS", METRICS)
            .output()
            .unwrap()
    }

    /// A command's standard output and its exit code.
    pub(crate) fn screen(&self, command: &str) -> (String, i32) {
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let output = self.ask(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        (text, output.status.code().unwrap())
    }

    /// A command's standard error and its exit code.
    pub(crate) fn said(&self, command: &str) -> (String, i32) {
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let output = self.ask(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        (text, output.status.code().unwrap())
    }

    /// The agent's metrics.
    pub(crate) fn metrics() -> String {
        let mut stream = TcpStream::connect(METRICS).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// What a command prints for programs.
    pub(crate) fn json(&self, command: &str) -> serde_json::Value {
        let (text, _) = self.screen(command);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}\n{text}"))
    }

    /// Fills the table with flows of Services, in use now and later.
    pub(crate) fn fill_flows(&self) {
        let map = open(&self.node.bpffs().join("v6/flow"));
        let mut flows: HashMap<_, FlowKey, Flow> = map.try_into().unwrap();
        for client in 0..FLOWS_MAX {
            let key = FlowKey {
                source: POD.octets(),
                target: NODE.octets(),
                source_port: u16::try_from(client & 0xffff).unwrap(),
                target_port: u16::try_from(client >> 16).unwrap(),
                protocol: 6,
            };
            let flow = Flow {
                kind: SERVICE,
                seen_ns: u64::MAX,
                ..Flow::default()
            };
            flows.insert(key, flow, 0).unwrap();
        }
    }

    /// All that is pinned: each map with all its keys and values.
    pub(crate) fn pinned(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        collect(self.node.bpffs(), &mut all);
        all
    }
}

fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, all);
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = dump(&name, &path);
        all.insert(path, bytes);
    }
}

/// All keys and values of a map, in their own order; nothing for what is no map.
fn dump(name: &str, path: &Path) -> Vec<u8> {
    match name {
        "svc" | "backend" | "load" | "prefix" => array::<[u8; 16]>(path),
        "touch" | "lease" | "current" | "frontend_filter" | "flow_filter" => array::<u64>(path),
        "backend_set" => array::<[u32; 16]>(path),
        "config" => array::<dormouse_ebpf::config::Config>(path),
        "wake_limit" => array::<WakeLimit>(path),
        "wake_budget" => hash::<WakeSource, u64>(path),
        "frontend" => hash::<FrontendKey, u32>(path),
        "slot_option" => hash::<u32, SlotOptions>(path),
        "affinity" => hash::<AffinityKey, Affinity>(path),
        "fragment" => hash::<FragmentKey, Ports>(path),
        "pod" => hash::<[u8; 16], Pod>(path),
        "flow" | "opening" => hash::<FlowKey, Flow>(path),
        "reverse_peer" => hash::<ReversePeerKey, ReversePeer>(path),
        "expired_counts" => hash::<u32, Counts>(path),
        "deny_a" | "deny_b" => {
            let map: LpmTrie<_, [u8; 16], u64> = open(path).try_into().unwrap();
            let pairs = map.iter().map(Result::unwrap);
            let pairs =
                pairs.map(|(key, end)| format!("{} {:?} {end}", key.prefix_len(), key.data()));
            sorted(pairs)
        }
        "source_range" => {
            let map: LpmTrie<_, SourceRange, u32> = open(path).try_into().unwrap();
            let pairs = map.iter().map(Result::unwrap);
            let pairs =
                pairs.map(|(key, value)| format!("{} {:?} {value}", key.prefix_len(), key.data()));
            sorted(pairs)
        }
        "stats" => {
            let map: PerCpuArray<_, u64> = open(path).try_into().unwrap();
            let values = map.iter().map(Result::unwrap).enumerate();
            sorted(values.map(|(place, values)| format!("{place:03} {:?}", &values[..])))
        }
        "drops" => {
            let map: PerCpuHashMap<_, DropKey, u64> = open(path).try_into().unwrap();
            let pairs = map.iter().map(Result::unwrap);
            sorted(pairs.map(|(key, values)| format!("{key:?} {:?}", &values[..])))
        }
        "counts" => {
            let map: PerCpuHashMap<_, u32, Counts> = open(path).try_into().unwrap();
            let pairs = map.iter().map(Result::unwrap);
            sorted(pairs.map(|(key, values)| format!("{key:?} {:?}", &values[..])))
        }
        // The ring's bytes are not to be had without reading its events, nor a socket's without the socket; links and
        // folders have none.
        name if matches!(name, "events" | "socket")
            || name == "v6"
            || name.starts_with("link_")
            || name.starts_with("pod_") =>
        {
            Vec::new()
        }
        other => panic!("{other} is pinned, and not compared: add it here"),
    }
}

fn open(path: &Path) -> Map {
    Map::from_map_data(MapData::from_pin(path).unwrap()).unwrap()
}

fn array<V: aya::Pod + std::fmt::Debug + Default + PartialEq>(path: &Path) -> Vec<u8> {
    let map: Array<_, V> = open(path).try_into().unwrap();
    let values = map.iter().map(Result::unwrap).enumerate();
    // Most of it is empty.
    let values = values.filter(|(_, value)| *value != V::default());
    let lines: Vec<String> = values
        .map(|(place, value)| format!("{place} {value:?}"))
        .collect();
    lines.join("\n").into_bytes()
}

fn hash<K: aya::Pod + std::fmt::Debug, V: aya::Pod + std::fmt::Debug>(path: &Path) -> Vec<u8> {
    let map: HashMap<_, K, V> = open(path).try_into().unwrap();
    let pairs = map.iter().map(Result::unwrap);
    sorted(pairs.map(|(key, value)| format!("{key:?} {value:?}")))
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines.join("\n").into_bytes()
}
