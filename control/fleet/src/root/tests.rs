//! The root's half in single steps; `tests/simulation.rs` runs both halves against each other.

mod linger;

use std::time::Duration;

use super::*;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Down, NodeConfig, PodStatus, Stages, Target, Woke};

const LEASE: Duration = Duration::from_secs(3);
const TERMS: Terms = Terms { lease: LEASE };
/// A time after the first lease of a new root.
const LATER: Boottime = Boottime(100_000_000_000);

fn config() -> ServerConfig {
    ServerConfig {
        lease: LEASE,
        epoch: 1,
        node_config: NodeConfig::default(),
        boot_id: "boot".into(),
        reserved: Vec::new(),
        own: Vec::new(),
    }
}

/// A root whose epoch is confirmed for ever.
fn root() -> Root {
    let mut root = Root::new(config(), Boottime(0));
    root.confirmed(Boottime(u64::MAX), LATER);
    root
}

fn open(root: &mut Root, node: &str, follows: &[u32]) -> Session {
    let hello = Hello {
        node: node.into(),
        boot_id: "boot".into(),
        follows: follows.to_vec(),
        ..Hello::default()
    };
    root.hello(hello).unwrap().session
}

fn beat(at: Boottime) -> Up {
    Up {
        beat: Some(Beat { at_ns: at.0 }),
        ..Up::default()
    }
}

fn entry(vip: u32, version: u64) -> Entry {
    Entry {
        vip,
        version,
        settle: true,
        ..Entry::default()
    }
}

fn sent(root: &mut Root, session: Session, now: Boottime) -> Down {
    match root.next(session, now) {
        Next::Send(down) => *down,
        other => panic!("expected a message, got {other:?}"),
    }
}

fn want(root: &mut Root, session: Session, vip: u32) {
    root.receive(
        session,
        Up {
            want: vec![vip],
            ..Up::default()
        },
        LATER,
    );
}

/// Publishes an entry of each VIP, as control does when the root asks for it.
fn publish_all(root: &mut Root, vips: &[u32]) {
    for vip in vips {
        root.publish(entry(*vip, 1));
    }
}

fn acknowledge(root: &mut Root, session: Session, seq: u64) {
    root.receive(
        session,
        Up {
            applied: seq,
            ..Up::default()
        },
        LATER,
    );
}

#[test]
fn a_node_without_a_name_is_refused() {
    let refused = root().hello(Hello::default()).unwrap_err();
    assert_eq!(refused, HelloError::Nameless);
}

#[test]
fn a_node_that_follows_too_many_vips_is_refused() {
    let follows = vec![1; FOLLOWS_MAX + 1];
    let hello = Hello {
        node: "n".into(),
        follows,
        ..Hello::default()
    };
    assert!(matches!(
        root().hello(hello),
        Err(HelloError::FollowsTooMany { .. })
    ));
}

#[test]
fn nothing_is_sent_while_the_epoch_is_not_confirmed() {
    let mut root = Root::new(config(), Boottime(0));
    let session = open(&mut root, "n", &[1]);
    root.publish(entry(1, 5));
    root.receive(session, beat(LATER), LATER);
    assert!(matches!(root.next(session, LATER), Next::Idle));
    assert_eq!(root.confirmed(LATER, LATER), [session]);
    assert!(sent(&mut root, session, LATER).grant.is_some());
    assert_eq!(root.confirmed(LATER, LATER), []);
    let over = LATER + LEASE / 3;
    root.receive(session, beat(over), over);
    root.publish(entry(1, 6));
    assert!(matches!(root.next(session, over), Next::Idle));
    let late = over + LEASE;
    assert_eq!(root.confirmed(over, late), [], "it was asked for too early");
    assert_eq!(root.confirmed(late, late), [session]);
    let down = sent(&mut root, session, late);
    assert_eq!((down.entries.len(), down.grant.is_some()), (1, true));
}

