//! A node under load that fills its tables: connections while the flow table is full, and many connections of few clients to
//! one backend by a node port.
//!
//! What is compared is measured in turns, and ratios are taken within a turn.

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{Host, Process, Program, Spec, World};
use serde_json::{Value, json};

use super::Options;
use super::dataplane::commands::ip;
use super::dataplane::load::finish;
use super::dataplane::pods::{Pod, make_one};
use super::dataplane::side::enable_gro;
use super::dataplane::{Bench, load_program, ours};
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

const PREFIX: &str = "bflood";
/// The clients' addresses, outside the pods' range.
const CLIENTS: [&str; 4] = [
    "2001:db8:c0::101",
    "2001:db8:c0::102",
    "2001:db8:c0::103",
    "2001:db8:c0::104",
];
/// Lifetime of the servers, in seconds: they end even if the benchmark is killed.
const SERVERS_SECONDS: &str = "1800";
const SERVER_THREADS: &str = "32";
const CLIENT_THREADS: &str = "32";
/// The first port of the pod's servers, and of the node ports to them. A turn has a backend port of its own, because a backend
/// holds the node's ports in TIME_WAIT for a minute.
const PORT: u16 = 8_080;
const NODE_PORT: u16 = 30_080;
/// Turns of a measurement, the first of which is not counted: programs and caches are cold.
const TURNS: u16 = 6;
/// Flows of a table that is full soon, and connections that fill it several times.
const SMALL: &str = "8192";
const FILLING: Rate = Rate {
    per_second: 4_000,
    length: Duration::from_secs(5),
};
/// Connections through the full table: few, so that the machine's processors are not the limit.
const SPARSE: Rate = Rate {
    per_second: 1_000,
    length: Duration::from_secs(3),
};
/// Connections to a node port.
const DENSE: Rate = Rate {
    per_second: 10_000,
    length: Duration::from_secs(1),
};
/// Longest time until a Service is in force.
const SERVING_LIMIT: Duration = Duration::from_secs(30);

/// Connections at a rate.
#[derive(Clone, Copy)]
struct Rate {
    per_second: u32,
    length: Duration,
}

/// Times of connections in milliseconds, and their numbers.
struct Times {
    p99: f64,
    p999: f64,
    per_second: f64,
    failed: f64,
}

/// A node with a pod that has servers.
struct Node {
    address: Ipv6Addr,
    pod: Pod,
    /// The agent and the servers; dropping the node ends them.
    _processes: Vec<Process>,
}

impl Node {
    fn start(bench: &Bench<'_>, host: &Host, flags: &[&str]) -> Result<Self> {
        enable_gro(host)?;
        let mut processes = vec![ours::start(bench, host, flags)?];
        let plugin = &bench.options.binaries.cni;
        let pod = make_one(host, "server", |node, pod| ours::wire(plugin, node, pod))?;
        for turn in 0..TURNS {
            let port = (PORT + turn).to_string();
            let program = Program::new(&bench.load)
                .args(["server", "--port", &port])
                .args(["--seconds", SERVERS_SECONDS, "--threads", SERVER_THREADS])
                .log(host.folder.join(format!("server-{port}.log")));
            processes.push(bench.world.spawn(&pod.host, &program)?);
        }
        ours::write_manifests(host, &documents(pod.address))?;
        ip(
            Some(&host.netns),
            &["route add 2001:db8:c0::/64 dev eth0".to_owned()],
        )?;
        Ok(Self {
            address: host.address,
            pod,
            _processes: processes,
        })
    }

    fn node_port(&self, turn: u16) -> SocketAddrV6 {
        SocketAddrV6::new(self.address, NODE_PORT + turn, 0, 0)
    }
}

/// Measures connections through a full flow table, and connections to a node port.
pub(super) fn run(options: &Options) -> Result<Report> {
    let world = World::build(&Spec {
        prefix: PREFIX.to_owned(),
        nodes: 2,
    })?;
    let bench = Bench {
        options,
        world: &world,
        load: load_program(&options.binaries.hello)?,
    };
    let lines = CLIENTS.map(|client| format!("address add {client}/64 dev eth0 nodad"));
    ip(Some(&world.client().netns), &lines)?;
    let [first, second] = world.nodes() else {
        bail!("the world has too few nodes");
    };
    let step = Step::begin("start two nodes, one of them with a small flow table");
    let roomy = Node::start(&bench, first, &[])?;
    let small = Node::start(&bench, second, &["--flows-max", SMALL])?;
    for node in [&roomy, &small] {
        wait(&bench, node)?;
    }
    step.done();
    let mut report = Report::new("flood");
    full_table(&bench, [&roomy, &small], &mut report)?;
    node_port(&bench, &roomy, &mut report)?;
    Ok(report)
}

