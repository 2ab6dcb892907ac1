//! The node's half told in single steps; `tests/simulation.rs` runs both halves against each other.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn node(held: &[u32]) -> Node {
    Node::new("n1".into(), "boot".into(), "0.1.0".into(), held)
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
fn a_replaced_root_is_not_obeyed() {
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
fn an_entry_never_falls_on_one_stream_but_a_new_stream_starts_afresh() {
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
        "a root with an empty store counts from the start"
    );
}

#[test]
fn misses_are_gathered_and_asked_for_once() {
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
fn what_was_asked_for_on_a_lost_stream_is_asked_for_again() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    node.missed(5, Boottime(0));
    let due = Boottime(0) + WANT_BATCH;
    assert_eq!(node.next(due).unwrap().want, [5]);
    node.close();
    assert_eq!(
        node.next(due + SECOND),
        None,
        "nothing is said without a stream"
    );
    let now = due + 2 * SECOND;
    node.open(now);
    assert_eq!(node.next(now + WANT_BATCH).unwrap().want, [5]);
}

#[test]
fn a_wake_is_told_at_once_and_the_vip_is_followed() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    node.woke(7, Boottime(40), Boottime(50));
    let up = node.next(Boottime(50)).unwrap();
    assert_eq!(up.woke, [Woke { vip: 7, at_ns: 40 }]);
    assert_eq!(up.want, [7]);
}

#[test]
fn applied_is_told_once() {
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
fn all_pods_are_told_after_hello_and_the_last_word_once() {
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
fn a_stream_without_grants_is_given_up() {
    let mut node = node(&[]);
    node.open(Boottime(0));
    assert!(!node.is_silent(Boottime(0) + SECOND));
    assert!(node.is_silent(Boottime(0) + 30 * SECOND));
}