#[test]
fn a_grant_is_sent_after_all_pending_changes() {
    let mut root = root();
    root.publish(entry(1, 5));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    let down = sent(&mut root, session, LATER);
    assert_eq!(down.entries.len(), 1);
    assert_eq!(down.grant.map(|grant| grant.beat_ns), Some(LATER.0));
    assert!(down.config.is_some());
    assert!(matches!(root.next(session, LATER), Next::Idle));
}

#[test]
fn entries_that_do_not_fit_into_one_message_delay_the_grant() {
    let mut root = root();
    let follows: Vec<u32> = (0..100).collect();
    for vip in &follows {
        root.publish(Entry {
            backends: vec![0; 2_400],
            ..entry(*vip, 1)
        });
    }
    let session = open(&mut root, "n", &follows);
    root.receive(session, beat(LATER), LATER);
    let mut entries = 0;
    loop {
        let down = sent(&mut root, session, LATER);
        entries += down.entries.len();
        if down.grant.is_some() {
            break;
        }
    }
    assert_eq!(entries, 100);
}

#[test]
fn entries_with_settle_are_sent_first() {
    let mut root = root();
    publish_all(&mut root, &[1, 2]);
    let session = open(&mut root, "n", &[]);
    root.receive(
        session,
        Up {
            want: vec![1, 2],
            ..Up::default()
        },
        LATER,
    );
    sent(&mut root, session, LATER);
    acknowledge(&mut root, session, 1);
    root.publish(Entry {
        settle: false,
        ..entry(1, 5)
    });
    root.publish(entry(2, 6));
    let vips: Vec<u32> = sent(&mut root, session, LATER)
        .entries
        .iter()
        .map(|entry| entry.vip)
        .collect();
    assert_eq!(vips, [2, 1]);
}

#[test]
fn a_follower_of_a_vip_that_does_not_exist_is_sent_that_it_is_gone_and_no_longer_follows_it() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    want(&mut root, session, 9);
    sent(&mut root, session, LATER);
    assert_eq!(root.wanted(WANTED_MAX), [9]);
    assert_eq!(root.absent(9), [session]);
    let down = sent(&mut root, session, LATER);
    assert!(down.entries[0].gone);
    acknowledge(&mut root, session, down.seq);
    assert!(root.entries.is_empty() && root.followers.is_empty());
    assert_eq!(root.publish(entry(9, 4)), [], "no node follows it");
    want(&mut root, session, 9);
    assert_eq!(sent(&mut root, session, LATER).entries[0].version, 4);
}

#[test]
fn an_app_created_while_a_node_is_sent_that_it_does_not_exist_is_sent_to_that_node() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    want(&mut root, session, 9);
    root.absent(9);
    assert!(sent(&mut root, session, LATER).entries[0].gone);
    assert_eq!(root.publish(entry(9, 4)), [session]);
    let down = sent(&mut root, session, LATER);
    assert_eq!((down.entries[0].version, down.entries[0].gone), (4, false));
    acknowledge(&mut root, session, down.seq);
    assert_eq!(
        root.publish(entry(9, 5)),
        [session],
        "it still follows the VIP"
    );
    assert_eq!(
        root.absent(9),
        [],
        "an answer that came too late is ignored"
    );
}

#[test]
fn control_is_asked_once_for_each_vip_without_an_entry() {
    let mut root = root();
    root.publish(entry(3, 1));
    let a = open(&mut root, "a", &[1, 2, 3]);
    open(&mut root, "b", &[1, 4]);
    want(&mut root, a, 5);
    assert!(root.asks());
    assert_eq!(root.wanted(3), [1, 2, 4]);
    assert_eq!(root.wanted(3), [5]);
    assert!(!root.asks());
    root.publish(entry(1, 6));
    open(&mut root, "c", &[1, 2]);
    assert!(!root.asks(), "one is answered, the other was asked for");
}

