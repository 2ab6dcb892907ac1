//! What crosses a Service in bulk: long streams, large datagrams, and paths with a narrow place.

use std::time::Instant;

use dormouse_world::Program;
use serde_json::{Value, json};

use crate::acts::Acts;
use crate::checks::at;
use crate::client::{sized_udp, transfer};
use crate::manifests::{Service, service};
use crate::place::Place;
use crate::server::{Server, servers};
use crate::stage::{NODE_PORT, POD_PORT, Stage, wait};

/// A transfer's length, each way.
const STREAM_LEN: usize = 64 << 20;
/// Enough to be many packets of every size up to the largest that the kernel joins.
const NARROW_LEN: usize = 4 << 20;
/// Three fragments.
const DATAGRAM_LEN: usize = 4_000;
/// iperf3's own port: the VIP has the same, for its control connection names no other.
const IPERF_PORT: u16 = 5_201;
/// The largest packet of the narrow place.
const NARROW: u16 = 1_400;

pub(crate) struct Transfers {
    pub(crate) stage: Stage,
    _servers: Vec<Server>,
}

impl Transfers {
    pub(crate) fn set() -> Self {
        let mut stage = Stage::set();
        let servers = servers(&stage);
        let [a1, b1, a2, _] = [0, 1, 2, 3].map(|place| stage.ends()[place].clone());
        let hosts = [0, 1].map(|node| stage.nodes[node].ends.clone());
        let local = json!({"externalTrafficPolicy": "Local", "externalIPs": ["fd00:30::43"]});
        let dual = |name: &str, ips: &[&str], outer: Value| {
            service(name, ips, NODE_PORT).with(&json!({"externalIPs": outer}))
        };
        stage.apply(&[
            service("near", &["fd00:20::41"], POD_PORT).to(std::slice::from_ref(&b1)),
            service("away", &["fd00:20::42"], POD_PORT)
                .to(std::slice::from_ref(&a2))
                .with(&json!({"externalIPs": ["fd00:30::42"]})),
            service("kept", &["fd00:20::43"], POD_PORT)
                .node_port(30_043)
                .to(&[a1])
                .with(&local),
            dual(
                "here",
                &["fd00:20::44", "10.96.0.44"],
                json!(["203.0.113.44", "fd00:30::44"]),
            )
            .to(&hosts[0]),
            dual(
                "there",
                &["fd00:20::45", "10.96.0.45"],
                json!(["203.0.113.45", "fd00:30::45"]),
            )
            .to(&hosts[1]),
            iperf("iperf-near", "fd00:20::46").to(&[b1]),
            iperf("iperf-away", "fd00:20::47").to(&[a2]),
        ]);
        Self {
            stage,
            _servers: servers,
        }
    }

    pub(crate) fn play(&self, acts: &mut Acts) {
        self.streams(acts);
        self.datagrams(acts);
        self.iperf(acts);
        self.narrow(acts);
    }

    /// Who asks, and for what: one path each.
    fn ways(&self) -> [(&'static str, &Place, &'static str); 8] {
        let pod = self.stage.pod(0, 0);
        let node = &self.stage.nodes[0].place;
        [
            ("a pod's sockets, same node", &pod.place, "fd00:20::41"),
            ("a pod's sockets, other node", &pod.place, "fd00:20::42"),
            ("a pod's packets, same node", &pod.bare, "fd00:20::41"),
            ("a pod's packets, other node", &pod.bare, "fd00:20::42"),
            (
                "from outside, other node",
                &self.stage.client,
                "fd00:30::42",
            ),
            (
                "from outside, policy Local",
                &self.stage.client,
                "fd00:30::43",
            ),
            (
                "from outside, the node itself, IPv4",
                &self.stage.client,
                "203.0.113.44",
            ),
            ("the node's sockets, other node, IPv4", node, "10.96.0.45"),
        ]
    }

    fn streams(&self, acts: &mut Acts) {
        acts.play(
            "segments are as large on the way as the kernel makes them",
            || {
                for place in [&self.stage.pod(0, 0).bare, &self.stage.client] {
                    let features = place.run("ethtool", "-k eth0");
                    assert!(
                        features.contains("tcp-segmentation-offload: on"),
                        "{features}"
                    );
                }
            },
        );
        for (way, place, ip) in self.ways() {
            acts.play(&format!("64 MiB go both ways at once: {way}"), || {
                let began = Instant::now();
                transfer(place, at(ip, 80), STREAM_LEN).unwrap();
                let mebibytes = 2 * (STREAM_LEN >> 20);
                eprintln!(
                    "  {} MiB/s",
                    mebibytes as u128 * 1_000 / began.elapsed().as_millis()
                );
            });
        }
    }

    fn datagrams(&self, acts: &mut Acts) {
        for (way, place, ip) in self.ways() {
            acts.play(
                &format!("datagrams in fragments go both ways: {way}"),
                || {
                    for _ in 0..8 {
                        let heard = sized_udp(place, at(ip, 80), DATAGRAM_LEN).unwrap();
                        assert_eq!(heard.from, at(ip, 80));
                    }
                },
            );
        }
    }

