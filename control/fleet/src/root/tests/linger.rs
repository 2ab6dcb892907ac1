//! Changes that are not urgent.

use super::*;
use crate::proto::entry::Mode;
use crate::root::peer::LINGER;

fn vips(down: &Down) -> Vec<u32> {
    down.entries.iter().map(|entry| entry.vip).collect()
}

fn asleep(vip: u32, version: u64) -> Entry {
    Entry {
        vip,
        version,
        asleep: true,
        ..Entry::default()
    }
}

/// A root with one node, which has acknowledged version 1 of these VIPs.
fn acknowledged(first: &[Entry]) -> (Root, Session) {
    let mut root = root();
    let follows: Vec<u32> = first.iter().map(|entry| entry.vip).collect();
    let session = open(&mut root, "n", &follows);
    for entry in first {
        root.publish(entry.clone());
    }
    let down = sent(&mut root, session, LATER);
    acknowledge(&mut root, session, down.seq);
    (root, session)
}

#[test]
fn that_an_app_sleeps_is_sent_with_other_changes_or_a_second_later() {
    let (mut root, session) = acknowledged(&[1, 2, 3].map(|vip| entry(vip, 1)));
    assert_eq!(
        root.publish(asleep(1, 5)),
        [session],
        "it waits from then on"
    );
    let over = LATER + LINGER;
    assert!(matches!(root.next(session, LATER), Next::Later(at) if at == over));
    assert_eq!(root.publish(asleep(2, 5)), [], "it waits already");
    let before = Boottime(over.0 - 1);
    assert!(matches!(root.next(session, before), Next::Later(at) if at == over));
    let down = sent(&mut root, session, over);
    assert_eq!(vips(&down), [1, 2]);
    assert!(matches!(root.next(session, over), Next::Idle));
    acknowledge(&mut root, session, down.seq);
    root.publish(asleep(1, 6));
    assert!(matches!(root.next(session, over), Next::Later(_)));
    assert_eq!(root.publish(entry(3, 6)), [session]);
    assert_eq!(vips(&sent(&mut root, session, over)), [3, 1]);
    let elsewhere = Entry {
        port: 81,
        ..asleep(1, 7)
    };
    assert_eq!(root.publish(elsewhere), [session], "another port too");
    assert_eq!(vips(&sent(&mut root, session, over)), [1]);
    root.publish(asleep(2, 7));
    root.receive(session, beat(over), over);
    let granted = sent(&mut root, session, over);
    assert_eq!((vips(&granted), granted.grant.is_some()), (vec![2], true));
}

#[test]
fn that_an_app_sleeps_is_sent_at_once_to_a_node_that_has_just_asked_for_it() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    sent(&mut root, session, LATER);
    want(&mut root, session, 4);
    assert_eq!(root.publish(asleep(4, 5)), [session]);
    assert_eq!(sent(&mut root, session, LATER).entries.len(), 1);
}

#[test]
fn an_idle_app_leaves_its_pods_with_other_changes_or_a_second_later() {
    let serving = |vip, version| Entry {
        mode: Mode::Serve.into(),
        backends: vec![7; 18],
        settle: false,
        ..entry(vip, version)
    };
    let (mut root, session) = acknowledged(&[1, 2, 3].map(|vip| serving(vip, 1)));
    assert_eq!(
        root.publish_idle(entry(1, 5)),
        [session],
        "it waits from then on"
    );
    let over = LATER + LINGER;
    assert!(matches!(root.next(session, LATER), Next::Later(at) if at == over));
    assert_eq!(root.publish_idle(entry(2, 5)), [], "it waits already");
    let down = sent(&mut root, session, over);
    assert_eq!(vips(&down), [1, 2]);
    assert!(down.entries.iter().all(|entry| entry.settle));
    assert_eq!(root.publish_idle(serving(3, 5)), [session]);
    assert_eq!(
        vips(&sent(&mut root, session, over)),
        [3],
        "other pods are urgent"
    );
    root.publish_idle(entry(3, 6));
    root.publish_idle(entry(1, 6));
    let waits = "a removal waits for version 5";
    assert_eq!(vips(&sent(&mut root, session, over)), [1, 3], "{waits}");
}

#[test]
fn the_end_of_a_pod_is_sent_with_other_changes_or_a_second_later() {
    let (mut root, session) = acknowledged(&[entry(1, 1)]);
    let pod = |uid: &str, stop| PodSpec {
        uid: uid.into(),
        stop,
        ..PodSpec::default()
    };
    let ran = |down: &Down| -> Vec<(String, bool)> {
        let run = down.run.iter();
        run.map(|pod| (pod.uid.clone(), pod.stop)).collect()
    };
    assert_eq!(root.run("n", pod("a", false)), Some(session));
    assert_eq!(ran(&sent(&mut root, session, LATER)), [("a".into(), false)]);
    assert_eq!(root.run("n", pod("a", true)), Some(session));
    let over = LATER + LINGER;
    assert!(matches!(root.next(session, LATER), Next::Later(at) if at == over));
    assert_eq!(root.publish(asleep(1, 5)), [], "it waits already");
    let down = sent(&mut root, session, over);
    assert_eq!(
        (ran(&down), vips(&down)),
        (vec![("a".into(), true)], vec![1])
    );
    assert!(matches!(root.next(session, over), Next::Idle));
    root.run("n", pod("b", true));
    assert!(matches!(root.next(session, over), Next::Later(_)));
    assert_eq!(root.run("n", pod("c", false)), Some(session));
    let both = [("b".into(), true), ("c".into(), false)];
    assert_eq!(ran(&sent(&mut root, session, over)), both);
}