#[test]
fn a_node_that_greets_a_new_root_keeps_its_entries_without_a_grant_until_control_has_answered() {
    let mut root = root();
    let session = open(&mut root, "n", &[1, 2]);
    root.receive(session, beat(LATER), LATER);
    let first = sent(&mut root, session, LATER);
    assert!(first.config.is_some());
    assert_eq!((first.entries.len(), first.grant), (0, None));
    assert!(matches!(root.next(session, LATER), Next::Idle));
    root.publish(entry(1, 7));
    let second = sent(&mut root, session, LATER);
    assert_eq!((second.entries[0].version, second.grant), (7, None));
    assert_eq!(root.absent(2), [session]);
    let third = sent(&mut root, session, LATER);
    assert!(third.entries[0].gone && third.entries[0].settle);
    assert!(third.grant.is_some());
}

#[test]
fn a_node_that_waits_for_an_answer_delays_settling_until_its_lease_has_expired() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    sent(&mut root, session, LATER);
    let again = open(&mut root, "n", &[1, 2]);
    root.receive(again, beat(LATER), LATER);
    sent(&mut root, again, LATER);
    let until = LATER + TERMS.usable();
    assert_eq!(root.settling(2, 5, LATER), Settling::Wait(Some(until)));
    assert_eq!(root.settling(2, 5, until), Settling::Settled);
}

#[test]
fn a_request_for_another_entry_does_not_delay_grants() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    want(&mut root, session, 9);
    root.receive(session, beat(LATER), LATER);
    assert!(sent(&mut root, session, LATER).grant.is_some());
}

#[test]
fn entries_of_sleeping_apps_exist_only_while_a_node_follows_them() {
    let mut root = root();
    let asleep = |vip, version| Entry {
        asleep: true,
        ..entry(vip, version)
    };
    root.publish(asleep(1, 1));
    root.publish(entry(2, 2));
    assert_eq!(root.entries.keys().collect::<Vec<_>>(), [&2]);
    let session = open(&mut root, "n", &[1, 2]);
    root.publish(asleep(1, 3));
    assert_eq!(root.entries.len(), 2);
    root.publish(asleep(2, 4));
    root.end(session, LATER);
    assert_eq!(root.entries.len(), 2, "the node may come back");
    assert!(root.expire(LATER + TERMS.usable()).is_some());
    assert!(root.entries.is_empty() && root.unanswered.is_empty());
}

#[test]
fn a_change_is_sent_to_followers_only() {
    let mut root = root();
    publish_all(&mut root, &[1, 2]);
    let follower = open(&mut root, "a", &[1]);
    let other = open(&mut root, "b", &[2]);
    for session in [follower, other] {
        sent(&mut root, session, LATER);
    }
    assert_eq!(root.publish(entry(1, 7)), [follower]);
    assert!(matches!(root.next(other, LATER), Next::Idle));
}

#[test]
fn only_the_newest_version_is_sent_and_it_keeps_the_settle_flag_of_an_older_one() {
    let mut root = root();
    publish_all(&mut root, &[1]);
    let session = open(&mut root, "n", &[]);
    want(&mut root, session, 1);
    sent(&mut root, session, LATER);
    acknowledge(&mut root, session, 1);
    root.publish(entry(1, 7));
    root.publish(Entry {
        settle: false,
        ..entry(1, 8)
    });
    root.publish(entry(1, 6));
    let down = sent(&mut root, session, LATER);
    assert_eq!((down.entries.len(), down.entries[0].version), (1, 8));
    assert!(down.entries[0].settle, "version 7 removed a pod");
}

#[test]
fn a_change_settles_when_every_follower_has_acknowledged_it() {
    let mut root = root();
    let (a, b) = (open(&mut root, "a", &[1]), open(&mut root, "b", &[1]));
    root.publish(entry(1, 7));
    for session in [a, b] {
        root.receive(session, beat(LATER), LATER);
        sent(&mut root, session, LATER);
    }
    root.publish(entry(1, 8));
    assert!(matches!(
        root.settling(1, 8, LATER),
        Settling::Wait(Some(_))
    ));
    for session in [a, b] {
        let down = sent(&mut root, session, LATER);
        acknowledge(&mut root, session, down.seq);
    }
    assert_eq!(root.settling(1, 8, LATER), Settling::Settled);
}

