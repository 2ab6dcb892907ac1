//! Limits over two shards, each of which asks at a time of its own.

use std::time::Duration;

use super::*;
use crate::admission::Shares;

const NOW: Boottime = Boottime(1_000_000_000_000);
const NONE: Shares = Shares {
    per_tenant: 0,
    in_all: 0,
};

fn admission(wakes: Shares, pods: Shares) -> Admission {
    let limits = Limits {
        wakes,
        pods,
        ..Limits::default()
    };
    Admission::new(limits, Shards::new(2), Gauge::default())
}

/// An app of each shard.
fn apps() -> [u32; 2] {
    let shards = Shards::new(2);
    [0, 1].map(|shard| (1..100).find(|vip| shards.of(*vip) == shard).unwrap())
}

#[test]
fn a_wake_takes_one_token_however_often_it_is_wanted_before_its_shard_begins_it() {
    let [a, b] = apps();
    let in_all = Shares {
        per_tenant: 0,
        in_all: 2,
    };
    let admission = admission(in_all, NONE);
    for _ in 0..5 {
        assert_eq!(admission.want("t", b, NOW), None);
    }
    assert_eq!(admission.want("t", a, NOW), None);
    assert_eq!(admission.wakes(0, NOW), (BTreeSet::from([a]), vec![1]));
    assert_eq!(admission.wakes(1, NOW), (BTreeSet::from([b]), vec![]));
    let waits = admission.want("t", a, NOW).unwrap();
    assert_eq!((waits.scope, waits.is_announced), (Scope::All, true));
    let due = admission.due().unwrap();
    assert_eq!(due, NOW + Duration::from_millis(500));
    assert_eq!(admission.admit(due), [0]);
    assert_eq!(admission.wakes(0, due).0, BTreeSet::from([a]));
}

#[test]
fn a_free_pod_is_kept_for_the_app_of_another_shard_whose_turn_it_is() {
    let [a, b] = apps();
    let one = Shares {
        per_tenant: 0,
        in_all: 1,
    };
    let admission = admission(NONE, one);
    assert_eq!(admission.take_pods("t", a, 1).0, 1);
    assert_eq!(admission.take_pods("t", b, 1).0, 0);
    admission.pods_counted("t", 1, 0);
    assert_eq!(admission.turns(0), (BTreeSet::new(), vec![1]));
    assert_eq!(admission.take_pods("other", a, 1).0, 0);
    assert_eq!(admission.turns(1).0, BTreeSet::from([b]));
    assert_eq!(admission.take_pods("t", b, 1).0, 1);
    admission.end_turn(b);
    assert_eq!(admission.turns(0).0, BTreeSet::new(), "there is no room");
    admission.pods_counted("t", 1, 0);
    assert_eq!(admission.turns(0).0, BTreeSet::from([a]));
}

#[test]
fn an_app_that_is_gone_gives_its_turn_back() {
    let [a, b] = apps();
    let one = Shares {
        per_tenant: 0,
        in_all: 1,
    };
    let admission = admission(NONE, one);
    assert_eq!(admission.take_pods("t", a, 1).0, 1);
    assert_eq!(admission.take_pods("t", b, 1).0, 0);
    admission.pods_counted("t", 1, 0);
    admission.turns(0);
    admission.forget_pods("t", b, 0);
    assert_eq!(admission.take_pods("other", a, 1).0, 1);
}
