//! The root's half told in single steps; `tests/simulation.rs` runs both halves against each other.

use std::time::Duration;

use super::*;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Down, PodStatus, Stages, Woke};

const LEASE: Duration = Duration::from_secs(3);
const TERMS: Terms = Terms { lease: LEASE };
/// Past the wait of a new root.
const CALM: Boottime = Boottime(100_000_000_000);

fn root() -> Root {
    Root::new(TERMS, 1, NodeConfig::default(), "boot".into(), Boottime(0))
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

fn acknowledge(root: &mut Root, session: Session, seq: u64) {
    root.hear(
        session,
        Up {
            applied: seq,
            ..Up::default()
        },
        CALM,
    );
}

#[test]
fn a_node_without_a_name_is_refused() {
    let refused = root().hello(Hello::default()).unwrap_err();
    assert_eq!(refused, HelloError::Nameless);
}

#[test]
fn a_node_that_follows_too_much_is_refused_whole() {
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
fn a_grant_comes_after_everything_that_the_node_lacks() {
    let mut root = root();
    root.publish(entry(1, 5));
    let session = open(&mut root, "n", &[1]);
    root.hear(session, beat(CALM), CALM);
    let down = sent(&mut root, session, CALM);
    assert_eq!(down.entries.len(), 1);
    assert_eq!(down.grant.map(|grant| grant.beat_ns), Some(CALM.0));
    assert!(down.config.is_some());
    assert!(matches!(root.next(session, CALM), Next::Idle));
}

#[test]
fn what_does_not_fit_one_message_delays_the_grant() {
    let mut root = root();
    let follows: Vec<u32> = (0..100).collect();
    for vip in &follows {
        root.publish(Entry {
            backends: vec![0; 2_400],
            ..entry(*vip, 1)
        });
    }
    let session = open(&mut root, "n", &follows);
    root.hear(session, beat(CALM), CALM);
    let mut entries = 0;
    loop {
        let down = sent(&mut root, session, CALM);
        entries += down.entries.len();
        if down.grant.is_some() {
            break;
        }
    }
    assert_eq!(entries, 100);
}

#[test]
fn removals_go_first() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    root.hear(
        session,
        Up {
            want: vec![1, 2],
            ..Up::default()
        },
        CALM,
    );
    sent(&mut root, session, CALM);
    acknowledge(&mut root, session, 1);
    root.publish(Entry {
        settle: false,
        ..entry(1, 5)
    });
    root.publish(entry(2, 6));
    let vips: Vec<u32> = sent(&mut root, session, CALM)
        .entries
        .iter()
        .map(|entry| entry.vip)
        .collect();
    assert_eq!(vips, [2, 1]);
}

#[test]
fn an_unknown_vip_is_an_entry_and_becomes_real_by_push() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    root.hear(
        session,
        Up {
            want: vec![9],
            ..Up::default()
        },
        CALM,
    );
    assert!(sent(&mut root, session, CALM).entries[0].gone);
    assert_eq!(root.publish(entry(9, 4)), [session]);
    assert!(!sent(&mut root, session, CALM).entries[0].gone);
    root.forget(9);
    assert!(sent(&mut root, session, CALM).entries[0].gone);
}

#[test]
fn only_followers_hear_of_a_change() {
    let mut root = root();
    let follower = open(&mut root, "a", &[1]);
    let other = open(&mut root, "b", &[2]);
    for session in [follower, other] {
        sent(&mut root, session, CALM);
    }
    assert_eq!(root.publish(entry(1, 7)), [follower]);
    assert!(matches!(root.next(other, CALM), Next::Idle));
}

#[test]
fn the_newest_version_wins_and_the_settle_flag_sticks() {
    let mut root = root();
    let session = open(&mut root, "n", &[]);
    root.hear(
        session,
        Up {
            want: vec![1],
            ..Up::default()
        },
        CALM,
    );
    sent(&mut root, session, CALM);
    acknowledge(&mut root, session, 1);
    root.publish(entry(1, 7));
    root.publish(Entry {
        settle: false,
        ..entry(1, 8)
    });
    root.publish(entry(1, 6));
    let down = sent(&mut root, session, CALM);
    assert_eq!((down.entries.len(), down.entries[0].version), (1, 8));
    assert!(down.entries[0].settle, "version 7 removed a pod");
}

#[test]
fn a_change_settles_when_every_follower_has_acknowledged_it() {
    let mut root = root();
    let (a, b) = (open(&mut root, "a", &[1]), open(&mut root, "b", &[1]));
    root.publish(entry(1, 7));
    for session in [a, b] {
        root.hear(session, beat(CALM), CALM);
        sent(&mut root, session, CALM);
    }
    root.publish(entry(1, 8));
    assert!(matches!(root.settling(1, 8, CALM), Settling::Wait(Some(_))));
    for session in [a, b] {
        let down = sent(&mut root, session, CALM);
        acknowledge(&mut root, session, down.seq);
    }
    assert_eq!(root.settling(1, 8, CALM), Settling::Settled);
}

