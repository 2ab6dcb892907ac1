//! The node's half in single steps; `tests/simulation.rs` runs both halves against each other.

use super::*;
use crate::proto::{Down, Entry, Grant, NodeConfig};

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

fn epoch(number: u64, cluster: &str) -> Epoch {
    let cluster = cluster.to_owned();
    Epoch { cluster, number }
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
fn a_root_with_a_lower_epoch_than_an_earlier_agent_followed_is_refused() {
    let mut node = node(&[]);
    node.follow_epoch(epoch(7, ""));
    node.open(Boottime(1));
    let old = node.receive(down(1, vec![], Some(grant(1, 6))), Boottime(2));
    assert_eq!(old, Err(StreamError::EpochOld { known: 7, got: 6 }));
    assert_eq!(*node.epoch(), epoch(7, ""));
}

#[test]
fn a_lower_epoch_of_another_cluster_is_followed() {
    let mut node = node(&[]);
    node.follow_epoch(epoch(7, "a"));
    let first = |cluster: &str, number| Down {
        config: Some(NodeConfig {
            cluster: cluster.to_owned(),
            ..NodeConfig::default()
        }),
        epoch: number,
        ..down(1, vec![], None)
    };
    node.open(Boottime(1));
    let old = node.receive(first("a", 6), Boottime(2));
    assert_eq!(old, Err(StreamError::EpochOld { known: 7, got: 6 }));
    node.open(Boottime(3));
    node.receive(first("b", 6), Boottime(4)).unwrap();
    assert_eq!(*node.epoch(), epoch(6, "b"));
    node.open(Boottime(5));
    let old = node.receive(first("b", 5), Boottime(6));
    assert_eq!(old, Err(StreamError::EpochOld { known: 6, got: 5 }));
}

#[test]
fn an_epoch_without_a_cluster_belongs_to_the_next_one() {
    let mut node = node(&[]);
    node.follow_epoch(epoch(7, ""));
    node.open(Boottime(1));
    let old = Down {
        config: Some(NodeConfig {
            cluster: "a".to_owned(),
            ..NodeConfig::default()
        }),
        ..down(1, vec![], Some(grant(1, 6)))
    };
    let refused = node.receive(old, Boottime(2));
    assert_eq!(refused, Err(StreamError::EpochOld { known: 7, got: 6 }));
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
fn a_message_of_a_root_that_sends_epochs_in_grants_only_is_not_refused() {
    let mut node = node(&[]);
    node.open(Boottime(1));
    node.receive(down(1, vec![], Some(grant(1, 7))), Boottime(2))
        .unwrap();
    assert!(node.receive(down(2, vec![], None), Boottime(3)).is_ok());
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
    node.count(count, Boottime(0));
    node.count(Count { open: 1, ..count }, Boottime(0));
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

/// A node that has received an entry of VIP 5 at time 0 and drops it after `SECOND`.
fn node_that_dropped_5(opened: Boottime) -> Node {
    let mut node = node(&[]);
    node.open(opened);
    assert!(node.missed(5, opened));
    node.receive(down(1, vec![entry(5, 1)], None), opened)
        .unwrap();
    let later = opened + 2 * SECOND;
    assert_eq!(node.begin_drops(SECOND, 10, later), [5]);
    assert_eq!(node.begin_drops(SECOND, 10, later), [] as [u32; 0]);
    assert_eq!(node.end_drop(5, false, later), DropEnd::Dropped);
    let sent = node.next(later).unwrap();
    assert_eq!((sent.drop, node.follows()), (vec![5], 0));
    node
}

#[test]
fn a_dropped_vip_is_followed_again_only_after_control_has_received_the_drop() {
    let opened = Boottime(5_000);
    let mut node = node_that_dropped_5(opened);
    // Sent before control had received the drop.
    let late = node.receive(down(2, vec![entry(5, 2)], None), opened + 2 * SECOND);
    assert_eq!(late.unwrap().entries, []);
    assert!(node.missed(5, opened + 2 * SECOND));
    let earlier_beat = grant(opened.0, 1);
    node.receive(down(3, vec![], Some(earlier_beat)), opened + 3 * SECOND)
        .unwrap();
    let beat_at = opened + 4 * SECOND;
    let up = node.next(beat_at).unwrap();
    assert_eq!(
        (up.want, up.beat),
        (vec![], Some(Beat { at_ns: beat_at.0 }))
    );
    node.receive(down(4, vec![], Some(grant(beat_at.0, 1))), beat_at)
        .unwrap();
    assert_eq!(node.next(beat_at + WANT_BATCH).unwrap().want, [5]);
    let again = node.receive(down(5, vec![entry(5, 2)], None), beat_at);
    assert_eq!(again.unwrap().entries.len(), 1);
}

#[test]
fn a_new_stream_follows_a_dropped_vip_that_was_missed() {
    let opened = Boottime(5_000);
    let mut node = node_that_dropped_5(opened);
    assert!(node.missed(5, opened + 2 * SECOND));
    node.close();
    let hello = node.open(opened + 3 * SECOND).hello.unwrap();
    assert_eq!(hello.follows, [] as [u32; 0]);
    let up = node.next(opened + 3 * SECOND + WANT_BATCH).unwrap();
    assert_eq!(up.want, [5]);
}

#[test]
fn an_entry_stays_if_it_is_used_or_a_newer_one_is_received() {
    let opened = Boottime(5_000);
    let mut node = node(&[]);
    node.open(opened);
    let entries = vec![entry(5, 1), entry(6, 1), entry(7, 1)];
    node.receive(down(1, entries, None), opened).unwrap();
    let later = opened + 2 * SECOND;
    let count = Count {
        vip: 7,
        open: 1,
        ..Count::default()
    };
    node.count(count, later);
    let mut begun = node.begin_drops(SECOND, 10, later);
    begun.sort_unstable();
    assert_eq!(begun, [5, 6], "7 has an open connection");
    node.receive(down(2, vec![entry(5, 2)], None), later)
        .unwrap();
    assert_eq!(node.end_drop(5, false, later), DropEnd::Newer);
    assert_eq!(node.end_drop(6, true, later), DropEnd::Used);
    assert_eq!(node.follows(), 3);
}

#[test]
fn a_scan_of_vips_is_admitted_at_a_rate_and_leaves_room_for_new_apps() {
    let mut node = node(&[]);
    let start = Boottime(1_000_000_000);
    node.open(start);
    let admitted = (0..1 << 20).filter(|vip| node.missed(*vip, start)).count();
    assert!(admitted <= 2_000, "{admitted}");
    let second = start + SECOND;
    let seen = (1 << 20..(1 << 20) + 40).filter(|vip| node.missed(*vip, second));
    assert_eq!(seen.count(), 40);
}

#[test]
fn the_entries_used_least_recently_are_dropped_when_a_node_follows_too_many() {
    let high = u32::try_from(FOLLOWS_MAX / 8 * 7).unwrap();
    let vips: Vec<u32> = (0..high + 3).collect();
    let mut node = node(&vips);
    assert_eq!(
        node.begin_drops(SECOND, 1_000, Boottime(1)),
        [] as [u32; 0],
        "each may divide its connections over others"
    );
    node.open(Boottime(1));
    let entries = vips.iter().map(|vip| entry(*vip, 1)).collect();
    node.receive(down(1, entries, None), Boottime(1)).unwrap();
    assert_eq!(node.begin_drops(SECOND, 0, Boottime(1)), [] as [u32; 0]);
    for vip in 10..high + 3 {
        let count = Count {
            vip,
            open: 1,
            ..Count::default()
        };
        node.count(count, Boottime(2));
    }
    assert_eq!(node.begin_drops(SECOND, 1_000, Boottime(3)), [0, 1, 2]);
}

#[test]
fn a_node_drops_vips_as_fast_as_a_scan_makes_it_follow_them() {
    const PER_SECOND: u32 = 200;
    let mut node = node(&[]);
    let start = Boottime(1_000_000_000);
    node.open(start);
    let mut seq = 0;
    for second in 0..600 {
        let mut now = start + SECOND * second;
        for vip in second * PER_SECOND..(second + 1) * PER_SECOND {
            now.0 += 5_000_000;
            assert!(node.missed(vip, now), "no room after {second} s");
        }
        let beat = now + WANT_BATCH;
        let up = node.next(beat).unwrap();
        let entries = up.want.iter().map(|vip| entry(*vip, 1)).collect();
        seq += 1;
        let answer = up.beat.map(|beat| grant(beat.at_ns, 1));
        node.receive(down(seq, entries, answer), beat).unwrap();
        if node.are_drops_due(beat) {
            for vip in node.begin_drops(IDLE, 1_024, beat) {
                assert_eq!(node.end_drop(vip, false, beat), DropEnd::Dropped);
            }
        }
    }
    assert!(node.follows() < FOLLOWS_MAX);
}
