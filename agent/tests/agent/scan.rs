//! Scans of the VIP range: a node serves an app that is created afterwards, and an agent that is killed in the middle of one keeps its
//! entries.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Duration;

use dormouse_fleet::proto::{Entry, entry::Mode};
use dormouse_fleet::{Backend, Event};
use dormouse_rig::address::POD;
use dormouse_rig::{Node, PATIENCE, on_node, wait};
use tokio::time::timeout;

use super::{Control, ask, entry, served, start_with, touch_vip, with_vips};

/// One source scans all VIPs here: with a limit the node would meet few of them.
const UNLIMITED: &[&str] = &["--wakes-per-minute", "0"];

/// A datagram to each of these VIPs, from inside the node's cgroup. `vips` is their numbers, as Python has them.
pub(crate) fn scan(node: &Node, vips: &str) -> Child {
    let script = format!(
        "import itertools, socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.setblocking(False)\nfor vip in {vips}:\n try: s.sendto(b'x', ('fd00:10::%x:%x' % (vip >> 16, vip & 65535), 80))\n except OSError: pass\n"
    );
    let procs = node.cgroup().join("cgroup.procs");
    let run = format!("echo 0 > {}; exec python3 -c \"$0\"", procs.display());
    let scan = Command::new("sh").args(["-c", &run, &script]).spawn();
    scan.unwrap()
}

/// Answers that the VIPs do not exist which the node wants to follow; returns them.
pub(crate) fn answer_absent(control: &Control, event: Event) -> Vec<u32> {
    let Event::Wanted { vips } = event else {
        return Vec::new();
    };
    for vip in &vips {
        control.handle.absent(*vip);
    }
    vips
}

/// An entry that serves a pod.
pub(crate) fn serving(vip: u32) -> Entry {
    let backend = Backend {
        prefix: POD.octets()[..12].try_into().unwrap(),
        host: 0x10,
        port: 8_000,
        generation: 1,
        flags: 0,
        weight: 1,
    };
    Entry {
        vip,
        mode: Mode::Serve.into(),
        leased: false,
        asleep: false,
        backends: Backend::pack(&[backend]),
        ..entry(1)
    }
}

#[test]
fn a_node_that_was_scanned_serves_an_app_that_is_created_afterwards() {
    const SCANNED: u32 = 100_000;
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let _agent = start_with(node, &control.url, UNLIMITED);
            control.up().await;
            let began = std::time::Instant::now();
            let mut wanted = Vec::new();
            let mut scan = scan(node, &format!("range({SCANNED})"));
            while scan.try_wait().unwrap().is_none() {
                let event = timeout(Duration::from_millis(20), control.events.recv());
                if let Ok(Some(event)) = event.await {
                    wanted.extend(answer_absent(&control, event));
                }
            }
            // The agent may read the kernel's events later than the scan ends.
            let scanned = async {
                while !wanted.contains(&7) {
                    let event = control.events.recv().await.unwrap();
                    wanted.extend(answer_absent(&control, event));
                }
            };
            timeout(PATIENCE, scanned).await.expect("a miss");
            let seconds = u32::try_from(began.elapsed().as_secs()).unwrap() + 1;
            let admitted = u32::try_from(wanted.len()).unwrap();
            assert!(
                admitted <= 2_000 + 200 * seconds,
                "{admitted} VIPs in {seconds} s"
            );
            // The app is created. The VIP was scanned, and control said that it does not exist.
            let found = async {
                loop {
                    touch_vip(node);
                    while let Ok(event) = control.events.try_recv() {
                        if answer_absent(&control, event).contains(&7) {
                            return;
                        }
                    }
                }
            };
            timeout(PATIENCE, found).await.expect("a miss again");
            control.handle.publish(serving(7));
            control.settled(1).await;
            let before = served().await;
            touch_vip(node);
            assert!(served().await > before, "a connection to the pod");
        });
    });
}

#[test]
fn an_app_that_is_created_while_a_scan_lasts_is_served_directly() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let _agent = start_with(node, &control.url, UNLIMITED);
            control.up().await;
            // Not the app's own VIP.
            let mut endless = scan(node, "itertools.cycle(range(64, 1 << 20))");
            // The scan has used up what is admitted at once.
            wanted(&mut control, 3_000).await;
            let created = async {
                loop {
                    touch_vip(node);
                    while let Ok(event) = control.events.try_recv() {
                        if answer_absent(&control, event).contains(&7) {
                            return;
                        }
                    }
                }
            };
            timeout(PATIENCE, created).await.expect("the app's miss");
            control.handle.publish(serving(7));
            control.settled(1).await;
            let before = served().await;
            touch_vip(node);
            assert!(served().await > before, "a connection to the pod");
            assert!(endless.try_wait().unwrap().is_none(), "the scan goes on");
            endless.kill().unwrap();
            endless.wait().unwrap();
        });
    });
}

/// The apps that the node serves, by count.
fn apps(node: &Node) -> usize {
    let apps = ask(node, &["get", "apps"]);
    apps.lines().filter(|line| line.contains(" serve ")).count()
}

/// VIPs of this number on are in no app.
const APPS: u32 = 64;

/// Answers for all VIPs that the node wants to follow until it wants `count` more; returns them.
async fn wanted(control: &mut Control, count: usize) -> BTreeSet<u32> {
    let mut wanted = BTreeSet::new();
    let all = async {
        while wanted.len() < count {
            let event = control.events.recv().await.unwrap();
            let Event::Wanted { vips } = event else {
                continue;
            };
            for vip in vips {
                if vip < APPS {
                    control.handle.publish(serving(vip));
                } else {
                    control.handle.absent(vip);
                }
                wanted.insert(vip);
            }
        }
    };
    timeout(PATIENCE, all).await.expect("the node meets VIPs");
    wanted
}

#[test]
fn an_agent_that_is_killed_in_a_scan_keeps_its_entries() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let agent = start_with(node, &control.url, UNLIMITED);
            control.up().await;
            scan(node, &format!("range({APPS})")).wait().unwrap();
            wanted(&mut control, APPS as usize).await;
            let all = APPS as usize;
            wait("the node to serve all apps", || apps(node) == all);

            let mut endless = scan(node, "itertools.cycle(range(1 << 20))");
            let met = wanted(&mut control, 1_000).await;
            assert!(met.iter().all(|vip| *vip >= APPS));
            agent.kill();
            assert_eq!(apps(node), all, "right after the kill");
            let _agent = start_with(node, &control.url, UNLIMITED);
            control.up().await;
            assert_eq!(apps(node), all, "with the next agent");
            let met = wanted(&mut control, 1_000).await;
            assert!(
                met.iter().all(|vip| *vip >= APPS),
                "it follows its apps still"
            );
            assert_eq!(apps(node), all);
            assert!(endless.try_wait().unwrap().is_none(), "the scan goes on");
            endless.kill().unwrap();
            endless.wait().unwrap();

            let before = served().await;
            touch_vip(node);
            assert!(served().await > before, "a connection to the pod");
        });
    });
}
