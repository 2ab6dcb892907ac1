//! Splits in single steps, as a node receives their entries.

use super::super::{Node, WANT_BATCH};
use super::*;
use crate::clock::Boottime;
use crate::proto::{self, Down};

const OWN: u32 = 7;
const OTHER: u32 = 8;
const NOW: Boottime = Boottime(1);

fn pods(count: u16, network: u16) -> Vec<u8> {
    let pods = (0..count).map(|host| {
        let address = [0x2001, 0xdb8, network, 0, 0, 0, 0, host + 1];
        Backend::new(std::net::SocketAddrV6::new(address.into(), 80, 0, 0))
    });
    Backend::pack(&pods.collect::<Vec<_>>())
}

fn serving(vip: u32, version: u64, count: u16) -> Entry {
    Entry {
        vip,
        version,
        mode: Mode::Serve.into(),
        backends: pods(count, u16::try_from(vip).unwrap()),
        leased: true,
        port: 80,
        ..Entry::default()
    }
}

fn split(version: u64, count: u16, weights: [u32; 2]) -> Entry {
    let targets = [OWN, OTHER].into_iter().zip(weights);
    Entry {
        split: targets
            .map(|(vip, weight)| proto::Target { vip, weight })
            .collect(),
        ..serving(OWN, version, count)
    }
}

fn asleep(vip: u32, version: u64) -> Entry {
    Entry {
        vip,
        version,
        asleep: true,
        ..Entry::default()
    }
}

/// A node with an open stream.
struct Stream {
    node: Node,
    seq: u64,
}

impl Stream {
    fn open() -> Self {
        let mut node = Node::new("n1".into(), "boot".into(), "0.1.0".into(), &[]);
        node.open(NOW);
        Self { node, seq: 0 }
    }

    /// The entries that are written to the maps when these are received.
    fn receive(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        self.seq += 1;
        let down = Down {
            seq: self.seq,
            entries,
            ..Down::default()
        };
        self.node.receive(down, NOW).unwrap().entries
    }

    /// The VIPs that it asks control for.
    fn wants(&mut self) -> Vec<u32> {
        let up = self.node.next(NOW + WANT_BATCH);
        up.map_or_else(Vec::new, |up| up.want)
    }
}

/// Mode and weights of the entry that is written for [`OWN`].
fn written(entries: &[Entry]) -> (Mode, Vec<u16>) {
    let entry = entries.iter().rfind(|entry| entry.vip == OWN).unwrap();
    let backends = Backend::unpack(&entry.backends).unwrap();
    let weights = backends.iter().map(|backend| backend.weight);
    (entry.mode(), weights.collect())
}

#[test]
fn a_split_is_in_proxy_mode_until_all_its_targets_serve_and_weighs_their_pods() {
    let mut stream = Stream::open();
    let first = stream.receive(vec![split(1, 1, [90, 10])]);
    assert_eq!(written(&first), (Mode::Proxy, vec![58_982]));
    assert_eq!(stream.wants(), [OTHER], "its entry is needed");
    let sleeping = stream.receive(vec![asleep(OTHER, 1)]);
    assert_eq!(written(&sleeping), (Mode::Proxy, vec![58_982]));
    let both = stream.receive(vec![serving(OTHER, 2, 2)]);
    assert_eq!(written(&both), (Mode::Serve, vec![58_982, 3_277, 3_277]));
    assert!(
        both.iter().any(|entry| entry.vip == OTHER),
        "it has its own VIP too"
    );
    let ended = stream.receive(vec![asleep(OTHER, 3)]);
    assert_eq!(written(&ended), (Mode::Proxy, vec![58_982]));
    assert!(!ended.iter().any(|entry| entry.vip == OWN && entry.asleep));
}