fn full_table(bench: &Bench<'_>, [roomy, small]: [&Node; 2], report: &mut Report) -> Result<()> {
    let step = Step::begin("connect through an empty flow table and through a full one, in turns");
    let (mut ratios, mut empty_ms, mut full_ms) = (Vec::new(), Vec::new(), Vec::new());
    let mut failed = 0.0;
    for turn in 0..TURNS {
        let filled = connect(bench, small.node_port(turn), FILLING)?;
        let empty = connect(bench, roomy.node_port(turn), SPARSE)?;
        let full = connect(bench, small.node_port(turn), SPARSE)?;
        if turn == 0 {
            continue;
        }
        failed += filled.failed + empty.failed + full.failed;
        ratios.push(full.p999 / empty.p999);
        empty_ms.push(empty.p999);
        full_ms.push(full.p999);
    }
    step.done();
    let row = |name, value, unit| Row::measured(name, value, unit);
    report.push(row("empty flow table, p99.9", median(empty_ms), "ms"));
    report.push(row("full flow table, p99.9", median(full_ms), "ms"));
    let ratio = row("full : empty flow table, p99.9", median(ratios), "×");
    report.push(ratio.must(Bound::AtMost(2.0)));
    let lost = row(
        "failed, beside full and empty tables",
        failed,
        "connections",
    );
    report.push(lost.must(Bound::AtMost(0.0)));
    Ok(())
}

fn node_port(bench: &Bench<'_>, node: &Node, report: &mut Report) -> Result<()> {
    let step = Step::begin("connect to a pod and to a node port, in turns");
    let (mut ratios, mut pod_ms, mut port_ms) = (Vec::new(), Vec::new(), Vec::new());
    let (mut per_second, mut failed) = (Vec::new(), 0.0);
    for turn in 0..TURNS {
        let direct = connect(bench, node.pod.at(PORT + turn), DENSE)?;
        let by_port = connect(bench, node.node_port(turn), DENSE)?;
        if turn == 0 {
            continue;
        }
        failed += direct.failed + by_port.failed;
        per_second.push(by_port.per_second);
        ratios.push(by_port.p99 / direct.p99);
        pod_ms.push(direct.p99);
        port_ms.push(by_port.p99);
    }
    step.done();
    let row = |name, value, unit| Row::measured(name, value, unit);
    report.push(row(
        "node port from 4 clients, reached",
        median(per_second),
        "connections/s",
    ));
    report.push(row("straight to the pod, p99", median(pod_ms), "ms"));
    report.push(row("node port, p99", median(port_ms), "ms"));
    let ratio = row("node port : straight to the pod, p99", median(ratios), "×");
    report.push(ratio.must(Bound::AtMost(1.5)));
    let lost = row("failed, node port and pod", failed, "connections");
    report.push(lost.must(Bound::AtMost(0.0)));
    Ok(())
}

fn wait(bench: &Bench<'_>, node: &Node) -> Result<()> {
    let last = node.node_port(TURNS - 1);
    let one = Rate {
        per_second: 1_000,
        length: Duration::from_millis(2),
    };
    let what = format!("{last} to reply");
    bench.options.interrupt.wait_for(&what, SERVING_LIMIT, || {
        let answered = connect(bench, last, one).is_ok_and(|times| times.failed == 0.0);
        Ok(answered.then_some(()))
    })
}

/// Connections of the clients to a target.
fn connect(bench: &Bench<'_>, target: SocketAddrV6, rate: Rate) -> Result<Times> {
    let program = Program::new(&bench.load)
        .args(["client", "--threads", CLIENT_THREADS])
        .args(["--per-second", &rate.per_second.to_string()])
        .args(["--milliseconds", &rate.length.as_millis().to_string()])
        .args(["--from", &CLIENTS.join(","), &target.to_string()]);
    let outcome = finish(bench, bench.world.client(), program, rate.length)?;
    let number = |name: &str| {
        let number = outcome.get(name).and_then(Value::as_f64);
        number.with_context(|| format!("the load printed no `{name}`: {outcome}"))
    };
    let answered = number("connections")?;
    ensure!(answered > 0.0, "no connection was answered: {outcome}");
    Ok(Times {
        p99: number("p99")? / 1e3,
        p999: number("p99.9")? / 1e3,
        per_second: answered / number("seconds")?,
        failed: number("failures")?,
    })
}

/// One Service for each turn, as one YAML stream of JSON documents.
fn documents(pod: Ipv6Addr) -> String {
    let mut text = String::new();
    for object in (0..TURNS).flat_map(|turn| objects(pod, turn)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "---\n{object}");
    }
    text
}

/// The Service of a turn, and its slice.
fn objects(pod: Ipv6Addr, turn: u16) -> [Value; 2] {
    let (name, vip) = (format!("turn-{turn}"), format!("fd00:20::{:x}", turn + 1));
    let target = PORT + turn;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "bench"},
        "spec": {
            "type": "NodePort", "clusterIP": vip, "clusterIPs": [vip], "ipFamilies": ["IPv6"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "t", "protocol": "TCP", "port": 80, "targetPort": target, "nodePort": NODE_PORT + turn}],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "name": format!("{name}-1"), "namespace": "bench",
            "labels": {"kubernetes.io/service-name": name},
        },
        "endpoints": [{"addresses": [pod.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "t", "protocol": "TCP", "port": target}],
    });
    [service, slice]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_a_backend_port_of_its_own() {
        let text = documents(Ipv6Addr::LOCALHOST);
        let objects: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| serde_json::from_str(document).unwrap())
            .collect();
        assert_eq!(objects.len(), 2 * usize::from(TURNS));
        let ports = objects.iter().step_by(2).map(|service| {
            let port = &service["spec"]["ports"][0];
            (port["nodePort"].to_string(), port["targetPort"].to_string())
        });
        let ports: std::collections::BTreeSet<_> = ports.collect();
        assert_eq!(ports.len(), usize::from(TURNS));
    }
}
