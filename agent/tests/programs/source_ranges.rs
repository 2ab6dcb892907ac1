//! Services' source ranges at the uplink: the XDP program drops what the classifier drops for its source, and nothing else.

use std::net::{IpAddr, SocketAddr};

use dormouse_agent_datapath::{Datapath, Hook, Pinned, Verdict};
use dormouse_agent_inspect::frame::Opening;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_rig::address::CLIENT;
use dormouse_rig::frame::{ACK, HEADERS, SYN, behind, tcp};
use dormouse_rig::tcx;
use dormouse_rig::xdp::{DROP, PASS};

use super::mutated::world::{self, CLIENT4, PORT, RANGED, RANGED4};
use super::node::{Node, with_node};
use super::xdp::{counted, received};

/// A source that no load balancer admits, by family.
const STRANGER: &str = "2001:db8:5::1";
const STRANGER4: &str = "198.51.100.1";
const PROTOCOLS: [u8; 3] = [6, 17, 132];

/// The first packets of a source to the load balancer of its family.
fn openings(source: IpAddr) -> impl Iterator<Item = Vec<u8>> {
    let target: IpAddr = if source.is_ipv4() {
        RANGED4.into()
    } else {
        RANGED.into()
    };
    PROTOCOLS.into_iter().map(move |protocol| {
        let opening = Opening {
            source: SocketAddr::new(source, 40_000),
            target: SocketAddr::new(target, PORT),
            protocol,
        };
        opening.frame()
    })
}

/// Packets that were dropped for their source, by slot.
fn dropped(node: &Node) -> Vec<(u32, u64)> {
    let drops = Pinned::open(&node.config.bpffs).unwrap().drops().unwrap();
    let verdict = Verdict::DroppedRange as u32;
    let of_it = drops.into_iter().filter(|(key, _)| key.verdict == verdict);
    let mut counts: Vec<_> = of_it.map(|(key, count)| (key.slot, count)).collect();
    counts.sort_unstable();
    counts
}

/// Whether the XDP program drops a frame. The classifier drops it all the same, if `too`.
fn is_dropped(datapath: &Datapath, frame: &[u8], too: bool) -> bool {
    let (xdp, noted) = counted(datapath, || received(datapath, frame));
    let by_driver = xdp.verdict == DROP;
    let wanted: &[_] = if by_driver { &["dropped_range"] } else { &[] };
    assert_eq!(noted, wanted);
    assert!(by_driver || (xdp.verdict, &xdp.frame[..]) == (PASS, frame));
    let run = || datapath.programs.run(Hook::UplinkIn, frame).unwrap();
    let (classified, noted) = counted(datapath, run);
    assert_eq!(classified.verdict == tcx::DROP, too);
    assert_eq!(noted.contains(&"dropped_range"), too);
    by_driver
}

#[test]
fn a_source_outside_the_ranges_is_dropped_by_the_driver_and_counted_as_the_classifier_counts_it() {
    with_node(|node| {
        let datapath = world::open(node);
        for source in [STRANGER, STRANGER4] {
            for frame in openings(source.parse().unwrap()) {
                let before = dropped(node);
                received(&datapath, &frame);
                let by_driver = dropped(node);
                datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
                let by_both = dropped(node);
                let new = |before: &[(u32, u64)], after: &[(u32, u64)]| -> Vec<_> {
                    let had = |slot| {
                        before
                            .iter()
                            .find(|(of, _)| *of == slot)
                            .map_or(0, |it| it.1)
                    };
                    let gone = after
                        .iter()
                        .map(|(slot, count)| (*slot, count - had(*slot)));
                    gone.filter(|(_, count)| *count != 0).collect()
                };
                let counted = new(&before, &by_driver);
                assert_eq!(counted, new(&by_driver, &by_both));
                assert!(
                    matches!(counted[..], [(slot, 1)] if slot != NO_SLOT),
                    "{counted:?}"
                );
                assert!(is_dropped(&datapath, &frame, true));
            }
        }
    });
}

#[test]
fn a_source_in_the_ranges_passes_the_driver_and_so_does_its_connection() {
    with_node(|node| {
        let datapath = world::open(node);
        for source in [IpAddr::from(CLIENT), CLIENT4.into()] {
            for frame in openings(source) {
                for _ in 0..2 {
                    assert!(!is_dropped(&datapath, &frame, false));
                }
            }
        }
    });
}

#[test]
fn the_middle_of_an_unknown_connection_is_dropped_but_left_to_another_proxy_beside_this_one() {
    with_node(|node| {
        let datapath = world::open(node);
        let middle = tcp((STRANGER.parse().unwrap(), 40_000), (RANGED, PORT), ACK);
        assert!(is_dropped(&datapath, &middle, true));
        datapath.facts.set_beside_proxy(true).unwrap();
        assert!(!is_dropped(&datapath, &middle, false));
    });
}

/// The later fragments of a packet have no ports: the classifier drops them by those of the first one, which it has to see.
#[test]
fn a_fragment_is_left_to_the_classifier() {
    with_node(|node| {
        let datapath = world::open(node);
        let mut open = tcp((STRANGER.parse().unwrap(), 40_000), (RANGED, PORT), SYN);
        // All fragments but the last have a multiple of 8 bytes.
        let payload = open.len() - HEADERS;
        open.resize(HEADERS + payload.next_multiple_of(8), 0);
        let first = behind(44, &[0, 0, 0, 1, 0, 0, 0, 7], &open);
        let later = behind(44, &[0, 0, 0, 0x40, 0, 0, 0, 7], &open);
        assert!(!is_dropped(&datapath, &first, true));
        assert!(!is_dropped(&datapath, &later, true));
    });
}
