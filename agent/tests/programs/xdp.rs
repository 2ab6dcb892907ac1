//! The uplink's XDP program: it drops and answers what the classifier would, passes all else untouched, and is attached where it is of use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_agent_datapath::{Datapath, Denied, Hook, Run, Verdict, WITHOUT_END, XdpMode, detach};
use dormouse_agent_services::Prefix;
use dormouse_ebpf::flow::FLOWS_MAX;
use dormouse_ebpf::packet::ETHERTYPE;
use dormouse_rig::address::{CLIENT, NODE, POD};
use dormouse_rig::frame::{self, MACS, SYN, behind, seal, tcp};
use dormouse_rig::tcx;
use dormouse_rig::xdp::{DROP, PASS, TX};
use dormouse_rig::{FAR_END, UPLINK, wait};
use dormouse_world::PacketSocket;

use super::mutated::world;
use super::node::{VIP, given, with_node};
use super::{GROUP, HERE, SLLA, THERE, solicitation};

/// Frames that are sent before a take-over begins, and how long after each other.
const UNDER_WAY: u64 = 50;
const INTERVAL: Duration = Duration::from_micros(100);
/// Times that all valid packets are sent.
const ROUNDS: usize = 3;
/// The verdicts that the screen gives, whatever the node serves.
const SCREENED: [Verdict; 3] = [
    Verdict::DroppedDenied,
    Verdict::DroppedSpoofed,
    Verdict::DroppedMalformed,
];

/// Runs the XDP program over a frame for this host: the classifier's runs are, too.
pub(super) fn received(datapath: &Datapath, frame: &[u8]) -> Run {
    let is_unicast = frame[0] & 1 == 0;
    let to = if is_unicast { &MACS.1 } else { &frame[..6] };
    let run = datapath
        .programs
        .run(Hook::UplinkXdp, &[to, &frame[6..]].concat());
    let mut run = run.unwrap();
    if run.verdict == PASS && is_unicast {
        run.frame[..6].copy_from_slice(&frame[..6]);
    }
    run
}

/// Whether the XDP program does with a frame what the classifier has done, as far as it may do anything; returns its verdict.
pub(super) fn compare(
    datapath: &Datapath,
    sent: &[u8],
    classified: &Run,
) -> Result<u32, &'static str> {
    let xdp = received(datapath, sent);
    match xdp.verdict {
        PASS if xdp.frame != sent => Err("XDP passes another frame"),
        PASS if classified.verdict == tcx::DROP && is_screened(datapath, sent) => {
            Err("XDP passes what the classifier's screen drops")
        }
        DROP if classified.verdict != tcx::DROP => Err("XDP drops what the classifier does not"),
        TX if classified.verdict != tcx::REDIRECT => Err("XDP sends what the classifier does not"),
        TX if !is_same(sent, classified, &xdp) => Err("XDP sends otherwise than the classifier"),
        PASS | DROP | TX => Ok(xdp.verdict),
        _ => Err("no verdict of the XDP program"),
    }
}

/// Whether both send the same frame. Its link-layer addresses are the classifier's business only if it answers: what it forwards gets them
/// from the kernel.
fn is_same(sent: &[u8], classified: &Run, xdp: &Run) -> bool {
    let is_answer = classified.frame[..ETHERTYPE] != sent[..ETHERTYPE];
    let from = if is_answer { 0 } else { ETHERTYPE };
    classified.frame[from..] == xdp.frame[from..]
}

/// Whether the classifier's screen drops a frame: by the counters of one more run.
fn is_screened(datapath: &Datapath, frame: &[u8]) -> bool {
    let screened = || SCREENED.map(|verdict| given(datapath, verdict));
    let before = screened();
    datapath.programs.run(Hook::UplinkIn, frame).unwrap();
    before != screened()
}

fn counts(datapath: &Datapath) -> BTreeMap<&'static str, u64> {
    let stats = datapath.stats().into_iter();
    stats
        .map(|(verdict, count)| (verdict.name(), count))
        .collect()
}

/// The verdicts of what the kernels of the pods and hosts send by themselves meanwhile.
const BESIDE: [Verdict; 2] = [Verdict::Established, Verdict::DroppedLink];

