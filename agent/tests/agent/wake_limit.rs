//! The limit of wakes, end to end with the default flags: scans from outside, from a pod and from the node itself.

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Instant;

use dormouse_rig::address::CLIENT;
use dormouse_rig::frame::{SYN, tcp};
use dormouse_rig::node::FAR_END;
use dormouse_rig::{Call, Netns, Node, on_node, wait};
use dormouse_world::PacketSocket;
use tokio::time::timeout;

use super::scan::{answer_absent, scan};
use super::{Control, PATIENCE, ask, metrics, start, start_with, with_vips};

/// VIPs of each scan.
const SCANNED: u32 = 1_000;
/// The defaults of `--wake-burst`, and of `--wakes-per-minute` in seconds per token.
const BURST: u64 = 200;
/// A client in another /64 than [`CLIENT`].
const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 9);

/// Packets that raised a miss, and packets beyond the limit.
async fn counted() -> (u64, u64) {
    let text = metrics().await;
    let value = |series: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    };
    (
        value(r#"dormouse_packets_total{verdict="missed"}"#),
        value(r#"dormouse_drops_total{reason="wake_limit"}"#),
    )
}

/// Waits until as many more packets were counted as were sent; returns the misses and the drops among them.
async fn met(before: (u64, u64), sent: u32) -> (u64, u64) {
    let all = async {
        loop {
            let now = counted().await;
            let found = (now.0 - before.0, now.1 - before.1);
            if found.0 + found.1 >= u64::from(sent) {
                return found;
            }
        }
    };
    timeout(PATIENCE, all).await.expect("all packets arrive")
}

/// A SYN to each of these VIPs, from a host on the uplink's link.
fn knock(source: Ipv6Addr, vips: std::ops::Range<u32>) {
    let far = PacketSocket::open(FAR_END).unwrap();
    for vip in vips {
        let low = u128::from(vip);
        let vip = Ipv6Addr::from_bits(0xfd00_0010_u128 << 96 | low);
        far.send(&tcp((source, 40_000), (vip, 80), SYN)).unwrap();
    }
}

/// Another client than the scan's is met: control is asked for the VIP that it sends to.
async fn met_by(control: &mut Control, vip: u32) {
    let met = async {
        loop {
            knock(OTHER, vip..vip + 1);
            while let Ok(event) = control.events.try_recv() {
                if answer_absent(control, event).contains(&vip) {
                    return;
                }
            }
            // Other tasks of this thread answer meanwhile.
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, met).await.expect("a miss");
}

/// Datagrams to these VIPs from a process in a pod, in its cgroup and its network namespace.
fn scan_from(node: &Node, pod: &Netns, vips: std::ops::Range<u32>) {
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\nfor vip in range({}, {}): s.sendto(b'x', ('fd00:10::%x' % vip, 80))\n",
        vips.start, vips.end
    );
    let enter = format!(
        "echo 0 > {}; exec nsenter --net={} python3 -c \"$0\"",
        node.cgroup().join("cgroup.procs").display(),
        pod.path().display()
    );
    let scan = Command::new("sh").args(["-c", &enter, &script]).status();
    assert!(scan.unwrap().success(), "no call is refused");
}

/// What happens to a packet to a VIP that nothing has been sent to.
fn explain(node: &Node, source: Ipv6Addr) -> String {
    let source = source.to_string();
    ask(
        node,
        &["explain", "flow", &source, "fd00:10::f000", "tcp/80"],
    )
}

#[test]
fn a_scan_wakes_no_more_than_its_source_may_and_costs_no_other_source_anything() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let agent = start(node, &control.url);
            control.up().await;
            // The VIP range is in force.
            met_by(&mut control, 4_000).await;
            let (began, before) = (Instant::now(), counted().await);
            // A token a second comes back.
            let at_most = || BURST + began.elapsed().as_secs() + 1;

            knock(CLIENT, 0..SCANNED);
            let outside = met(before, SCANNED).await;
            assert!((BURST..=at_most()).contains(&outside.0), "{outside:?}");

            met_by(&mut control, 5_000).await;

            // A token comes back each second, so the bucket is emptied again.
            let mut vip = 50_000;
            wait("a packet of the scanner to be explained as dropped", || {
                vip += 10;
                knock(CLIENT, vip..vip + 10);
                explain(node, CLIENT).contains("(DM6040)")
            });
            let explained = explain(node, OTHER);
            assert!(!explained.contains("DM6040"), "{explained}");
            let drops = ask(node, &["get", "drops"]);
            assert!(drops.contains("wake_limit"), "{drops}");

            let pod = node.pod("a");
            let (home, before) = (node.home(), counted().await);
            let call = Call::new("ADD", Call::network(&home.socket(), &home.state_dir()));
            call.attachment(pod.name(), pod.path()).succeeds();
            scan_from(node, &pod, 10_000..10_000 + SCANNED);
            let inside = met(before, SCANNED).await;
            assert!((BURST..=at_most()).contains(&inside.0), "{inside:?}");

            let before = counted().await;
            scan(node, "range(20_000, 21_000)").wait().unwrap();
            let of_node = met(before, SCANNED).await;
            assert!((BURST..=at_most()).contains(&of_node.0), "{of_node:?}");

            // The next agent finds the buckets as they are.
            agent.kill();
            let agent = start(node, &control.url);
            control.up().await;
            let before = counted().await;
            knock(CLIENT, 30_000..30_000 + SCANNED);
            let again = met(before, SCANNED).await;
            assert!(outside.0 + again.0 <= at_most(), "{again:?}");

            agent.kill();
            let _agent = start_with(node, &control.url, &["--trusted-proxy", "2001:db8:d0::/64"]);
            control.up().await;
            let before = counted().await;
            knock(CLIENT, 40_000..40_000 + SCANNED);
            assert_eq!(met(before, SCANNED).await, (SCANNED.into(), 0));
        });
    });
}
