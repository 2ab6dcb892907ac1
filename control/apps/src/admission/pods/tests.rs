//! Bounds, shares and turns of pods.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::admission::Shares;

fn limited(per_tenant: u32, in_all: u32) -> Pods {
    Pods::new(Limits {
        pods: Shares { per_tenant, in_all },
        ..Limits::default()
    })
}

#[test]
fn an_app_gets_what_its_tenant_and_the_cluster_have_left() {
    let mut pods = limited(10, 15);
    assert_eq!(pods.take("a", 1, 8).0, 8);
    let (taken, held) = pods.take("a", 2, 3);
    assert_eq!((taken, held.by, held.limit), (2, Scope::Tenant, 10));
    let (taken, held) = pods.take("b", 3, 9);
    assert_eq!((taken, held.by, held.limit), (5, Scope::All, 15));
    pods.counted("a", 10, 0);
    pods.lacks("a", 2, false);
    assert_eq!(pods.take("c", 4, 20).0, 10);
    assert!(!pods.tenants.contains_key("a"));
}

#[test]
fn zero_is_no_limit() {
    let mut pods = limited(0, 0);
    assert_eq!(pods.take("a", 1, 1_000_000).0, 1_000_000);
}

#[test]
fn while_an_app_waits_no_other_of_its_tenant_overtakes_it() {
    let mut pods = limited(2, 0);
    assert_eq!(pods.take("a", 6, 2).0, 2);
    assert_eq!(pods.take("a", 7, 1).0, 0);
    pods.counted("a", 2, 1);
    assert_eq!(pods.take("a", 8, 1).0, 0);
    assert_eq!(pods.take("b", 9, 2).0, 2);
    assert_eq!(pods.turn(), Some(7));
    assert_eq!(pods.turn(), None);
    assert_eq!(pods.take("a", 7, 1).0, 1);
}

#[test]
fn what_an_app_may_take_in_its_turn_is_taken_by_no_other_until_it_gives_it_back() {
    let mut pods = limited(0, 1);
    assert_eq!(pods.take("a", 6, 1).0, 1);
    assert_eq!(pods.take("a", 7, 2).0, 0);
    pods.counted("a", 1, 0);
    assert_eq!(pods.turn(), Some(7));
    assert_eq!(pods.take("b", 9, 1).0, 0);
    pods.give_back(7);
    assert_eq!(pods.turn(), Some(9));
    assert_eq!(pods.take("b", 9, 1).0, 1);
}

#[test]
fn an_app_that_lacks_nothing_any_more_loses_its_turn() {
    let mut pods = limited(1, 0);
    pods.take("a", 6, 1);
    pods.take("a", 7, 1);
    pods.take("a", 8, 1);
    pods.lacks("a", 7, false);
    pods.counted("a", 1, 0);
    assert_eq!(pods.turn(), Some(8));
    assert_eq!(pods.turn(), None);
    assert!(pods.waiting.is_empty() && pods.ring.is_empty());
}

/// Apps of a cluster that takes every turn that it gets, as the controller does.
struct Cluster {
    pods: Pods,
    /// Pods had and wanted by each app.
    apps: BTreeMap<u32, (usize, usize)>,
}

impl Cluster {
    fn tenant(vip: u32) -> String {
        format!("t{}", vip % 3)
    }

    fn plan(&mut self, vip: u32) {
        let (had, wanted) = self.apps.get(&vip).copied().unwrap_or_default();
        let missing = wanted.saturating_sub(had);
        let (taken, _) = self.pods.take(&Self::tenant(vip), vip, missing);
        self.apps.insert(vip, (had + taken, wanted));
    }

    /// The apps whose turn it is take it in any order, as those of several shards.
    fn take_turns(&mut self, order: u32) {
        loop {
            let mut turns: Vec<u32> = std::iter::from_fn(|| self.pods.turn()).collect();
            if turns.is_empty() {
                return;
            }
            turns.sort_by_key(|vip| vip.wrapping_mul(order));
            for vip in turns {
                self.plan(vip);
                self.pods.give_back(vip);
            }
        }
    }

    fn want(&mut self, vip: u32, wanted: usize, order: u32) {
        let had = self.apps.get(&vip).map_or(0, |(had, _)| *had);
        let kept = had.min(wanted);
        self.pods.counted(&Self::tenant(vip), had, kept);
        self.apps.insert(vip, (kept, wanted));
        self.plan(vip);
        self.take_turns(order);
    }
}

proptest! {
    /// Whatever apps want: no limit is exceeded, no app lacks a pod for which there is room, and all that wait get theirs in the end.
    #[test]
    fn bounds_hold_and_no_app_starves(
        per_tenant in 1u32..12,
        in_all in 1u32..20,
        wants in prop::collection::vec((0u32..12, 0usize..6), 1..200),
        order in any::<u32>(),
    ) {
        let mut cluster = Cluster { pods: limited(per_tenant, in_all), apps: BTreeMap::new() };
        for (vip, wanted) in wants {
            cluster.want(vip, wanted, order);
            let all: usize = cluster.apps.values().map(|(has, _)| has).sum();
            prop_assert!(all <= in_all as usize);
            for tenant in ["t0", "t1", "t2"] {
                let mine = cluster.apps.iter().filter(|(vip, _)| Cluster::tenant(**vip) == tenant);
                let (has, lacks) = mine.fold((0, 0), |(has, lacks), (_, app)| (has + app.0, lacks + app.1 - app.0));
                prop_assert!(has <= per_tenant as usize);
                let full = has == per_tenant as usize || all == in_all as usize;
                prop_assert!(full || lacks == 0, "{tenant} lacks {lacks} with {has} of {per_tenant}, {all} of {in_all}");
            }
        }
        // Each app in turn gives back what it has: all others that wait are served before it is done.
        for vip in 0..12 {
            cluster.want(vip, 0, order);
        }
        prop_assert!(cluster.pods.waiting.is_empty() && cluster.pods.tenants.is_empty());
        prop_assert_eq!(cluster.pods.all, 0);
    }
}
