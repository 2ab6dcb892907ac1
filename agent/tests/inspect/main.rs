//! `get`, `flows` and `explain` as a user runs them: screens, exit codes, and that they change nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deny;
mod node;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use dormouse_agent_datapath::{
    Backend, Config, Datapath, Entry, Hook, Mode, PodEntry, VipRange, XdpMode,
};
use dormouse_agent_inspect::frame::{Opening, ends};
use dormouse_ebpf::packet::{TCP, UDP};
use dormouse_rig::address::{FAR_POD, NODE, POD};
use dormouse_rig::node::python_in;
use dormouse_rig::{UPLINK, ip, on_node, wait};
use node::Inspected;

const CLIENT: &str = "2001:db8:77::9";

fn with_place(test: impl FnOnce(&Inspected<'_>) + Send + 'static) {
    on_node(|node| test(&Inspected::make(node)));
}

fn opening(source: &str, target: &str, protocol: u8) -> Opening {
    Opening {
        source: source.parse().unwrap(),
        target: target.parse().unwrap(),
        protocol,
    }
}

/// Sends a packet through the programs that are attached. Returns its ends after that.
fn send(datapath: &Datapath, hook: Hook, opening: Opening) -> Option<(SocketAddr, SocketAddr)> {
    ends(&datapath.programs.run(hook, &opening.frame()).unwrap().frame)
}

#[test]
fn the_services_of_a_node_are_one_table() {
    with_place(|place| {
        let _agent = place.agent();
        let (screen, code) = place.screen("get services -A");
        let wanted = "\
NAMESPACE   NAME     PORT       PROTO   VIP          EXTERNAL         NODEPORT   POLICY                   BACKENDS   ANSWER                AFFINITY
shop        empty    80         TCP     fd00:20::8   -                -          Cluster                  0/0        reject                -
shop        near     dns:53     UDP     fd00:20::a   -                30053      Cluster, outside Local   1/0        serve, outside drop   10800s
shop        old      http:80    TCP     10.96.0.7    -                -          Cluster                  1/0        serve                 -
shop        ranged   http:443   TCP     fd00:20::9   2001:db8:1b::5   -          Cluster                  1/0        serve                 -
shop        web      http:80    TCP     fd00:20::7   -                30080      Cluster                  2/1        serve                 -
";
        assert_eq!((screen.as_str(), code), (wanted, 0));
        assert_eq!(
            place
                .screen("get services -n shop -o name --no-headers")
                .0
                .lines()
                .count(),
            5
        );

        let (said, code) = place.said("get services");
        assert_eq!(
            (said.as_str(), code),
            ("no services in namespace default\n", 0)
        );
        let (said, code) = place.said("get services web");
        assert!(
            said.contains("no Service web in namespace default"),
            "{said}"
        );
        assert_eq!(code, 5, "{said}");

        let list = place.json("get services web -n shop -o json");
        assert_eq!(
            (&list["apiVersion"], &list["kind"]),
            (&"dormouse.dev/v1".into(), &"NodeServiceList".into())
        );
        let web = &list["items"][0];
        assert_eq!(web["endpoints"].as_array().unwrap().len(), 2);
        assert_eq!(
            web["slots"].as_array().unwrap().len(),
            2,
            "cluster IP, node port: {web}"
        );
        assert_eq!(web["vips"].as_array().unwrap().len(), 2);
        let (yaml, _) = place.screen("get svc web -n shop -o yaml");
        assert!(yaml.contains("kind: NodeServiceList"), "{yaml}");
        assert_eq!(place.screen("get pods").1, 0);
    });
}

/// A command's screen has these parts, and it ends so.
fn check(place: &Inspected<'_>, command: &str, code: i32, parts: &[&str]) {
    let (screen, ended) = place.screen(command);
    for part in parts {
        assert!(screen.contains(part), "{command}\n{screen}\nlacks {part:?}");
    }
    assert_eq!(ended, code, "{command}\n{screen}");
}

#[test]
fn explanations_show_where_a_packet_goes_and_why() {
    with_place(|place| {
        let _agent = place.agent();
        let check = |command: &str, code, parts: &[&str]| check(place, command, code, parts);
        let flow = |target: &str| format!("explain flow {CLIENT} {target}");
        check(
            &flow("service/shop/web tcp/80"),
            0,
            &[
                "cluster IP of shop/web:http",
                "[2001:db8:d0::2:0:10]:8000",
                "rewrite",
                "source [2001:db8:d0::1:0:1]:",
            ],
        );
        check(
            &flow(&format!("{NODE} tcp/30080")),
            0,
            &["node port of shop/web:http", "masquerades every source"],
        );
        check(
            &flow("shop/web tcp/81"),
            1,
            &["REFUSED: the cluster IP has no such port (DM6018)"],
        );
        check(
            &flow("2001:db8:1b::5 tcp/443"),
            0,
            &["in a source range", "FORWARDED"],
        );
        check(
            &flow(&format!("{NODE} udp/30053")),
            1,
            &["policy Local", "DROPPED", "DM6019"],
        );
        let nowhere = &["none: no service at", "DM6021"];
        check(&flow("fd00:20::99 tcp/80"), 1, nowhere);
        check(
            &flow("2001:db8:9::9 tcp/80"),
            0,
            &["PASSED to [2001:db8:9::9]:80"],
        );
        check(&flow("fd00:20::7 sctp/80"), 1, &["DM6018"]);
        let echo = "2001:db8:9::9 icmp";
        check(&flow(echo), 0, &["PASSED to [2001:db8:9::9]:0"]);
        pings(place);
        returned(place);
        check(
            "explain flow 2001:db8:78::1 2001:db8:1b::5 tcp/443",
            1,
            &["in no source range", "DM6020"],
        );
        check(
            "explain flow 10.0.0.9 10.96.0.7 tcp/80",
            0,
            &["10.1.2.10:8000", "FORWARDED to 10.1.2.10:8000"],
        );
        check(
            &format!("explain flow {NODE} shop/web tcp/80"),
            0,
            &["cg_connect6", "read", "connected to"],
        );
        check(
            &format!("explain flow {NODE} fd00:20::7 tcp/80 --from outside"),
            1,
            &["own address is not its own", "DM6024"][1..],
        );
        whole(place);
    });
}

/// Echo requests to addresses of Services.
fn pings(place: &Inspected<'_>) {
    let refused = "REFUSED: a VIP takes TCP, UDP and SCTP only, no ping (DM6033)";
    for (command, part) in [
        ("explain flow 2001:db8:77::9 fd00:20::7 icmp", refused),
        ("explain flow 10.0.0.9 10.96.0.7 icmp", refused),
        ("explain flow 2001:db8:77::9 fd00:20::99 icmp", "DM6021"),
        ("explain flow 10.0.0.9 10.96.0.99 icmp", "DM6021"),
    ] {
        check(place, command, 1, &[part]);
    }
}

/// Packets to a load balancer's address that no port of the Service takes, with and without a route by which they would leave again.
fn returned(place: &Inspected<'_>) {
    let check = |command: &str, code, part: &str| check(place, command, code, &[part]);
    let from_router = "explain flow 2001:db8:77::9 2001:db8:1b::5";
    check(&format!("{from_router} tcp/81"), 0, "PASSED");
    ip(&format!("route add 2001:db8:1b::/64 dev {UPLINK}"));
    let dropped = "DROPPED: ";
    for what in ["tcp/81", "udp/443", "icmp"] {
        check(&format!("{from_router} {what}"), 1, dropped);
        check(&format!("{from_router} {what}"), 1, "(DM6038)");
    }
    let of_node = format!("explain flow {NODE} 2001:db8:1b::5 tcp/81");
    check(&of_node, 0, "PASSED");
    ip(&format!("route del 2001:db8:1b::/64 dev {UPLINK}"));
}

/// Whole answers: a screen, a value for programs, an address, a code.
fn whole(place: &Inspected<'_>) {
    let check = |command: &str, code, parts: &[&str]| check(place, command, code, parts);
    let flow = |target: &str| format!("explain flow {CLIENT} {target}");
    let (screen, _) = place.screen(&format!("explain flow {CLIENT} service/shop/empty tcp/80"));
    let wanted = "\
[2001:db8:77::9]:40000  ->  [fd00:20::8]:80  tcp   from outside   shop/empty:80
 1 tcx_uplink_in   flow      none                                                                                   read
 2                 frontend  cluster IP of shop/empty:80, slot 1048584                                              run
 3                 answer    reject: port unreachable, policy Cluster, masquerades sources outside the pod ranges   run
verdict  REFUSED: the service has no endpoint that could serve (DM6017)
next     kubectl -n shop get endpointslices -l kubernetes.io/service-name=empty: make a pod ready
";
    assert_eq!(screen, wanted);

    let list = place.json(&flow("fd00:20::7 tcp/80 -o json"));
    assert_eq!(
        (&list["kind"], &list["service"]),
        (&"FlowExplanation".into(), &"shop/web:http".into())
    );
    assert!(
        list["steps"]
            .as_array()
            .unwrap()
            .iter()
            .any(|step| step["evidence"] == "run")
    );

    check(
        "explain address fd00:20::7",
        0,
        &[
            "of shop/web:http: serve, 2 backends",
            "service range fd00:20::/112",
        ],
    );
    check("explain address 192.0.2.1", 5, &["unknown on this node"]);
    check("explain code DM6020", 0, &["source ranges"]);
    check("explain code dropped_range", 0, &["DM6020"]);
}

#[test]
fn invalid_commands_are_refused_with_the_next_step() {
    with_place(|place| {
        let check = |command: &str, code: i32, part: &str| {
            let (said, ended) = place.said(command);
            assert!(
                said.contains(part) && said.contains("try:"),
                "{command}\n{said}"
            );
            assert_eq!(ended, code, "{command}\n{said}");
        };
        check("get services -A", 3, "--metrics");
        check(
            "explain flow 10.0.0.1 service/shop/web tcp/80",
            3,
            "--metrics",
        );
        check("get drops", 3, "--bpffs");
        check("flows", 3, "--node");
        check("explain flow 10.0.0.1 10.0.0.2 tcp/80", 3, "--node");
        check(
            "explain flow noone 10.0.0.1 tcp/80",
            2,
            "is not a source address",
        );
        check("explain flow 10.0.0.1 10.0.0.2 tcp/0", 2, "tcp/80");
        check(
            "explain flow 10.0.0.1 10.0.0.2 gre",
            2,
            "is not a protocol and port",
        );
        check(
            "explain flow 10.0.0.1 fd00::1 tcp/80",
            2,
            "different families",
        );
        check(
            "explain flow 10.0.0.1 a/b/c&d tcp/80",
            2,
            "neither an address nor a Service",
        );
        check("explain address 1.2.3", 2, "is not an address");
        check("explain code DM1", 5, "no drop code");
        check("flows --from nowhere", 2, "--from nowhere");
        check("flows --proto icmp", 2, "udp");
        check("flows --node ../n1", 2, "--node");
        let (said, code) = place.said("get nothing");
        assert!(code == 2 && said.contains("--help"), "{said}");
    });
}

#[test]
fn inspection_changes_no_byte_of_any_map_with_and_without_an_agent() {
    with_place(|place| {
        let agent = place.agent();
        // Nothing but these commands may write: the link's own chatter is counted too.
        ip("link set far down");
        ask_everything(place, true);
        drop(agent);
        drop(traffic(place));
        ask_everything(place, false);
    });
}

/// Whether a running agent rewrites the map periodically, independent of queries: its Bloom filter of flows.
fn is_renewed(path: &Path) -> bool {
    path.ends_with("flow_filter")
}

/// What is pinned, once an agent that starts has written everything.
fn settled(place: &Inspected<'_>) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut last, mut since) = (place.pinned(), Instant::now());
    wait("the maps to stay as they are for a second", || {
        let now = place.pinned();
        let is_same = now
            .iter()
            .all(|(path, bytes)| is_renewed(path) || last.get(path) == Some(bytes));
        if !is_same {
            since = Instant::now();
        }
        last = now;
        since.elapsed() > Duration::from_secs(1)
    });
    last
}

/// Asks all there is to ask, and compares all that is pinned before and after.
fn ask_everything(place: &Inspected<'_>, named: bool) {
    let before = settled(place);
    let targets = [
        "fd00:20::7 tcp/80",
        "fd00:20::8 tcp/80",
        "fd00:20::a udp/53",
        "fd00:10::7 tcp/80",
    ];
    for target in targets {
        for source in [
            CLIENT,
            "2001:db8:d0::1:0:1",
            "2001:db8:d0::1:0:10",
            "2001:db8:d0::1:0:10 --bare",
        ] {
            let (source, more) = source.split_once(' ').unwrap_or((source, ""));
            let command = format!("explain flow {source} {target} {more}");
            let (screen, code) = place.screen(&command);
            assert!(
                screen.contains("verdict  ") && code <= 1,
                "{command}: {code}\n{screen}"
            );
        }
    }
    let asked = [
        "get drops -o wide",
        "get backends -o wide",
        "get apps",
        "get pods",
        "flows --all -o json",
        "explain address fd00:20::7",
    ];
    for command in asked {
        assert_eq!(place.screen(command).1, 0, "{command}");
    }
    assert_eq!(place.screen("get services -A").1, if named { 0 } else { 3 });
    let after = place.pinned();
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    for (path, bytes) in &before {
        assert!(
            named && is_renewed(path) || after[path] == *bytes,
            "{} changed",
            path.display()
        );
    }
    assert!(
        before.values().map(Vec::len).sum::<usize>() > 1_000,
        "there was something to compare"
    );
}

fn app(vip: u32, pod: Ipv6Addr) -> Entry {
    let backend = Backend {
        address: pod,
        port: 8_000,
        weight: 1,
    };
    Entry {
        vip,
        mode: Mode::Serve,
        share: 0,
        backends: vec![backend],
        leased: false,
        asleep: false,
        gone: false,
        port: 80,
        protocol: 6,
    }
}

/// Flows, clients that keep their backend, drops, a pod and an app.
fn traffic(place: &Inspected<'_>) -> Datapath {
    let config = Config {
        xdp: XdpMode::Native,
        ..place.config()
    };
    let datapath = Datapath::open(config).unwrap();
    let range = VipRange {
        prefix: "fd00:10::".parse().unwrap(),
        length: 120,
        base: 0,
    };
    datapath.facts.configure(&[range], &[]).unwrap();
    let ifindex = nix::net::if_::if_nametoindex("pod0").unwrap();
    let mac = [2, 0, 0, 0, 0, 7];
    datapath
        .pods
        .add(PodEntry {
            address: POD,
            address4: None,
            ifindex,
            mac,
            direct: true,
        })
        .unwrap();
    datapath.apps.publish(&app(7, POD)).unwrap();
    datapath.apps.publish(&app(8, FAR_POD)).unwrap();
    let client = format!("[{CLIENT}]:40000");
    for (target, protocol) in [
        ("[fd00:20::7]:80", TCP),
        ("[fd00:20::a]:53", UDP),
        ("[fd00:10::7]:80", TCP),
        ("[fd00:20::8]:80", TCP),
    ] {
        send(
            &datapath,
            Hook::UplinkIn,
            opening(&client, target, protocol),
        );
    }
    datapath
}

/// Packets between pods, past the host's forwarding.
fn direct(place: &Inspected<'_>) {
    ip(&format!(
        "neighbour add {FAR_POD} lladdr 02:00:00:00:00:55 dev eth0 nud permanent"
    ));
    for (ends, parts) in [
        (
            format!("{POD} {FAR_POD}"),
            ["directly to the uplink", "FORWARDED to", "by eth0"],
        ),
        (
            format!("{FAR_POD} {POD}"),
            ["directly to the pod", "DELIVERED to", "flow      none"],
        ),
    ] {
        check(place, &format!("explain flow {ends} tcp/80"), 0, &parts);
    }
}

#[test]
fn without_an_agent_the_maps_show_flows_drops_and_backends() {
    with_place(|place| {
        drop(place.agent());
        let datapath = traffic(place);
        let sent = opening(&format!("[{CLIENT}]:40001"), "[fd00:20::a]:53", UDP);
        let (_, backend) = send(&datapath, Hook::UplinkIn, sent).unwrap();

        let (screen, code) =
            place.screen(&format!("explain flow [{CLIENT}]:40001 fd00:20::a udp/53"));
        assert!(
            screen.contains(&format!("exists, to {backend}")) && code == 0,
            "{screen}"
        );
        assert!(!screen.contains("no service at this address"), "{screen}");
        assert!(screen.contains("xdp_uplink"), "{screen}");
        let (screen, code) = place.screen(&format!("explain flow {CLIENT} fd00:10::7 tcp/80"));
        assert!(
            screen.contains("app VIP fd00:10::7, index 7") && code == 0,
            "{screen}"
        );
        assert!(
            screen.contains(&format!("DELIVERED to [{POD}]:8000 on this node")),
            "{screen}"
        );
        let (screen, code) =
            place.screen(&format!("explain flow [{CLIENT}]:40002 fd00:20::a udp/53"));
        assert!(
            screen.contains(&format!("the client's entry names {backend}")) && code == 0,
            "{screen}"
        );
        let (screen, code) = place.screen(&format!("explain flow {POD} fd00:20::7 tcp/80"));
        assert!(
            screen.contains("cg_connect6") && screen.contains("tcx_pod_in") && code == 0,
            "{screen}"
        );
        let (screen, code) = place.screen(&format!("explain flow {POD} fd00:20::7 tcp/80 --bare"));
        assert!(
            !screen.contains("cg_connect6") && screen.contains("run") && code == 0,
            "{screen}"
        );

        direct(place);

        let (screen, code) = place.screen(&format!("explain flow {CLIENT} fd00:10::8 tcp/80"));
        assert!(
            screen.contains("forward   unchanged") && code == 0,
            "{screen}"
        );

        let (drops, _) = place.screen("get drops");
        assert!(
            drops.contains("rejected") && drops.contains("[fd00:20::8]:80/tcp"),
            "{drops}"
        );
        let (said, _) = place.said("get drops");
        assert!(
            said.contains("addresses are shown instead of names"),
            "{said}"
        );

        flows(place);
        backends(place);
        assert_eq!(
            place.json("get apps -o json")["items"][0]["vip"],
            "fd00:10::7"
        );
        assert_eq!(
            place.json("get pods -o json")["items"][0]["interface"],
            "pod0"
        );
    });
}

fn flows(place: &Inspected<'_>) {
    let (screen, _) = place.screen(&format!("flows --to fd00:20::7 --from {CLIENT}/64"));
    let row = screen.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells[..3],
        ["tcp", &format!("[{CLIENT}]:40000"), "[fd00:20::7]:80"],
        "{screen}"
    );
    assert_eq!(cells[4..6], ["masqueraded", "opening"], "{screen}");
    let count = |command: &str| place.json(command)["items"].as_array().unwrap().len();
    assert_eq!(count("flows -o json"), 4);
    assert_eq!(count("flows -o json --all"), 8);
    assert_eq!(count("flows -o json --proto udp"), 2);
    assert_eq!(count("flows -o json --kind dnat --port 80"), 1);
    assert_eq!(count("flows -o json --limit 1"), 1);
    assert_eq!(place.screen("flows --limit 0").0, "4\n");
    let kinds = place.json("flows -o json --to fd00:10::7");
    assert_eq!(kinds["items"][0]["service"], "app fd00:10::7");
}

