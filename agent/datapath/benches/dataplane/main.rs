//! Time and memory of 100,000 Services with 1,000,000 backends on a node, without a network; one figure per line:
//! `name<TAB>value<TAB>unit`. Run as root; `cargo xtask bench dataplane` prints the figures with their bounds.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends at its first fault, and prints its figures"
)]

mod place;
mod side_by_side;

use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use dormouse_agent_datapath::{Backend, ClusterFacts, Datapath, Entry, Mode, VipRange, XdpMode};
use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{
    Node, NodeAddresses, NodePortAddresses, Prefix, Services, Strictness,
};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use place::{NODE, Place};

const SERVICES: u32 = 100_000;
const ENDPOINTS: u32 = 10;
const CHANGES: u32 = 10_000;
const CHURN: Duration = Duration::from_secs(3);
const CHURN_PER_SECOND: u32 = 10_000;
const RUNS: u32 = 2_000_000;

fn main() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    for command in [
        "link set lo up",
        "link add up0 type veth peer name peer0",
        "link set up0 up",
        "link set peer0 up",
    ] {
        let words = command.split(' ');
        assert!(Command::new("ip").args(words).status().unwrap().success());
    }
    let place = Place::make(XdpMode::Off);
    let all = objects();
    let (datapath, mut services) = start(&place, &all, "program an empty node");
    drop((datapath, services));
    let datapath;
    (datapath, services) = start(&place, &all, "program a restarted agent");
    drop(all);
    change(&datapath, &mut services);
    churn(&datapath, &mut services);
    decide(&datapath);
    memory(&datapath);
    drop((datapath, services));
    drop(place);
    flip();
    side_by_side::measure(&objects());
}

/// All Services with their endpoints.
fn objects() -> Vec<(Service, EndpointSlice)> {
    (0..SERVICES).map(|n| (service(n), slice(n, 0))).collect()
}

fn report(name: &str, value: f64, unit: &str) {
    println!("{name}\t{value:.3}\t{unit}");
}

fn node() -> Node {
    Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: vec![IpAddr::V6(NODE)],
            local: vec![IpAddr::V6(NODE)],
        },
        pod_ranges: vec![Prefix::parse("2001:db8:d0::/48").unwrap()],
        service_ranges: vec![Prefix::parse("fd00:20::/108").unwrap()],
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    }
}

fn service(n: u32) -> Service {
    let vip = Ipv6Addr::from_bits((0xfd00_0020 << 96) + u128::from(n) + 1).to_string();
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("s{n}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": vip, "clusterIPs": [vip],
            "ipFamilies": ["IPv6"], "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    serde_json::from_value(object).unwrap()
}

/// The ten endpoints of a Service; the last one differs between versions.
fn slice(n: u32, version: u32) -> EndpointSlice {
    let endpoint = |number: u32| {
        let host = n * ENDPOINTS + number + 16;
        let host = if number + 1 == ENDPOINTS {
            u128::from(host) + (u128::from(version) << 24)
        } else {
            u128::from(host)
        };
        let prefix = 0x2001_0db8_00d0_0000_0000_0002_u128 + u128::from(n % 1_000);
        let address = Ipv6Addr::from_bits((prefix << 32) + host).to_string();
        json!({"addresses": [address], "nodeName": "node-b", "conditions": {"ready": true}})
    };
    let endpoints: Vec<_> = (0..ENDPOINTS).map(endpoint).collect();
    let name = format!("s{n}");
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv6", "endpoints": endpoints,
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
    });
    serde_json::from_value(object).unwrap()
}

/// Programs a node, empty or with the maps of a previous agent; includes the objects' translation.
fn start(place: &Place, objects: &[(Service, EndpointSlice)], name: &str) -> (Datapath, Services) {
    let datapath = Datapath::open(place.0.clone()).unwrap();
    datapath
        .services
        .set_cluster(&ClusterFacts::new(&node()).without_apps())
        .unwrap();
    let begin = Instant::now();
    let mut services = Services::new(node(), Strictness::KubeProxy);
    for (service, slice) in objects {
        services.apply(&Event::Applied(Object::Service(service)));
        services.apply(&Event::Applied(Object::EndpointSlice(slice)));
    }
    let changes = services.sync();
    let translated = begin.elapsed();
    let served = datapath.services.serve(&services, &changes).unwrap();
    assert!(served.shed.is_empty());
    datapath.services.settle(&services);
    report(name, begin.elapsed().as_secs_f64(), "s");
    report(
        &format!("{name}, of it translation"),
        translated.as_secs_f64(),
        "s",
    );
    (datapath, services)
}

