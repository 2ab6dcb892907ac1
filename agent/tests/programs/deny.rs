//! The deny list: which packets from outside it drops, and that none of a denied source passes while it changes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::thread;

use dormouse_agent_datapath::{DENIED_MAX, Datapath, Denied, Hook, Verdict, WITHOUT_END};
use dormouse_agent_inspect::frame::Opening;
use dormouse_agent_services::Prefix;
use dormouse_ebpf::packet::TCP;
use dormouse_rig::address::{CLIENT, NODE, POD};
use dormouse_rig::frame::{ACK, SYN, tcp};
use dormouse_rig::tcx::{DROP, NEXT};

use super::node::{given, serving, with_node};
use super::{GROUP, HERE, SLLA, THERE, solicitation};

/// More than are changed in the list in force.
const MANY: u32 = 3_000;

fn denied(text: &str) -> Denied {
    Denied {
        prefix: Prefix::parse_or_single(text).unwrap(),
        until_ns: WITHOUT_END,
    }
}

/// So many single addresses of a range of documentation, none of which is used otherwise.
fn many(count: u32) -> impl Iterator<Item = Denied> {
    (0..count).map(|low| Denied {
        prefix: Prefix::single(
            Ipv6Addr::from_bits(0x2001_0db8_0bad << 80 | u128::from(low)).into(),
        ),
        until_ns: WITHOUT_END,
    })
}

/// Whether a packet of this source to the node is dropped; else it is left to the kernel.
fn is_dropped(datapath: &Datapath, source: &str) -> bool {
    let source: IpAddr = source.parse().unwrap();
    let target = if source.is_ipv4() {
        IpAddr::from([198, 51, 100, 1])
    } else {
        NODE.into()
    };
    let opening = Opening {
        source: SocketAddr::new(source, 40_000),
        target: SocketAddr::new(target, 22),
        protocol: TCP,
    };
    let before = given(datapath, Verdict::DroppedDenied);
    let run = datapath.programs.run(Hook::UplinkIn, &opening.frame());
    let verdict = run.unwrap().verdict;
    let counted = given(datapath, Verdict::DroppedDenied) - before;
    assert!(
        matches!((verdict, counted), (DROP, 1) | (NEXT, 0)),
        "{source}: {verdict} {counted}"
    );
    verdict == DROP
}

#[test]
fn packets_of_listed_sources_are_dropped_and_of_no_others() {
    with_node(|node| {
        let datapath = node.open();
        assert!(!is_dropped(&datapath, "2001:db8:7::1"), "no list");
        let list = ["2001:db8:7::/64", "2001:db8:8::9", "192.0.2.0/25"];
        datapath.deny.replace(list.map(denied)).unwrap();
        for source in [
            "2001:db8:7::1",
            "2001:db8:7:0:ffff::1",
            "2001:db8:8::9",
            "192.0.2.127",
        ] {
            assert!(is_dropped(&datapath, source), "{source}");
        }
        for source in ["2001:db8:7:1::1", "2001:db8:8::8", "192.0.2.128"] {
            assert!(!is_dropped(&datapath, source), "{source}");
        }
        datapath.deny.replace([]).unwrap();
        assert!(!is_dropped(&datapath, "2001:db8:7::1"), "an empty list");
    });
}

#[test]
fn connections_and_solicitations_of_a_denied_host_end() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let arrives = |frame: &[u8]| datapath.programs.run(Hook::UplinkIn, frame).unwrap();
        arrives(&tcp(HERE, THERE, SYN));
        datapath
            .deny
            .replace([denied(&CLIENT.to_string())])
            .unwrap();
        for frame in [
            tcp(HERE, THERE, ACK),
            tcp((CLIENT, 40_001), THERE, SYN),
            solicitation(CLIENT, GROUP, POD, &SLLA),
        ] {
            assert_eq!(arrives(&frame).verdict, DROP);
        }
        assert_eq!(given(&datapath, Verdict::DroppedDenied), 3);
        assert_eq!(given(&datapath, Verdict::Advertised), 0);
    });
}

#[test]
fn an_entry_that_has_ended_denies_nobody() {
    with_node(|node| {
        let datapath = node.open();
        let ended = |text| Denied {
            until_ns: 1,
            ..denied(text)
        };
        let list = [
            ended("2001:db8:7::1"),
            denied("2001:db8:7::/64"),
            ended("2001:db8:8::/64"),
        ];
        datapath.deny.replace(list).unwrap();
        assert!(is_dropped(&datapath, "2001:db8:7::1"), "the /64 has no end");
        assert!(!is_dropped(&datapath, "2001:db8:8::1"));
    });
}

#[test]
fn no_packet_of_a_denied_source_passes_while_lists_replace_each_other() {
    with_node(|node| {
        let datapath = node.open();
        let always = || denied("2001:db8:7::/64");
        datapath.deny.replace([always()]).unwrap();
        thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                for turn in 0..6 {
                    // In place, then by the other map.
                    let one = denied(&format!("2001:db8:9::{turn}"));
                    datapath.deny.replace([always(), one]).unwrap();
                    datapath.deny.replace(many(MANY).chain([always()])).unwrap();
                }
            });
            let mut sent = 0;
            while !replacing.is_finished() {
                assert!(is_dropped(&datapath, "2001:db8:7::1"), "packet {sent}");
                sent += 1;
            }
            assert!(sent > 10, "{sent} packets");
        });
        assert!(is_dropped(&datapath, "2001:db8:bad::1"));
        assert!(!is_dropped(&datapath, "2001:db8:9::5"), "an earlier list");
    });
}

#[test]
fn the_list_outlives_the_agent_and_the_next_one_replaces_it() {
    with_node(|node| {
        let datapath = node.open();
        datapath.deny.replace([denied("2001:db8:7::/64")]).unwrap();
        drop(datapath);
        let datapath = node.open();
        assert!(is_dropped(&datapath, "2001:db8:7::1"));
        let former: Vec<String> = datapath
            .deny
            .entries()
            .unwrap()
            .iter()
            .map(|one| one.prefix.to_string())
            .collect();
        assert_eq!(former, ["2001:db8:7::/64"]);
        datapath.deny.replace([denied("2001:db8:8::/64")]).unwrap();
        assert!(!is_dropped(&datapath, "2001:db8:7::1"));
        assert!(is_dropped(&datapath, "2001:db8:8::1"));
    });
}

#[test]
fn a_million_prefixes_are_taken_and_a_longer_list_changes_nothing() {
    with_node(|node| {
        let datapath = node.open();
        datapath.deny.replace([denied("2001:db8:7::/64")]).unwrap();
        let longer = datapath.deny.replace(many(DENIED_MAX + 1));
        let error = longer.unwrap_err().to_string();
        assert!(error.contains("too many denied prefixes"), "{error}");
        assert!(is_dropped(&datapath, "2001:db8:7::1"), "the list before");
        datapath.deny.replace(many(DENIED_MAX)).unwrap();
        assert!(!is_dropped(&datapath, "2001:db8:7::1"));
        for source in ["2001:db8:bad::", "2001:db8:bad::f:ffff"] {
            assert!(is_dropped(&datapath, source), "{source}");
        }
        assert!(!is_dropped(&datapath, "2001:db8:bad::10:0"));
    });
}