/// The verdicts that a run has counted.
pub(super) fn counted(datapath: &Datapath, run: impl FnOnce() -> Run) -> (Run, Vec<&'static str>) {
    let before = counts(datapath);
    let run = run();
    let after = counts(datapath);
    let new = after
        .into_iter()
        .filter(|(name, _)| !BESIDE.iter().any(|one| one.name() == *name));
    let new = new.filter(|(name, count)| before[name] != *count);
    (run, new.map(|(name, _)| name).collect())
}

/// A packet of this source to the pod.
fn from(source: &str) -> Vec<u8> {
    tcp((source.parse().unwrap(), 40_000), (POD, 22), SYN)
}

/// The name of a frame, the frame, the verdict of the XDP program, and what it counts.
type Case = (&'static str, Vec<u8>, u32, Option<Verdict>);

/// A frame of each kind that passes.
fn passing() -> Vec<Case> {
    let mut of_vlan = tcp(HERE, THERE, SYN);
    of_vlan[12] = 0x81;
    let echo = frame::ipv6(
        MACS,
        (frame::ICMPV6, 64),
        (CLIENT, NODE),
        &[128, 0, 0, 0, 0, 0, 0, 0],
    );
    let elsewhere = solicitation(CLIENT, GROUP, NODE, &SLLA);
    let frames = [
        ("a SYN to a VIP", tcp(HERE, THERE, SYN)),
        ("a SYN to the node", tcp(HERE, (NODE, 22), SYN)),
        ("a link-local source to a pod", from("fe80::1")),
        ("a VLAN's", of_vlan),
        ("an echo", seal(echo, 2)),
    ];
    let frames = frames.map(|(name, frame)| (name, frame, PASS, None));
    let solicited = Some(Verdict::Solicited);
    let elsewhere = ("a solicitation for another", elsewhere, PASS, solicited);
    frames.into_iter().chain([elsewhere]).collect()
}

/// A frame of each kind that is dropped for its addresses, or answered.
fn known_by_addresses() -> Vec<Case> {
    let link_local = ("fe80::1".parse().unwrap(), 1);
    let forged = solicitation(POD, GROUP, POD, &SLLA);
    let asked = solicitation(CLIENT, GROUP, POD, &SLLA);
    let (denied, spoofed) = (Verdict::DroppedDenied, Verdict::DroppedSpoofed);
    let martian = Verdict::DroppedMartian;
    let frames = [
        ("of a denied source", from("2001:db8:bad::1"), denied),
        (
            "a pod here as the source",
            tcp((POD, 80), (VIP, 22), SYN),
            spoofed,
        ),
        ("a solicitation of a forged source", forged, spoofed),
        (
            "a link-local source to a VIP",
            tcp(link_local, THERE, SYN),
            martian,
        ),
        ("a loopback source", from("::1"), martian),
        ("a group as the source", from("ff02::1"), martian),
    ];
    let frames = frames.map(|(name, frame, verdict)| (name, frame, DROP, Some(verdict)));
    let answered = (
        "a solicitation for a pod",
        asked,
        TX,
        Some(Verdict::Advertised),
    );
    frames.into_iter().chain([answered]).collect()
}

/// A frame of each kind that is malformed.
fn malformed() -> Vec<Case> {
    let open = tcp(HERE, THERE, SYN);
    let with = |at: usize, value: u8| {
        let mut frame = open.clone();
        frame[at] = value;
        frame
    };
    // The first fragment of a packet, with 8 of TCP's 20 bytes.
    let mut first = behind(44, &[0, 0, 0, 1, 0, 0, 0, 7], &open);
    first.truncate(54 + 8 + 8);
    first[18..20].copy_from_slice(&[0, 16]);
    let options = (0..9).fold(open.clone(), |frame, _| behind(60, &[0; 8], &frame));
    let frames = [
        ("a length behind its end", with(19, 0xff)),
        ("cut in its TCP header", open[..60].to_vec()),
        ("a header length of nothing", with(66, 0)),
        ("a first fragment that ends in TCP's header", first),
        ("nine extension headers", options),
    ];
    let malformed = Some(Verdict::DroppedMalformed);
    let frames = frames.map(|(name, frame)| (name, frame, DROP, malformed));
    frames.into()
}

#[test]
fn the_driver_drops_and_answers_what_the_classifier_does_and_passes_all_else() {
    with_node(|node| {
        let datapath = node.open();
        let denied = Denied {
            prefix: Prefix::parse_or_single("2001:db8:bad::/48").unwrap(),
            until_ns: WITHOUT_END,
        };
        datapath.deny.replace([denied]).unwrap();
        let cases = [passing(), known_by_addresses(), malformed()].concat();
        for (name, sent, verdict, expected) in cases {
            let (xdp, noted) = counted(&datapath, || received(&datapath, &sent));
            assert_eq!(xdp.verdict, verdict, "{name}");
            let expected: Vec<_> = expected.map(Verdict::name).into_iter().collect();
            assert_eq!(noted, expected, "{name}");
            let run = || datapath.programs.run(Hook::UplinkIn, &sent).unwrap();
            let (classified, noted) = counted(&datapath, run);
            let compared = compare(&datapath, &sent, &classified);
            assert_eq!(compared, Ok(verdict), "{name}");
            if verdict != PASS {
                assert_eq!(noted, expected, "{name}, at the classifier");
            }
        }
    });
}

#[test]
fn a_vip_sends_nothing_from_outside() {
    with_node(|node| {
        let datapath = node.open_without_pods(|_| {});
        let forged = tcp((VIP, 80), (POD, 22), SYN);
        assert_eq!(received(&datapath, &forged).verdict, DROP);
        let run = datapath.programs.run(Hook::UplinkIn, &forged).unwrap();
        assert_eq!(run.verdict, tcx::DROP);
        assert_eq!(given(&datapath, Verdict::DroppedSpoofed), 2);
    });
}

#[test]
fn every_valid_packet_passes_the_driver_or_is_sent_on_as_by_the_classifier() {
    with_node(|node| {
        let datapath = world::open(node);
        let (mut passed, mut requests, mut replies) = (0, 0, 0);
        let reply_seeds = world::replies(&datapath);
        // Flows have to be established first.
        for _ in 0..ROUNDS {
            for (hook, sent) in world::seeds() {
                let verdict = handle(&datapath, &sent);
                let comes = hook == Hook::UplinkIn;
                passed += u32::from(comes && verdict == (PASS, false));
                requests += u32::from(comes && verdict == (TX, true));
            }
            for (_, sent) in &reply_seeds {
                replies += u32::from(handle(&datapath, sent) == (TX, true));
            }
        }
        assert!(
            passed > 10 && requests > 0 && replies > 0,
            "{passed}, {requests}, {replies}"
        );
    });
}

/// Gives a frame to the classifier, and then to the XDP program. Returns that one's verdict, and whether it has counted the frame as sent on.
fn handle(datapath: &Datapath, sent: &[u8]) -> (u32, bool) {
    let classified = datapath.programs.run(Hook::UplinkIn, sent).unwrap();
    let before = given(datapath, Verdict::XdpForwarded);
    let verdict = compare(datapath, sent, &classified).unwrap();
    (verdict, given(datapath, Verdict::XdpForwarded) > before)
}

/// A frame for another host is not this node's to judge: a capture is to see it.
#[test]
fn frames_for_other_hosts_pass() {
    with_node(|node| {
        let datapath = node.open();
        let mut forged = from(&POD.to_string());
        assert_eq!(received(&datapath, &forged).verdict, DROP);
        forged[5] ^= 0x40;
        let run = datapath.programs.run(Hook::UplinkXdp, &forged).unwrap();
        assert_eq!((run.verdict, run.frame), (PASS, forged));
        assert_eq!(given(&datapath, Verdict::DroppedSpoofed), 1);
    });
}

/// What the kernel says is attached to a link in any mode of XDP: the mode and the program's id.
fn attached(link: &str) -> Option<(u64, u64)> {
    let shown = Command::new("ip")
        .args(["-j", "link", "show", "dev", link])
        .output();
    let shown: serde_json::Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
    let xdp = shown[0].get("xdp")?;
    Some((xdp["mode"].as_u64()?, xdp["prog"]["id"].as_u64()?))
}

#[test]
fn nothing_is_attached_to_a_veth_unless_it_is_asked_for() {
    with_node(|node| {
        for mode in [XdpMode::Auto, XdpMode::Off] {
            let datapath = node.open_with(|config| config.xdp = mode);
            assert_eq!(attached(UPLINK), None, "{mode:?}");
            drop(datapath);
        }
    });
}

#[test]
fn the_native_program_is_replaced_in_place_and_removed_when_it_is_not_wanted() {
    /// `XDP_ATTACHED_DRV` of linux/if_link.h.
    const NATIVE: u64 = 1;
    with_node(|node| {
        let link_of = |node: &super::node::Node| {
            let links = node.links();
            let link = links
                .into_iter()
                .find(|(pin, _)| pin.ends_with("link_xdp_uplink"));
            link.map(|(_, link)| link)
        };
        let native = || node.open_with(|config| config.xdp = XdpMode::Native);
        drop(native());
        let (mode, first) = attached(UPLINK).expect("attached");
        assert_eq!(mode, NATIVE);
        assert_eq!(attached(FAR_END), None);
        let pinned = link_of(node).expect("a pinned link");
        assert_eq!(pinned.program, first);
        // The agent is gone, and the program stays.
        drop(native());
        let (_, second) = attached(UPLINK).expect("attached");
        assert_ne!(first, second, "the next agent's program");
        assert_eq!(
            link_of(node).expect("a pinned link").link,
            pinned.link,
            "in the same link"
        );
        drop(node.open());
        assert_eq!(attached(UPLINK), None);
        assert!(link_of(node).is_none());
    });
}

/// The link is never without a program: frames that arrive meanwhile are counted once each, by one data path or the next.
#[test]
fn the_native_program_goes_over_to_a_data_path_of_another_layout_under_load() {
    with_node(|node| {
        let native = |flows_max| {
            node.open_with(|config| {
                config.xdp = XdpMode::Native;
                config.flows_max = flows_max;
            })
        };
        drop(native(FLOWS_MAX / 2));
        let (_, first) = attached(UPLINK).expect("attached");
        let pinned = || -> Vec<_> {
            let links = node.links().into_iter();
            links
                .filter(|(pin, _)| pin.ends_with("link_xdp_uplink"))
                .collect()
        };
        let before = pinned();
        let far_end = PacketSocket::open(FAR_END).unwrap();
        let (is_over, begun) = (AtomicBool::new(false), Barrier::new(2));
        let (after, sent) = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let martian = from("::1");
                let mut sent = 0;
                while !is_over.load(Ordering::Relaxed) {
                    far_end.send(&martian).unwrap();
                    sent += 1;
                    if sent == UNDER_WAY {
                        begun.wait();
                    }
                    std::thread::sleep(INTERVAL);
                }
                sent
            });
            begun.wait();
            let after = native(FLOWS_MAX);
            is_over.store(true, Ordering::Relaxed);
            (after, load.join().unwrap())
        });
        assert!(sent > 2 * UNDER_WAY, "{sent} are no load");
        wait("each frame to be counted", || {
            given(&after, Verdict::DroppedMartian) == sent
        });
        let (_, second) = attached(UPLINK).expect("attached");
        assert_ne!(first, second, "the next agent's program");
        let [(old_pin, old)] = &before[..] else {
            panic!("one pin: {before:?}");
        };
        let now = pinned();
        let [(pin, link)] = &now[..] else {
            panic!("one pin: {now:?}");
        };
        assert_ne!(old_pin, pin, "the old pin is gone");
        assert_eq!(
            (old.link, second),
            (link.link, link.program),
            "in the same link"
        );
    });
}

#[test]
fn a_link_that_has_another_xdp_program_keeps_it_and_the_node_starts() {
    with_node(|node| {
        // The other program is that of a node with other pins.
        let name = format!("{}-other", node.config.bpffs.display());
        let pins = PathBuf::from(name);
        let other = node.open_with(|config| {
            config.xdp = XdpMode::Native;
            config.bpffs.clone_from(&pins);
        });
        let before = attached(UPLINK).expect("attached");
        let datapath = node.open_with(|config| config.xdp = XdpMode::Native);
        assert_eq!(attached(UPLINK), Some(before));
        let classified = datapath
            .programs
            .run(Hook::UplinkIn, &from(&POD.to_string()));
        assert_eq!(classified.unwrap().verdict, tcx::DROP);
        drop(other);
        detach(&pins).unwrap();
        assert_eq!(attached(UPLINK), None);
    });
}