/// The connections of [`traffic`] and of one more datagram: names are addresses here.
fn backends(place: &Inspected<'_>) {
    let counted = |of: &str| {
        let rows = place.json(&format!("get backends {of} -o json"));
        let rows = rows["items"].as_array().unwrap().clone();
        let sum = |kind: &str, field: &str| -> u64 {
            rows.iter()
                .map(|row| row[kind][field].as_u64().unwrap())
                .sum()
        };
        assert_eq!((sum("sockets", "started"), sum("sockets", "open")), (0, 0));
        (rows.len(), sum("flows", "started"), sum("flows", "open"))
    };
    assert_eq!(counted("[fd00:20::7]:80/tcp"), (2, 1, 1));
    assert_eq!(counted("[fd00:20::a]:53/udp"), (1, 2, 2));
    assert_eq!(counted("fd00:10::7"), (1, 1, 1));
    assert_eq!(counted("-A"), counted(""));
    assert_eq!(counted("fd00:10::8"), (1, 0, 0));
    assert_eq!(counted("[fd00:20::8]:80/tcp"), (0, 0, 0));
}

/// Server and client in one process; prints the number of total and open connections by backend.
const CONNECTIONS: &str = "
import collections, json, socket, sys
server = socket.create_server(('::', 8000), family=socket.AF_INET6)
begun, open, held = collections.Counter(), collections.Counter(), []
for n in range(40):
    client = socket.create_connection(('fd00:20::7', 80), timeout=10)
    served, _ = server.accept()
    backend = served.getsockname()[0]
    begun[backend] += 1
    if n % 3: client.close()
    else: open[backend] += 1; held.append(client)