#[test]
fn a_target_without_weight_gets_no_new_connections_and_keeps_no_other_from_serving() {
    let mut stream = Stream::open();
    let alone = stream.receive(vec![split(1, 2, [100, 0]), asleep(OTHER, 1)]);
    assert_eq!(written(&alone), (Mode::Serve, vec![32_768, 32_768]));
    let awake = stream.receive(vec![serving(OTHER, 2, 1)]);
    assert_eq!(written(&awake), (Mode::Serve, vec![32_768, 32_768, 0]));
    let moved = stream.receive(vec![Entry {
        backends: Vec::new(),
        mode: Mode::Proxy.into(),
        ..split(3, 0, [0, 100])
    }]);
    assert_eq!(written(&moved), (Mode::Serve, vec![65_535]));
    let nothing = stream.receive(vec![split(4, 2, [0, 0])]);
    assert_eq!(written(&nothing).0, Mode::Proxy);
}

#[test]
fn a_split_that_ends_leaves_the_vip_its_own_pods() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [50, 50]), serving(OTHER, 1, 1)]);
    let ended = stream.receive(vec![serving(OWN, 2, 1)]);
    assert_eq!(written(&ended), (Mode::Serve, vec![1]));
    let later = stream.receive(vec![serving(OTHER, 2, 3)]);
    assert!(later.iter().all(|entry| entry.vip == OTHER));
}

#[test]
fn the_entry_of_a_vip_that_was_followed_before_is_asked_for_once() {
    let mut stream = Stream::open();
    stream.receive(vec![serving(OTHER, 1, 1)]);
    stream.receive(vec![split(1, 1, [50, 50])]);
    assert_eq!(stream.wants(), [OTHER]);
    let both = stream.receive(vec![serving(OTHER, 1, 1), split(2, 1, [40, 60])]);
    assert_eq!(written(&both).0, Mode::Serve);
    assert_eq!(stream.wants(), [] as [u32; 0]);
}

#[test]
fn a_target_is_followed_as_long_as_its_split() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [50, 50]), serving(OTHER, 1, 1)]);
    let later = NOW + std::time::Duration::from_hours(1);
    let idle = std::time::Duration::from_mins(10);
    assert_eq!(stream.node.begin_drops(idle, 10, later), [OWN]);
    assert_eq!(
        stream.node.end_drop(OWN, false, later),
        super::super::DropEnd::Dropped
    );
    assert_eq!(stream.node.begin_drops(idle, 10, later), [OTHER]);
}

#[test]
fn a_split_that_is_composed_again_while_it_is_dropped_stays() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [50, 50]), serving(OTHER, 1, 1)]);
    let later = NOW + std::time::Duration::from_hours(1);
    let idle = std::time::Duration::from_mins(10);
    assert_eq!(stream.node.begin_drops(idle, 10, later), [OWN]);
    stream.receive(vec![serving(OTHER, 2, 2)]);
    let end = stream.node.end_drop(OWN, false, later);
    assert_eq!(end, super::super::DropEnd::Newer);
}

#[test]
fn the_pods_of_a_target_that_does_not_exist_get_nothing() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [50, 50]), serving(OTHER, 1, 1)]);
    let gone = Entry {
        gone: true,
        ..asleep(OTHER, 2)
    };
    let gone = stream.receive(vec![gone]);
    assert_eq!(written(&gone), (Mode::Proxy, vec![32_768]));
}

#[test]
fn the_pods_of_targets_that_serve_are_in_an_entry_in_proxy_mode_for_a_node_without_an_activator() {
    let mut stream = Stream::open();
    let partly = stream.receive(vec![split(1, 2, [10, 90]), asleep(OTHER, 1)]);
    assert_eq!(written(&partly), (Mode::Proxy, vec![3_277, 3_277]));
    let without_share = stream.receive(vec![split(2, 2, [0, 100])]);
    assert_eq!(written(&without_share), (Mode::Proxy, vec![0, 0]));
}