#[test]
fn a_silent_node_delays_settling_until_its_lease_has_expired_also_without_a_stream() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    sent(&mut root, session, LATER);
    root.publish(entry(1, 8));
    root.end(session, LATER);
    let until = LATER + TERMS.usable();
    assert_eq!(root.settling(1, 8, LATER), Settling::Wait(Some(until)));
    assert_eq!(root.settling(1, 8, until), Settling::Settled);
    assert_eq!(root.expire(LATER), None);
    assert_eq!(
        root.expire(until),
        Some(Event::NodeDown { node: "n".into() })
    );
}

#[test]
fn a_reconnected_node_delays_settling_by_its_old_lease_until_it_acknowledges() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    sent(&mut root, session, LATER);
    root.publish(entry(1, 8));
    let again = open(&mut root, "n", &[1]);
    assert!(matches!(root.next(session, LATER), Next::Closed));
    assert!(matches!(
        root.settling(1, 8, LATER),
        Settling::Wait(Some(_))
    ));
    root.receive(again, beat(LATER), LATER);
    sent(&mut root, again, LATER);
    assert!(matches!(
        root.settling(1, 8, LATER),
        Settling::Wait(Some(_))
    ));
    acknowledge(&mut root, again, 1);
    assert_eq!(root.settling(1, 8, LATER), Settling::Settled);
    assert_eq!(
        root.expire(LATER + 100 * LEASE),
        None,
        "the node is not down"
    );
}

#[test]
fn a_node_that_no_longer_follows_a_vip_does_not_delay_settling() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    sent(&mut root, session, LATER);
    root.publish(entry(1, 8));
    root.receive(
        session,
        Up {
            drop: vec![1],
            ..Up::default()
        },
        LATER,
    );
    assert_eq!(root.settling(1, 8, LATER), Settling::Settled);
    assert!(matches!(root.next(session, LATER), Next::Idle));
}

#[test]
fn an_acknowledgement_of_a_message_never_sent_is_ignored() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.receive(session, beat(LATER), LATER);
    sent(&mut root, session, LATER);
    acknowledge(&mut root, session, 99);
    assert!(
        matches!(root.settling(1, 7, LATER), Settling::Settled),
        "nothing older was granted"
    );
    root.publish(entry(1, 8));
    acknowledge(&mut root, session, 99);
    assert!(matches!(root.settling(1, 8, LATER), Settling::Wait(_)));
}

#[test]
fn nothing_settles_before_the_leases_of_an_earlier_root_are_over() {
    let root = root();
    // An earlier root may have confirmed its epoch just before: (1 s + 3 s) × 1.002 + 50 ms.
    let first = Boottime(0) + Duration::from_millis(4_058);
    assert_eq!(
        root.settling(1, 1, Boottime(0)),
        Settling::Wait(Some(first))
    );
    assert_eq!(root.settling(1, 1, first), Settling::Settled);
}

#[test]
fn all_state_of_a_lost_node_is_deleted() {
    let mut root = root();
    let session = open(&mut root, "n", &[1]);
    root.run("n", PodSpec::default());
    root.end(session, LATER);
    assert!(root.expire(LATER).is_some());
    root.run("n", PodSpec::default());
    assert!(root.peers.is_empty() && root.followers.is_empty());
}