print(json.dumps([begun, open]), flush=True)
sys.stdin.read()
";

#[test]
fn backends_are_counted_as_their_connections_come_and_go() {
    with_place(|place| {
        let _agent = place.agent();
        for backend in [POD, FAR_POD] {
            ip(&format!("address add {backend}/128 dev lo nodad"));
        }
        let mut process = python_in(place.node.cgroup(), CONNECTIONS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let made: [HashMap<Ipv6Addr, u64>; 2] = serde_json::from_str(&line).unwrap();
        let counted = |field: &str| -> HashMap<Ipv6Addr, u64> {
            let rows = place.json("get backends shop/web:http -o json");
            let row = |row: &serde_json::Value| {
                assert_eq!(row["service"], "shop/web:http");
                assert_eq!(row["flows"]["started"], 0);
                let address: Ipv6Addr = row["address"].as_str().unwrap().parse().unwrap();
                assert_eq!(row["local"], address == POD);
                (address, row["sockets"][field].as_u64().unwrap())
            };
            rows["items"].as_array().unwrap().iter().map(row).collect()
        };
        assert_eq!(made[0].values().sum::<u64>(), 40);
        assert_eq!((counted("started"), counted("open")), made.into());

        let (screen, code) = place.screen("get backends shop/web");
        assert_eq!(code, 0);
        let lines: Vec<Vec<&str>> = screen
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let headings = ["SERVICE", "BACKEND", "LOCAL", "WEIGHT", "STARTED", "OPEN"];
        assert_eq!(lines[0], headings, "{screen}");
        assert_eq!(
            lines.len(),
            3,
            "node port and cluster IP share both: {screen}"
        );
        let here = format!("[{POD}]:8000");
        assert!(
            lines.iter().any(|line| line[1..4] == [&here, "yes", "1"]),
            "{screen}"
        );

        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
        assert_eq!(counted("open").values().sum::<u64>(), 0);
    });
}

#[test]
fn a_full_table_of_flows_is_shown() {
    with_place(|place| {
        drop(place.agent());
        place.fill_flows();
        let (rows, code) = place.screen("flows --all --no-headers");
        // A table of this kind lets a few go before it is full.
        assert!(
            code == 0 && rows.lines().count() > 100_000,
            "{}",
            rows.lines().count()
        );
        let list = place.json("flows --all -o json");
        assert!(list["items"].as_array().unwrap().len() > 100_000);
        let note = "the flow table is nearly full";
        for command in ["flows --all --limit 0", "flows --all"] {
            let (said, code) = place.said(command);
            assert!(code == 0 && said.contains(note), "{command}: {said}");
        }
        // The next agent counts the entries, reports the table in its log, and in its metrics.
        let log = place.node.dir().join("agent.log");
        let _agent = place.agent_with(|command| {
            command.stderr(File::create(&log).unwrap());
        });
        let of_flows = r#"dormouse_map_entries{map="flow"} "#;
        wait("the flows in the metrics", || {
            let entries = Inspected::metrics().lines().find_map(|line| {
                let entries = line.strip_prefix(of_flows)?;
                entries.parse::<u64>().ok()
            });
            entries.is_some_and(|entries| entries > 100_000)
        });
        assert!(Inspected::metrics().contains("dormouse_flows_evicted_total"));
        wait("the warning", || {
            fs::read_to_string(&log).unwrap().contains(note)
        });
    });
}
