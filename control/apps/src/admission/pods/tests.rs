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
    assert_eq!(pods.room("a", false).0, 10);
    pods.counted("a", 0, 8);
    let (room, held) = pods.room("a", false);
    assert_eq!((room, held.by, held.limit), (2, Scope::Tenant, 10));
    let (room, held) = pods.room("b", false);
    assert_eq!((room, held.by, held.limit), (7, Scope::All, 15));
    pods.counted("a", 8, 0);
    assert_eq!(pods.room("b", false).0, 10);
    assert!(pods.tenants.is_empty());
}

#[test]
fn zero_is_no_limit() {
    let mut pods = limited(0, 0);
    pods.counted("a", 0, 1_000_000);
    assert_eq!(pods.room("a", false).0, usize::MAX);
}

#[test]
fn while_an_app_waits_no_other_of_its_tenant_overtakes_it() {
    let mut pods = limited(2, 0);
    pods.counted("a", 0, 2);
    pods.lacks("a", 7, true);
    pods.counted("a", 2, 1);
    assert_eq!(pods.room("a", false).0, 0);
    assert_eq!(pods.room("b", false).0, 2);
    assert_eq!(pods.turn(), Some(7));
    assert_eq!(pods.room("a", true).0, 1);
    pods.counted("a", 1, 2);
    assert_eq!(pods.turn(), None);
}

#[test]
fn an_app_that_lacks_nothing_any_more_loses_its_turn() {
    let mut pods = limited(1, 0);
    pods.counted("a", 0, 1);
    pods.lacks("a", 7, true);
    pods.lacks("a", 8, true);
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

    fn plan(&mut self, vip: u32, turn: bool) {
        let tenant = Self::tenant(vip);
        let (had, wanted) = self.apps.get(&vip).copied().unwrap_or_default();
        let missing = wanted.saturating_sub(had);
        let has = had + missing.min(self.pods.room(&tenant, turn).0);
        self.pods.counted(&tenant, had, has);
        self.pods.lacks(&tenant, vip, has < wanted);
        self.apps.insert(vip, (has, wanted));
    }

    fn want(&mut self, vip: u32, wanted: usize) {
        let had = self.apps.get(&vip).map_or(0, |(had, _)| *had);
        let kept = had.min(wanted);
        self.pods.counted(&Self::tenant(vip), had, kept);
        self.apps.insert(vip, (kept, wanted));
        self.plan(vip, false);
        while let Some(vip) = self.pods.turn() {
            self.plan(vip, true);
        }
    }
}

proptest! {
    /// Whatever apps want: no limit is exceeded, no app lacks a pod for which there is room, and all that wait get theirs in the end.
    #[test]
    fn bounds_hold_and_no_app_starves(
        per_tenant in 1u32..12,
        in_all in 1u32..20,
        wants in prop::collection::vec((0u32..12, 0usize..6), 1..200),
    ) {
        let mut cluster = Cluster { pods: limited(per_tenant, in_all), apps: BTreeMap::new() };
        for (vip, wanted) in wants {
            cluster.want(vip, wanted);
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
            cluster.want(vip, 0);
        }
        prop_assert!(cluster.pods.waiting.is_empty() && cluster.pods.tenants.is_empty());
        prop_assert_eq!(cluster.pods.all, 0);
    }
}