#[test]
fn a_silent_node_counts_until_its_lease_is_over_also_without_its_stream() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.hear(session, beat(CALM), CALM);
    sent(&mut root, session, CALM);
    root.publish(entry(1, 8));
    root.end(session, CALM);
    let until = CALM + TERMS.usable();
    assert_eq!(root.settling(1, 8, CALM), Settling::Wait(Some(until)));
    assert_eq!(root.settling(1, 8, until), Settling::Settled);
    assert_eq!(root.expire(CALM), None);
    assert_eq!(
        root.expire(until),
        Some(Event::NodeDown { node: "n".into() })
    );
}

#[test]
fn a_returned_node_counts_by_its_old_lease_until_it_acknowledges() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.hear(session, beat(CALM), CALM);
    sent(&mut root, session, CALM);
    root.publish(entry(1, 8));
    let again = open(&mut root, "n", &[1]);
    assert!(matches!(root.next(session, CALM), Next::Over));
    assert!(matches!(root.settling(1, 8, CALM), Settling::Wait(Some(_))));
    root.hear(again, beat(CALM), CALM);
    sent(&mut root, again, CALM);
    assert!(matches!(root.settling(1, 8, CALM), Settling::Wait(Some(_))));
    acknowledge(&mut root, again, 1);
    assert_eq!(root.settling(1, 8, CALM), Settling::Settled);
    assert_eq!(
        root.expire(CALM + 100 * LEASE),
        None,
        "the node is not down"
    );
}

#[test]
fn a_node_that_dropped_a_vip_does_not_count() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.hear(session, beat(CALM), CALM);
    sent(&mut root, session, CALM);
    root.publish(entry(1, 8));
    root.hear(
        session,
        Up {
            drop: vec![1],
            ..Up::default()
        },
        CALM,
    );
    assert_eq!(root.settling(1, 8, CALM), Settling::Settled);
    assert!(matches!(root.next(session, CALM), Next::Idle));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_changes_nothing() {
    let mut root = root();
    root.publish(entry(1, 7));
    let session = open(&mut root, "n", &[1]);
    root.hear(session, beat(CALM), CALM);
    sent(&mut root, session, CALM);
    acknowledge(&mut root, session, 99);
    assert!(
        matches!(root.settling(1, 7, CALM), Settling::Settled),
        "nothing older was granted"
    );
    root.publish(entry(1, 8));
    acknowledge(&mut root, session, 99);
    assert!(matches!(root.settling(1, 8, CALM), Settling::Wait(_)));
}

#[test]
fn a_new_root_removes_nothing_during_its_first_lease() {
    let root = root();
    let first = Boottime(0) + TERMS.usable();
    assert_eq!(
        root.settling(1, 1, Boottime(0)),
        Settling::Wait(Some(first))
    );
    assert_eq!(root.settling(1, 1, first), Settling::Settled);
}

#[test]
fn nothing_is_kept_of_a_lost_node() {
    let mut root = root();
    let session = open(&mut root, "n", &[1]);
    root.run("n", PodSpec::default());
    root.end(session, CALM);
    assert!(root.expire(CALM).is_some());
    root.run("n", PodSpec::default());
    assert!(root.peers.is_empty() && root.followers.is_empty());
}

#[test]
fn pods_are_told_when_they_change_and_all_of_them_after_hello() {
    let mut root = root();
    let spec = |uid: &str| PodSpec {
        uid: uid.into(),
        ..PodSpec::default()
    };
    let session = open(&mut root, "n", &[]);
    assert!(
        !sent(&mut root, session, CALM).run_complete,
        "nothing is known of the node's pods"
    );
    root.sync_pods("n", vec![spec("a")]);
    let down = sent(&mut root, session, CALM);
    assert!(down.run_complete && down.run.len() == 1);
    root.run("n", spec("b"));
    let down = sent(&mut root, session, CALM);
    assert!(!down.run_complete && down.run[0].uid == "b");
    let gone = PodStatus {
        uid: "a".into(),
        phase: Phase::Gone.into(),
        ..PodStatus::default()
    };
    root.hear(
        session,
        Up {
            pods: vec![gone],
            ..Up::default()
        },
        CALM,
    );
    let again = open(&mut root, "n", &[]);
    let down = sent(&mut root, again, CALM);
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
fn times_of_another_machine_are_shifted_to_our_clock() {
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
        woke: vec![Woke { vip: 4, at_ns: 800 }],
        pods: vec![PodStatus {
            uid: "a".into(),
            stages,
            ..PodStatus::default()
        }],
        ..Up::default()
    };
    let heard = root.hear(session, up, Boottime(51_000));
    assert_eq!(
        heard.events[0],
        Event::Woke {
            node: "n".into(),
            vip: 4,
            at: Boottime(50_800)
        }
    );
    let Event::Pod { status, .. } = &heard.events[1] else {
        panic!("a pod's state")
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
        messages += u32::from(matches!(root.next(session, CALM), Next::Send(_)));
    }
    assert!(messages < 300, "{messages} messages");
    acknowledge(&mut root, session, messages.into());
    assert_eq!(sent(&mut root, session, CALM).entries[0].version, 1_999);
}
