//! The log of packets (`--log-packets`), as an operator uses it: by the agent's own log, across restarts.

use std::fs::{self, File};
use std::path::Path;

use dormouse_rig::address::{CLIENT, NODE};
use dormouse_rig::frame::{SYN, tcp};
use dormouse_rig::node::FAR_END;
use dormouse_rig::{Agent, Node, on_node, wait};
use dormouse_world::PacketSocket;
use serde_json::Value;

const FILTER: &str = "src 2001:db8:d0::100 and tcp dst port 8443";
const FILTERED: u16 = 8_443;

/// Starts an agent whose log is in a file.
fn start(node: &Node, flags: &[&str], log: &Path) -> Agent {
    let mut command = node.home().run();
    command.args(["--metrics", "[::1]:0"]).args(flags);
    command.stderr(File::create(log).unwrap());
    Agent::serving(&mut command, &node.home().socket())
}

/// Sends a SYN of a host on the uplink's link to the node.
fn knock(port: u16) {
    let far = PacketSocket::open(FAR_END).unwrap();
    far.send(&tcp((CLIENT, 40_000), (NODE, port), SYN)).unwrap();
}

/// The packets in a log.
fn packets(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    // The last line may be written at the moment.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let events = whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    events
        .filter(|event: &Value| event["target"] == "packets")
        .collect()
}

/// The first packet in a log, whose packets are sent until the programs are in force.
fn line_of(log: &Path, send: impl Fn()) -> Value {
    wait("a packet's line", || {
        send();
        !packets(log).is_empty()
    });
    packets(log).remove(0)
}

#[test]
fn the_agents_log_has_the_packets_that_the_filter_selects_until_an_agent_has_none() {
    on_node(|node| {
        node.take_address();
        let [first, second, third] = ["first", "second", "third"].map(|name| {
            let folder = node.home().folder.clone();
            folder.join(format!("{name}.log"))
        });
        let agent = start(node, &["--log-packets", FILTER], &first);
        let line = line_of(&first, || {
            knock(FILTERED - 1);
            knock(FILTERED);
        });
        let fields = &line["fields"];
        assert_eq!(fields["source"], format!("[{CLIENT}]:40000"));
        assert_eq!(fields["destination"], format!("[{NODE}]:{FILTERED}"));
        assert_eq!(fields["program"], "tcx_uplink_in");
        assert_eq!(fields["action"], "pass");

        agent.kill();
        // Nobody reads the lines: the packets pass all the same.
        knock(FILTERED);
        let agent = start(node, &["--log-packets", FILTER], &second);
        line_of(&second, || knock(FILTERED));
        agent.kill();

        let _agent = start(node, &[], &third);
        let text = || fs::read_to_string(&third).unwrap();
        wait("the third agent", || text().contains(r#""running""#));
        knock(FILTERED);
        assert_eq!(packets(&third), [] as [Value; 0]);
    });
}

#[test]
fn a_text_that_is_no_filter_is_refused_with_what_is_understood() {
    on_node(|node| {
        let mut command = node.home().run();
        let output = command.args(["--log-packets", "tcp or udp"]).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("`or` is not supported"), "{error}");
    });
}
