//! The node's half in single steps; `tests/simulation.rs` runs both halves against each other.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn node(installed: &[u32]) -> Node {
    Node::new("n1".into(), "boot".into(), "0.1.0".into(), installed)
}

fn entry(vip: u32, version: u64) -> Entry {
    Entry {
        vip,
        version,
        ..Entry::default()
    }
}

fn down(seq: u64, entries: Vec<Entry>, grant: Option<Grant>) -> Down {
    Down {
        seq,
        entries,
        grant,
        ..Down::default()
    }
}

fn grant(beat_ns: u64, epoch: u64) -> Grant {
    Grant {
        beat_ns,
        lease_ms: 3_000,
        epoch,
    }
}

#[test]
fn a_lease_counts_from_the_beat_that_the_grant_answers() {
    let mut node = node(&[]);
    let opened = Boottime(5_000);
    assert_eq!(node.open(opened).beat, Some(Beat { at_ns: 5_000 }));
    let later = opened + SECOND;
    let step = node
        .receive(down(1, vec![], Some(grant(5_000, 1))), later)
        .unwrap();
    assert_eq!(step.lease_until, Some(opened + 3 * SECOND));
}

#[test]
fn a_grant_for_a_beat_that_was_never_sent_gives_no_lease() {
    let mut node = node(&[]);
    node.open(Boottime(5_000));
    let before = node
        .receive(down(1, vec![], Some(grant(4_000, 1))), Boottime(6_000))
        .unwrap();
    let ahead = node
        .receive(down(2, vec![], Some(grant(9_000, 1))), Boottime(6_000))
        .unwrap();
    assert_eq!((before.lease_until, ahead.lease_until), (None, None));
}

#[test]
fn a_root_with_a_lower_epoch_is_refused() {
    let mut node = node(&[]);
    node.open(Boottime(1));
    node.receive(down(1, vec![], Some(grant(1, 7))), Boottime(2))
        .unwrap();
    let old = node.receive(down(2, vec![], Some(grant(1, 6))), Boottime(3));
    assert_eq!(old, Err(StreamError::EpochOld { known: 7, got: 6 }));
}

#[test]
fn a_gap_in_the_stream_is_an_error() {
    let mut node = node(&[]);
    node.open(Boottime(1));
    let gap = node.receive(down(2, vec![], None), Boottime(2));
    assert_eq!(
        gap,
        Err(StreamError::Gap {
            expected: 1,
            got: 2
        })
    );
}

#[test]
fn older_entries_are_ignored_within_one_stream_but_not_on_a_new_one() {
    let mut node = node(&[]);
    node.open(Boottime(1));
    let newer = node
        .receive(down(1, vec![entry(3, 9)], None), Boottime(2))
        .unwrap();
    let older = node
        .receive(down(2, vec![entry(3, 8)], None), Boottime(3))
        .unwrap();
    assert_eq!((newer.entries.len(), older.entries.len()), (1, 0));
    node.close();
    let hello = node.open(Boottime(4)).hello.unwrap();
    assert_eq!(hello.follows, [3]);
    let again = node
        .receive(down(1, vec![entry(3, 2)], None), Boottime(5))
        .unwrap();
    assert_eq!(
        again.entries.len(),
        1,
        "a root with an empty store begins with low versions"
    );
}

#[test]
fn misses_are_collected_and_requested_once() {
    let mut node = node(&[4]);
    node.open(Boottime(0));
    let now = Boottime(1_000);
    for vip in [4, 5, 6, 5] {
        node.missed(vip, now);
    }
    assert_eq!(node.next(now), None, "the batch is not due yet");
    let due = now + WANT_BATCH;
    assert_eq!(node.due(), Some(due));
    assert_eq!(node.next(due).unwrap().want, [5, 6]);
    node.missed(5, due);
    assert_eq!(node.next(due + WANT_BATCH), None);
}

#[test]
fn requests_on_a_lost_stream_are_repeated_on_the_next() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    node.missed(5, Boottime(0));
    let due = Boottime(0) + WANT_BATCH;
    assert_eq!(node.next(due).unwrap().want, [5]);
    node.close();
    assert_eq!(
        node.next(due + SECOND),
        None,
        "nothing is sent without a stream"
    );
    let now = due + 2 * SECOND;
    node.open(now);
    assert_eq!(node.next(now + WANT_BATCH).unwrap().want, [5]);
}

#[test]
fn a_wake_is_sent_at_once_and_the_vip_is_requested() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    let woke = |port, at_ns| Woke {
        vip: 7,
        at_ns,
        port,
        protocol: 6,
    };
    for event in [woke(81, 40), woke(80, 42), woke(81, 44)] {
        node.woke(event, Boottime(50));
    }
    let up = node.next(Boottime(50)).unwrap();
    assert_eq!(
        up.woke,
        [woke(80, 42), woke(81, 40)],
        "the first of each port"
    );
    assert_eq!(up.want, [7]);
}

#[test]
fn an_acknowledgement_is_sent_once() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    let step = node
        .receive(down(1, vec![entry(3, 9)], None), Boottime(1))
        .unwrap();
    assert_eq!(node.next(Boottime(2)), None);
    node.applied(step.seq);
    assert_eq!(node.next(Boottime(2)).unwrap().applied, 1);
    assert_eq!(node.next(Boottime(3)), None);
}

#[test]
fn all_pods_are_sent_after_hello_and_those_that_are_gone_once() {
    let mut node = node(&[]);
    let pod = |uid: &str, phase: Phase| PodStatus {
        uid: uid.into(),
        phase: phase.into(),
        ..PodStatus::default()
    };
    node.pod(pod("a", Phase::Running));
    node.pod(pod("b", Phase::Gone));
    assert_eq!(node.open(Boottime(0)).pods.len(), 2);
    assert_eq!(node.open(Boottime(1)).pods.len(), 1);
}

#[test]
fn counts_sum_up_while_there_is_no_stream() {
    let mut node = node(&[]);
    let count = Count {
        vip: 1,
        interval_ns: 10,
        connections: 2,
        connection_ns: 15,
        open: 3,
    };
    node.count(count);
    node.count(Count { open: 1, ..count });
    node.open(Boottime(0));
    let sum = node.next(Boottime(1)).unwrap().counts[0];
    assert_eq!(
        (
            sum.interval_ns,
            sum.connections,
            sum.connection_ns,
            sum.open
        ),
        (20, 4, 30, 1)
    );
}

#[test]
fn a_stream_without_grants_counts_as_silent() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    assert!(!node.is_silent(Boottime(0) + SECOND));
    assert!(node.is_silent(Boottime(0) + 30 * SECOND));
}

#[test]
fn a_vip_that_does_not_exist_is_not_followed_and_is_requested_again_after_another_miss() {
    let mut node = node(&[3]);
    node.open(Boottime(1));
    let gone = Entry {
        gone: true,
        settle: true,
        ..entry(3, 0)
    };
    let step = node
        .receive(down(1, vec![gone], None), Boottime(2))
        .unwrap();
    assert!(step.entries[0].gone && step.grace);
    assert_eq!(node.follows(), 0);
    node.missed(3, Boottime(3));
    assert_eq!(node.next(Boottime(3) + WANT_BATCH).unwrap().want, [3]);
}