fn put(datapath: &Datapath, services: &mut Services, slice: &EndpointSlice) {
    services.apply(&Event::Applied(Object::EndpointSlice(slice)));
    let changes = services.sync();
    assert_eq!(changes.ports.len(), 1);
    assert!(
        datapath
            .services
            .serve(services, &changes)
            .unwrap()
            .shed
            .is_empty()
    );
}

fn change(datapath: &Datapath, services: &mut Services) {
    let slices: Vec<_> = (0..CHANGES).map(|n| slice(n * 7, 1)).collect();
    let mut took: Vec<_> = slices
        .iter()
        .map(|slice| {
            let begin = Instant::now();
            put(datapath, services, slice);
            begin.elapsed()
        })
        .collect();
    took.sort_unstable();
    let micros = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1e6;
    report("one endpoint changes, p50", micros(50), "µs");
    report("one endpoint changes, p99", micros(99), "µs");
}

fn churn(datapath: &Datapath, services: &mut Services) {
    let total = CHURN_PER_SECOND * u32::try_from(CHURN.as_secs()).unwrap();
    let slices: Vec<_> = (0..total)
        .map(|n| slice(n * 3 % SERVICES, 2 + n / 30_000))
        .collect();
    let (begin, before) = (Instant::now(), cpu_time());
    for (slice, due) in slices.iter().zip(0..) {
        let due = begin + Duration::from_secs(1) * due / CHURN_PER_SECOND;
        let now = Instant::now();
        // Short sleeps take more CPU time than they save.
        if due > now + Duration::from_millis(2) {
            std::thread::sleep(due - now);
        }
        put(datapath, services, slice);
    }
    let (wall, cpu) = (begin.elapsed(), cpu_time().saturating_sub(before));
    report(
        "churn, achieved",
        f64::from(total) / wall.as_secs_f64(),
        "changes/s",
    );
    report(
        "churn of 10,000 changes/s",
        cpu.as_secs_f64() / CHURN.as_secs_f64() * 100.0,
        "% of a core",
    );
}

/// CPU time of this process, user and system.
fn cpu_time() -> Duration {
    let spent = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    spent.into()
}

fn decide(datapath: &Datapath) {
    let best = |program| {
        let runs = (0..3).map(|_| datapath.programs.measure(program, RUNS).unwrap());
        runs.min().unwrap()
    };
    let (empty, full) = (best("measure_nothing"), best("measure_decide"));
    report("an empty program", empty.as_secs_f64() * 1e9, "ns");
    report(
        "lookup and selection, minus that",
        (full.as_secs_f64() - empty.as_secs_f64()) * 1e9,
        "ns",
    );
}

fn memory(datapath: &Datapath) {
    let (mut services, mut flows) = (0, 0);
    for (name, bytes) in datapath.memory().unwrap() {
        let counted = [
            "svc",
            "touch",
            "backend_set",
            "backend",
            "prefix",
            "frontend",
            "frontend_filter",
            "slot_option",
            "source_range",
        ];
        if counted.contains(&name.as_str()) {
            services += bytes;
        } else {
            flows += bytes;
        }
        println!("# map {name}: {:.2} MiB", bytes as f64 / 1_048_576.0);
    }
    report("maps of services", services as f64 / 1_048_576.0, "MiB");
    report(
        "maps of flows and counters",
        flows as f64 / 1_048_576.0,
        "MiB",
    );
}

/// The VIPs of all apps.
fn app_range() -> VipRange {
    VipRange {
        prefix: "fd00:10::".parse().unwrap(),
        length: 108,
        base: 0,
    }
}

/// Changes the mode of 100,000 apps, back and forth.
fn flip() {
    let place = Place::make(XdpMode::Off);
    let datapath = Datapath::open(place.0.clone()).unwrap();
    datapath.facts.configure(&[app_range()], &[]).unwrap();
    let vips: Vec<u32> = (1..=SERVICES).collect();
    for vip in &vips {
        let backend = Backend {
            address: Ipv6Addr::from_bits(
                (0x2001_0db8_00d0_0000_0000_0002 << 32) + u128::from(*vip),
            ),
            port: 80,
            weight: 1,
        };
        let entry = Entry {
            vip: *vip,
            mode: Mode::Proxy,
            share: 0,
            backends: vec![backend],
            leased: false,
            asleep: false,
            gone: false,
            port: 80,
            protocol: 6,
        };
        datapath.apps.publish(&entry).unwrap();
    }
    let mut took = Vec::new();
    for mode in [
        Mode::Serve,
        Mode::Proxy,
        Mode::Serve,
        Mode::Proxy,
        Mode::Serve,
    ] {
        let begin = Instant::now();
        datapath.apps.flip(&vips, mode);
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    report(
        "flip 100,000 VIPs",
        took[took.len() / 2].as_secs_f64() * 1e3,
        "ms",
    );
}
