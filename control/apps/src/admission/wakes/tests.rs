//! Rates, shares and order of wakes.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const START: Boottime = Boottime(1_000_000_000_000);

fn limited(per_tenant: u32, in_all: u32) -> Wakes {
    Wakes::new(Shares { per_tenant, in_all })
}

fn admitted(wakes: &mut Wakes, now: Boottime) -> Vec<u32> {
    std::iter::from_fn(|| wakes.admit(now)).collect()
}

#[test]
fn a_wake_within_the_rates_begins_at_once_and_once() {
    let mut wakes = limited(10, 100);
    wakes.want("shop", 7);
    wakes.want("shop", 7);
    assert_eq!(wakes.due(), Some(Boottime(0)));
    assert_eq!(admitted(&mut wakes, START), [7]);
    assert_eq!((wakes.due(), wakes.len()), (None, 0));
}

#[test]
fn wakes_beyond_the_rate_of_their_tenant_wait_and_none_is_lost() {
    let mut wakes = limited(10, 100);
    for vip in 0..25 {
        wakes.want("shop", vip);
    }
    assert_eq!(admitted(&mut wakes, START).len(), 10);
    assert_eq!(wakes.waits_for(24), Some(Scope::Tenant));
    let mut now = START;
    let mut late = Vec::new();
    while let Some(due) = wakes.due() {
        assert!(due > now && due <= now + Duration::from_millis(100));
        now = due;
        late.extend(admitted(&mut wakes, now));
    }
    assert_eq!(late, (10..25).collect::<Vec<_>>());
    assert_eq!(now, START + Duration::from_millis(1_500));
}

#[test]
fn ten_thousand_wakes_of_one_tenant_delay_another_by_its_share_only() {
    let mut wakes = limited(0, 100);
    for vip in 0..10_000 {
        wakes.want("flood", vip);
    }
    assert_eq!(admitted(&mut wakes, START).len(), 100);
    assert_eq!(wakes.waits_for(9_999), Some(Scope::All));
    for vip in 20_000..20_010 {
        wakes.want("shop", vip);
    }
    // Two tenants share 100 a second: ten wakes take 20 turns, 200 ms.
    let after = admitted(&mut wakes, START + Duration::from_millis(200));
    let shop = after.iter().filter(|vip| **vip >= 20_000).count();
    assert_eq!((after.len(), shop), (20, 10));
}

#[test]
fn a_tenant_at_its_own_limit_does_not_hold_the_others() {
    let mut wakes = limited(1, 0);
    for vip in 0..100 {
        wakes.want("flood", vip);
    }
    wakes.want("shop", 500);
    assert_eq!(admitted(&mut wakes, START), [0, 500]);
}

#[test]
fn without_limits_nothing_waits() {
    let mut wakes = limited(0, 0);
    for vip in 0..1_000 {
        wakes.want("shop", vip);
    }
    assert_eq!(admitted(&mut wakes, START).len(), 1_000);
}

#[test]
fn an_idle_tenant_is_forgotten_when_its_bucket_is_full() {
    let mut wakes = limited(10, 0);
    wakes.want("shop", 1);
    admitted(&mut wakes, START);
    wakes.forget_idle(START);
    assert_eq!(wakes.tenants.len(), 1);
    wakes.forget_idle(START + Duration::from_millis(100));
    assert!(wakes.tenants.is_empty());
}

proptest! {
    /// Whatever arrives: nothing is lost, no rate is exceeded, and between two wakes of a waiting tenant with tokens every other
    /// tenant wakes at most once.
    #[test]
    fn shares_are_fair_and_nothing_is_lost(
        per_tenant in 1u32..20,
        in_all in 1u32..40,
        arrivals in prop::collection::vec((0u8..4, 0u64..20_000_000), 1..300),
    ) {
        let mut wakes = limited(per_tenant, in_all);
        let (mut now, mut log) = (START, Vec::new());
        let tenants: Vec<u8> = arrivals.iter().map(|(tenant, _)| *tenant).collect();
        let mut admit = |wakes: &mut Wakes, now| {
            log.extend(admitted(wakes, now).into_iter().map(|vip| (now, vip)));
        };
        for ((tenant, gap), vip) in arrivals.iter().zip(0..) {
            now = now + Duration::from_nanos(*gap);
            wakes.want(&tenant.to_string(), vip);
            admit(&mut wakes, now);
        }
        while let Some(due) = wakes.due() {
            now = now.max(due);
            admit(&mut wakes, now);
        }
        let mut vips: Vec<usize> = log.iter().map(|(_, vip)| *vip as usize).collect();
        let mut last: BTreeMap<u8, usize> = BTreeMap::new();
        for vip in &vips {
            // Within a tenant the order is that of arrival.
            prop_assert!(last.insert(tenants[*vip], *vip).is_none_or(|before| before < *vip));
        }
        for (index, (from, _)) in log.iter().enumerate() {
            let second = log[index..].iter().take_while(|(at, _)| at.since(*from) < Duration::from_secs(1));
            prop_assert!(second.count() <= 2 * in_all as usize);
        }
        vips.sort_unstable();
        prop_assert_eq!(vips, (0..arrivals.len()).collect::<Vec<_>>());
    }
}
