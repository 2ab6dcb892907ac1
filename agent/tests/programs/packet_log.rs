//! The log of packets: which ones it has, what it says of them, how many lines there are, and what the programs of an agent without it are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use dormouse_agent_datapath::{Config, Datapath, Denied, Hook, WITHOUT_END, packet_filter};
use dormouse_agent_inspect::frame::Opening;
use dormouse_agent_services::Prefix;
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::packet_log::PROGRAMS;
use dormouse_rig::PATIENCE;
use dormouse_rig::address::{CLIENT, POD};
use dormouse_rig::frame::{ACK, SYN, tcp};
use serde_json::{Value, json};

use super::node::{Node, bpftool, serving, with_node};
use super::{HERE, THERE, VIP};

fn log(filter: &str) -> impl FnOnce(&mut Config) {
    let filter = packet_filter::parse(filter).unwrap();
    move |config| config.log_packets = Some(filter)
}

/// What the agent's log has of packets.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn read(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let fields = events.map(|event: Value| {
            assert_eq!(event["target"], "packets");
            event["fields"].clone()
        });
        fields.collect()
    }
}

/// The lines, as soon as there is one that fits.
fn lines_until(datapath: &Datapath, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let log = datapath.packet_log().expect("packets are logged");
    tokio.block_on(async {
        let there = async {
            while !lines.read().iter().any(&fits) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = log.run() => panic!("{ended:?}"),
            found = tokio::time::timeout(PATIENCE, there) => found.expect("the line"),
        }
    });
    lines.read()
}

fn arrive(datapath: &Datapath, hook: Hook, frame: &[u8]) {
    datapath.programs.run(hook, frame).unwrap();
}

#[test]
fn packets_that_the_filter_selects_are_logged_with_what_became_of_them() {
    with_node(|node| {
        let datapath = node.open_with(log("dst fd00:10::7 and tcp port 80"));
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let denied = Prefix::parse_or_single("2001:db8:bad::/48").unwrap();
        let denied = Denied {
            prefix: denied,
            until_ns: WITHOUT_END,
        };
        datapath.deny.replace([denied]).unwrap();
        let bad = ("2001:db8:bad::1".parse().unwrap(), 40_000);
        let [other_port, other_end] = [tcp(HERE, (VIP, 81), SYN), tcp(HERE, (POD, 80), SYN)];
        arrive(&datapath, Hook::UplinkIn, &other_port);
        arrive(&datapath, Hook::UplinkIn, &other_end);
        arrive(&datapath, Hook::UplinkIn, &tcp(HERE, THERE, SYN));
        arrive(&datapath, Hook::UplinkXdp, &tcp(bad, THERE, SYN));
        arrive(&datapath, Hook::UplinkIn, &tcp(bad, THERE, ACK));
        let lines = lines_until(&datapath, |line| line["flags"] == 0x10);
        let [served, in_driver, dropped] = lines.try_into().unwrap();

        let source = format!("[{CLIENT}]:40000");
        assert_eq!(
            served,
            json!({
                "message": "packet", "program": "tcx_uplink_in", "source": source, "destination": format!("[{VIP}]:80"),
                "protocol": "tcp", "len": 85, "flags": 2, "action": "pass", "verdicts": "served_local",
                "new_destination": format!("[{POD}]:8000"),
            })
        );
        assert_eq!(in_driver["program"], "xdp_uplink");
        for line in [in_driver, dropped] {
            assert_eq!(line["verdicts"], "dropped_denied");
            assert_eq!(line["action"], "drop");
            assert_eq!(line.get("new_source"), None);
        }
    });
}

#[test]
fn packets_of_ipv4_have_addresses_of_ipv4() {
    with_node(|node| {
        let datapath = node.open_with(log("src net 192.0.2.0/24"));
        let opening = Opening {
            source: "192.0.2.7:40000".parse().unwrap(),
            target: "198.51.100.1:22".parse().unwrap(),
            protocol: TCP,
        };
        arrive(&datapath, Hook::UplinkIn, &opening.frame());
        let lines = lines_until(&datapath, |_| true);
        assert_eq!(lines[0]["source"], "192.0.2.7:40000");
        assert_eq!(lines[0]["destination"], "198.51.100.1:22");
    });
}