#[test]
fn a_pod_that_has_ended_without_control_is_in_no_entry_that_is_composed_later() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 2, [50, 50]), asleep(OTHER, 1)]);
    for (number, left) in [(1, 1), (2, 0)] {
        let pod = [0x2001, 0xdb8, 7, 0, 0, 0, 0, number];
        stream.node.withdraw(pod.into());
        let composed = stream.receive(vec![asleep(OTHER, 2)]);
        assert_eq!(written(&composed).1.len(), left);
    }
}

#[test]
fn the_entry_of_a_new_target_in_the_same_message_is_not_asked_for() {
    let mut stream = Stream::open();
    let both = stream.receive(vec![serving(OTHER, 1, 1), split(1, 1, [50, 50])]);
    assert_eq!(written(&both).0, Mode::Serve);
    assert_eq!(stream.wants(), [] as [u32; 0]);
}

fn load(network: u16, begun: u32, open: u32) -> BackendLoad {
    BackendLoad {
        address: [0x2001, 0xdb8, network, 0, 0, 0, 0, 1].into(),
        port: 80,
        begun,
        open,
    }
}

fn count(vip: u32, connections: u64, open: u64) -> Count {
    Count {
        vip,
        interval_ns: 10,
        connections,
        connection_ns: 10 * open,
        open,
    }
}

impl Stream {
    /// The counts that are sent after these of one interval, with these loads of the split's backends.
    fn counts(&mut self, counts: Vec<Count>, loads: &[BackendLoad]) -> Vec<Count> {
        self.node.count_interval(counts, |_| loads.to_vec(), NOW);
        self.node.next(NOW).unwrap().counts
    }
}

fn of(counts: &[Count], vip: u32) -> Count {
    *counts.iter().find(|count| count.vip == vip).unwrap()
}

#[test]
fn the_count_of_a_split_is_that_of_its_targets() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [90, 10]), serving(OTHER, 1, 1)]);
    let counts = stream.counts(vec![count(OWN, 6, 3)], &[load(7, 2, 0), load(8, 4, 3)]);
    let (own, other) = (of(&counts, OWN), of(&counts, OTHER));
    assert_eq!((own.connections, own.open), (2, 0));
    assert_eq!((other.connections, other.open), (4, 3));
}

#[test]
fn connections_at_a_targets_own_vip_are_added_over_the_same_time() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [0, 100]), serving(OTHER, 1, 1)]);
    let both = vec![count(OWN, 4, 2), count(OTHER, 1, 1)];
    let counts = stream.counts(both, &[load(8, 4, 2)]);
    assert_eq!(
        of(&counts, OTHER),
        Count {
            vip: OTHER,
            interval_ns: 10,
            connections: 5,
            connection_ns: 30,
            open: 3,
        }
    );
}

#[test]
fn open_connections_stay_with_their_targets_in_proxy_mode_and_without_weight() {
    let mut stream = Stream::open();
    stream.receive(vec![split(1, 1, [10, 90]), serving(OTHER, 1, 1)]);
    stream.counts(vec![count(OWN, 5, 5)], &[load(7, 0, 0), load(8, 5, 5)]);
    let proxied = Entry {
        mode: Mode::Proxy.into(),
        backends: Vec::new(),
        ..split(2, 0, [10, 90])
    };
    stream.receive(vec![proxied]);
    let counts = stream.counts(vec![count(OWN, 0, 5)], &[]);
    assert_eq!(of(&counts, OTHER).open, 5);
    assert_eq!(of(&counts, OWN).open, 0);
    stream.receive(vec![split(3, 1, [100, 0])]);
    let counts = stream.counts(vec![count(OWN, 0, 5)], &[load(7, 0, 0), load(8, 5, 5)]);
    assert_eq!(
        of(&counts, OTHER).open,
        5,
        "no new ones, but those that it has"
    );
}

#[test]
fn small_weights_of_many_pods_stay_above_nothing() {
    assert_eq!(weight(0, 100, 3), 0);
    assert_eq!(weight(1, 100, 10_000), 1);
    assert_eq!(weight(100, 100, 1), u16::MAX);
    assert_eq!(weight(1, 100, 1), 655);
}