    fn iperf(&self, acts: &mut Acts) {
        let there = std::process::Command::new("iperf3")
            .arg("--version")
            .output();
        if there.is_err() {
            return eprintln!("skipped: iperf3 is not installed");
        }
        let pod = self.stage.pod(0, 0);
        for (way, backend, ip) in [
            ("same node", (0, 1), "fd00:20::46"),
            ("other node", (1, 0), "fd00:20::47"),
        ] {
            let backend = self.stage.pod(backend.0, backend.1);
            let program = Program::new("iperf3").args(["-s", "-p", &IPERF_PORT.to_string()]);
            let _server = self
                .stage
                .world
                .spawn(
                    &backend.host,
                    &program.log(pod.host.log(&format!("iperf-{way}"))),
                )
                .unwrap();
            wait("iperf3 to listen", || {
                pod.place
                    .dial((backend.end.address, IPERF_PORT).into())
                    .is_ok()
            });
            for (host, by) in [
                (pod.host.clone(), "sockets"),
                (self.stage.world.client().clone(), "outside, by packets"),
            ] {
                for direction in ["", "-R"] {
                    acts.play(&format!("iperf3 {direction}: {way}, by {by}"), || {
                        let log = pod
                            .host
                            .log(&format!("iperf-client-{way}-{by}-{direction}"));
                        let client = Program::new("iperf3").args([
                            "-c",
                            ip,
                            "-p",
                            &IPERF_PORT.to_string(),
                            "-J",
                            "-t",
                            "1",
                        ]);
                        let client = if direction.is_empty() {
                            client
                        } else {
                            client.arg(direction)
                        };
                        let mut client = self.stage.world.spawn(&host, &client.log(log)).unwrap();
                        wait("iperf3 to end", || client.ended().is_some());
                        let told: Value = serde_json::from_str(&client.output()).unwrap();
                        let bits = told["end"]["sum_received"]["bits_per_second"].as_f64();
                        let bits = bits.unwrap_or_else(|| panic!("{told}"));
                        eprintln!("  {:.1} Gbit/s", bits / 1e9);
                        assert!(bits > 1e6, "{bits}");
                    });
                }
            }
        }
    }

    /// From here on there is a narrow place before the far host and, for who goes by the router, before the second node.
    fn narrow(&self, acts: &mut Acts) {
        self.constrict();
        let (pod, node) = (self.stage.pod(0, 0), &self.stage.nodes[0].place);
        for (way, place, ip) in [
            (
                "outside to a remote pod, hidden",
                &self.stage.far,
                "fd00:30::42",
            ),
            (
                "outside to a local pod, policy Local",
                &self.stage.far,
                "fd00:30::43",
            ),
            ("outside to the node itself", &self.stage.far, "fd00:30::44"),
            (
                "outside to the other node itself",
                &self.stage.far,
                "fd00:30::45",
            ),
            (
                "outside to the node itself, IPv4",
                &self.stage.far,
                "203.0.113.44",
            ),
            (
                "outside to the other node itself, IPv4",
                &self.stage.far,
                "203.0.113.45",
            ),
            ("a pod's packets to a remote pod", &pod.bare, "fd00:20::42"),
        ] {
            acts.play(&format!("a path learns how narrow it is: {way}"), || {
                let before = self.stage.counted(0, "error_translated");
                transfer(place, at(ip, 80), NARROW_LEN).unwrap();
                let errors = self.stage.counted(0, "error_translated") - before;
                assert!(errors > 0, "the fault did not happen");
            });
        }
        for (way, place, ip) in [
            ("a pod's sockets to a remote pod", &pod.place, "fd00:20::42"),
            ("the node's sockets to a remote pod", node, "fd00:20::42"),
        ] {
            acts.play(&format!("a path learns how narrow it is: {way}"), || {
                transfer(place, at(ip, 80), NARROW_LEN).unwrap();
            });
        }
    }

    fn constrict(&self) {
        let router = &self.stage.router;
        let (first, second) = (&self.stage.nodes[0], &self.stage.nodes[1]);
        let prefix = format!("{}/96", second.host.prefix.unwrap());
        router.run(
            "ip",
            &format!("-6 route add 2001:db8:fa::2/128 dev eth1 mtu lock {NARROW}"),
        );
        router.run(
            "ip",
            &format!("route add 198.51.100.2/32 dev eth1 mtu lock {NARROW}"),
        );
        router.run(
            "ip",
            &format!("-6 route add {prefix} dev eth0 mtu lock {NARROW}"),
        );
        let by = self.stage.world.control().address;
        let first = Place::outside(&first.host.netns);
        first.run("ip", &format!("-6 route add {prefix} via {by}"));
    }
}

fn iperf(name: &str, ip: &str) -> Service {
    service(name, &[ip], IPERF_PORT).port(IPERF_PORT)
}