#[test]
fn a_flood_has_a_limited_number_of_lines_and_the_rest_is_counted() {
    const SENT: u64 = 2_000;
    with_node(|node| {
        let datapath = node.open_with(log("dst port 22"));
        let began = std::time::Instant::now();
        for _ in 0..SENT {
            arrive(&datapath, Hook::UplinkIn, &tcp(HERE, (VIP, 22), SYN));
        }
        let at_most = 100 + began.elapsed().as_millis() / 10 + 1;
        // The last packet has a token, whatever the flood has used: its line has what the flood was not given.
        while began.elapsed().as_millis() / 10 < at_most {
            std::thread::yield_now();
        }
        arrive(&datapath, Hook::UplinkIn, &tcp(HERE, (VIP, 22), ACK));
        let lines = lines_until(&datapath, |line| line["flags"] == 0x10);
        let skipped = lines.iter().filter_map(|line| line["skipped"].as_u64());
        let skipped: u64 = skipped.sum();
        assert_eq!(lines.len() as u64 + skipped, SENT + 1);
        assert!(lines.len() as u128 <= at_most + 1, "{}", lines.len());
        assert!(skipped > 0);
    });
}

/// A program's instructions have the ring buffer's file descriptor until it is loaded.
#[test]
fn the_drivers_program_can_be_loaded_first_when_the_log_has_no_reader_any_more() {
    with_node(|node| {
        let datapath = node.open_with(log("dst port 80"));
        drop(datapath.packet_log().expect("packets are logged"));
        let run = datapath
            .programs
            .run(Hook::UplinkXdp, &tcp(HERE, THERE, SYN));
        run.expect("a program that is loaded");
    });
}

/// A loaded program: a hash and the bytes of what the verifier made of it, and the names of its maps.
#[derive(Debug, PartialEq, Eq)]
struct Verified {
    tag: String,
    bytes: u64,
    maps: BTreeSet<String>,
}

/// The programs that are attached, by the names of their links' pins.
fn verified(node: &Node) -> BTreeMap<String, Verified> {
    let links = node.links().into_iter();
    let programs = links.map(|(pin, link)| {
        let (_, name) = pin.split_once("/link_").unwrap();
        let shown = bpftool(&["prog", "show", "id", &link.program.to_string()]);
        let maps = shown["map_ids"].as_array().cloned().unwrap_or_default();
        let name_of = |id: &Value| {
            let map = bpftool(&["map", "show", "id", &id.to_string()]);
            map["name"].as_str().unwrap_or_default().to_owned()
        };
        let program = Verified {
            tag: shown["tag"].as_str().unwrap().to_owned(),
            bytes: shown["bytes_xlated"].as_u64().unwrap(),
            maps: maps.iter().map(name_of).collect(),
        };
        (name.to_owned(), program)
    });
    programs.collect()
}

#[test]
fn programs_of_an_agent_that_logs_no_packets_have_no_instruction_for_it() {
    const LOGS: &str = "AYA_LOGS";
    with_node(|node| {
        drop(node.open());
        let before = verified(node);
        assert!(before.contains_key("tcx_uplink_in"), "{before:?}");
        for (name, program) in &before {
            let logs = |map: &&String| *map == LOGS || map.starts_with("log_");
            assert_eq!(program.maps.iter().find(logs), None, "{name}");
        }

        drop(node.open_with(log("tcp")));
        for (name, program) in verified(node) {
            if PROGRAMS.contains(&name.as_str()) {
                assert!(program.maps.contains(LOGS), "{name}");
                assert!(program.bytes > before[&name].bytes, "{name}");
            } else {
                assert_eq!(program, before[&name], "{name}");
            }
        }

        drop(node.open());
        assert_eq!(verified(node), before, "the flag is gone");
    });
}
