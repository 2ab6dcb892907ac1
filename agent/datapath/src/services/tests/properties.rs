//! Properties of every sequence of events.

use std::net::IpAddr;

use dormouse_agent_services::{Protocol, Strictness};
use dormouse_agent_services_oracle::Packet;
use dormouse_agent_services_samples::objects::{self, ADDRESSES};
use proptest::prelude::*;

use super::bench::Bench;

/// Every packet between the addresses that objects name, some ports past those.
fn packets() -> Vec<Packet> {
    let sources = [
        "203.0.113.2",
        "10.244.1.1",
        "192.168.0.2",
        "fd00:10:244:1::1",
        "2001:db8::2",
        "2001:db8:9::9",
        "198.18.0.1",
    ];
    let addresses = ["172.30.0.9", "fd00:172:30::9", "192.168.1.2"];
    let read = |text: &&str| text.parse::<IpAddr>().ok();
    let targets: Vec<IpAddr> = ADDRESSES
        .iter()
        .chain(&addresses)
        .filter_map(read)
        .collect();
    let mut packets = Vec::new();
    for source in sources.iter().filter_map(read) {
        for &destination in targets
            .iter()
            .filter(|target| target.is_ipv4() == source.is_ipv4())
        {
            for port in [80, 443, 8_080, 30_080] {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    packets.push(Packet {
                        source,
                        destination: destination.to_canonical(),
                        port,
                        protocol,
                    });
                }
            }
        }
    }
    packets.retain(|packet| !packet.destination.is_loopback());
    packets
}

/// After each step another part of the packets is compared; at the end all are.
const PARTS: usize = 4;

/// Some seconds in an unoptimised build; `PROPTEST_CASES` sets more.
const CASES: u32 = 8;

fn config() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(CASES),
    }
}

fn compare(bench: &Bench, packets: impl IntoIterator<Item = Packet>, when: &str) {
    for packet in packets {
        assert_eq!(
            bench.outcomes(&packet),
            bench.wanted(&packet),
            "{when}: {packet:?}"
        );
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_maps_decide_like_the_services_and_a_restart_changes_nothing(
        steps in prop::collection::vec(prop::collection::vec(objects::event(), 0..8), 1..8),
        settles in 0_usize..8,
        strictness in prop::sample::select(vec![Strictness::SourceRanges, Strictness::KubeProxy]),
    ) {
        let mut bench = Bench::new(strictness);
        bench.settle();
        for (number, step) in steps.iter().enumerate() {
            for (object, present) in step {
                bench.apply_object(object, *present);
            }
            let served = bench.serve();
            prop_assert!(served.shed.is_empty(), "{:?}", served);
            let part = packets().into_iter().skip(number % PARTS).step_by(PARTS);
            compare(&bench, part, "after a step");
            if number == settles {
                let before = bench.snapshot();
                bench.restart();
                prop_assert_eq!(bench.snapshot(), before);
            }
        }
        bench.check();
        let before = bench.snapshot();
        bench.restart();
        prop_assert_eq!(bench.snapshot(), before);
        bench.check();
        compare(&bench, packets(), "after a restart");
        compare(&bench.afresh(), packets(), "from scratch");
    }
}