#[test]
fn changed_pods_are_sent_and_all_of_them_after_hello() {
    let mut root = root();
    let spec = |uid: &str| PodSpec {
        uid: uid.into(),
        ..PodSpec::default()
    };
    let session = open(&mut root, "n", &[]);
    assert!(
        !sent(&mut root, session, LATER).run_complete,
        "nothing is known of the node's pods"
    );
    root.sync_pods("n", vec![spec("a")]);
    let down = sent(&mut root, session, LATER);
    assert!(down.run_complete && down.run.len() == 1);
    root.run("n", spec("b"));
    let down = sent(&mut root, session, LATER);
    assert!(!down.run_complete && down.run[0].uid == "b");
    let gone = PodStatus {
        uid: "a".into(),
        phase: Phase::Gone.into(),
        ..PodStatus::default()
    };
    root.receive(
        session,
        Up {
            pods: vec![gone],
            ..Up::default()
        },
        LATER,
    );
    let again = open(&mut root, "n", &[]);
    let down = sent(&mut root, again, LATER);
    assert!(down.run_complete);
    assert_eq!(
        down.run
            .iter()
            .map(|pod| pod.uid.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn times_of_another_machine_are_converted_to_the_roots_clock() {
    let mut root = root();
    let hello = Hello {
        node: "n".into(),
        boot_id: "other".into(),
        ..Hello::default()
    };
    let session = root.hello(hello).unwrap().session;
    let stages = Some(Stages {
        started_ns: 900,
        ..Stages::default()
    });
    let up = Up {
        beat: Some(Beat { at_ns: 1_000 }),
        woke: vec![Woke {
            vip: 4,
            at_ns: 800,
            port: 80,
            protocol: 6,
        }],
        pods: vec![PodStatus {
            uid: "a".into(),
            stages,
            ..PodStatus::default()
        }],
        ..Up::default()
    };
    let received = root.receive(session, up, Boottime(51_000));
    assert_eq!(
        received.events[0],
        Event::Woke {
            node: "n".into(),
            vip: 4,
            at: Boottime(50_800),
            port: 80,
            protocol: 6,
        }
    );
    let Event::Pod { status, .. } = &received.events[1] else {
        panic!("expected a pod's status")
    };
    let stages = status.stages.unwrap();
    assert_eq!(
        (stages.started_ns, stages.ready_ns),
        (50_900, 0),
        "0 means not yet"
    );
}

#[test]
fn a_node_that_never_acknowledges_is_sent_a_bounded_number_of_messages() {
    let mut root = root();
    let session = open(&mut root, "n", &[1]);
    let mut messages = 0;
    for version in 1..2_000 {
        root.publish(entry(1, version));
        messages += u32::from(matches!(root.next(session, LATER), Next::Send(_)));
    }
    assert!(messages < 300, "{messages} messages");
    acknowledge(&mut root, session, messages.into());
    assert_eq!(sent(&mut root, session, LATER).entries[0].version, 1_999);
}

/// An entry in serve mode whose connections are spread over these VIPs.
fn split(vip: u32, version: u64, targets: &[u32]) -> Entry {
    let targets = targets.iter().map(|vip| Target {
        vip: *vip,
        weight: 50,
    });
    Entry {
        split: targets.collect(),
        ..entry(vip, version)
    }
}

fn vips(down: &Down) -> Vec<u32> {
    down.entries.iter().map(|entry| entry.vip).collect()
}

#[test]
fn the_entries_of_new_targets_of_a_split_are_sent_with_it() {
    let mut root = root();
    publish_all(&mut root, &[7, 8]);
    let session = open(&mut root, "n", &[7]);
    let first = sent(&mut root, session, LATER);
    assert_eq!(vips(&first), [7]);
    root.publish(split(7, 2, &[7, 8]));
    assert_eq!(vips(&sent(&mut root, session, LATER)), [7, 8]);
    root.publish(split(7, 3, &[7, 8]));
    assert_eq!(vips(&sent(&mut root, session, LATER)), [7], "it has it");
    root.publish(entry(8, 4));
    assert_eq!(vips(&sent(&mut root, session, LATER)), [8], "it follows it");
    let again = open(&mut root, "n", &[7]);
    assert_eq!(vips(&sent(&mut root, again, LATER)), [7, 8]);
}

#[test]
fn an_agent_that_has_started_gets_divided_traffic_before_the_removal_of_a_pod_of_a_target() {
    let mut root = root();
    let backends = vec![0; 3_072];
    for vip in 1..=40 {
        let backends = backends.clone();
        root.publish(Entry {
            backends,
            ..entry(vip, 1)
        });
    }
    root.publish(split(100, 1, &[7]));
    let follows: Vec<u32> = (1..=40).chain([100]).collect();
    let session = open(&mut root, "n", &follows);
    assert_eq!(vips(&sent(&mut root, session, LATER))[..2], [100, 1]);
}
