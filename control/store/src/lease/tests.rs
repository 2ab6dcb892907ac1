//! Leases compared with a model that examines every lease.

use proptest::prelude::*;

use super::*;

const NOW: Uptime = Duration::from_secs(100);

#[test]
fn a_ttl_below_the_minimum_is_raised_and_one_above_the_maximum_is_refused() {
    let mut leases = Leases::default();
    assert_eq!(leases.grant(1, -7, NOW), Ok(TTL_MIN_S));
    let refused = leases.grant(2, TTL_MAX_S + 1, NOW);
    assert_eq!(refused, Err(Error::LeaseTtlTooLarge));
    assert_eq!(leases.grant(2, TTL_MAX_S, NOW), Ok(TTL_MAX_S));
    assert_eq!(leases.grant(2, 5, NOW), Err(Error::LeaseExists));
    let left = leases.time_to_live(2, NOW).unwrap();
    assert_eq!(left.ttl_s, TTL_MAX_S);
}

#[test]
fn a_lease_expires_exactly_at_its_ttl_and_a_renewal_resets_it() {
    let mut leases = Leases::default();
    leases.grant(1, 10, NOW).unwrap();
    let expiry = NOW + Duration::from_secs(10);
    let just_before = expiry.saturating_sub(Duration::from_nanos(1));
    assert_eq!(leases.expired(just_before), Expired::Nothing);
    assert_eq!(leases.expired(expiry), Expired::Lease(1));
    leases.renew(1, expiry).unwrap();
    assert_eq!(leases.expired(expiry), Expired::Nothing);
    assert_eq!(leases.next_expiry(), Some(expiry + Duration::from_secs(10)));
}

#[test]
fn many_renewed_leases_are_moved_in_slices() {
    let mut leases = Leases::default();
    let count = LeaseId::try_from(RENEWED_MAX).unwrap() * 3;
    for id in 1..=count {
        leases.grant(id, 10, NOW).unwrap();
        leases.renew(id, NOW + Duration::from_secs(5)).unwrap();
    }
    let due = NOW + Duration::from_secs(10);
    for _ in 0..3 {
        assert_eq!(leases.expired(due), Expired::Unknown);
    }
    assert_eq!(leases.expired(due), Expired::Nothing);
    assert_eq!(leases.next_expiry(), Some(NOW + Duration::from_secs(15)));
}

#[test]
fn many_leases_are_listed_in_slices_and_those_of_other_slices_may_go_meanwhile() {
    let mut leases = Leases::default();
    for id in 1..=3_000 {
        leases.grant(id, 10_000 - id, NOW).unwrap();
    }
    let mut list = LeaseList::default();
    assert!(!list.slice(&leases));
    leases.revoke(1).unwrap();
    leases.revoke(3_000).unwrap();
    while !list.slice(&leases) {}
    assert!(list.contains(1) && !list.contains(3_000));
    let granted: Vec<_> = list.granted().collect();
    let expected: Vec<_> = (1..3_000).map(|id| (id, 10_000 - id)).collect();
    assert_eq!(granted, expected);
    assert!(list.by_expiry().into_iter().eq((1..3_000).rev()));
}

#[test]
fn the_keys_of_the_largest_and_the_smallest_lease_are_its_own() {
    let mut leases = Leases::default();
    for id in [LeaseId::MIN, -1, 1, LeaseId::MAX] {
        leases.grant(id, 10, NOW).unwrap();
        leases.moved(&id.to_be_bytes(), 0, id);
    }
    for id in [LeaseId::MAX, LeaseId::MIN] {
        let keys = leases.revoke(id).unwrap();
        assert_eq!(keys, [Bytes::copy_from_slice(&id.to_be_bytes())]);
    }
    assert_eq!(leases.keys.len(), 2);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Grant(LeaseId, i64),
    Renew(LeaseId),
    Revoke(LeaseId),
    /// Moves a key to a lease, 0 for none.
    Move(u8, LeaseId),
    /// Time passes, in seconds; expired leases are revoked.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 1..5_i64;
    prop_oneof![
        (id(), 2..20_i64).prop_map(|(id, ttl_s)| Step::Grant(id, ttl_s)),
        id().prop_map(Step::Renew),
        id().prop_map(Step::Revoke),
        (0..6_u8, 0..5_i64).prop_map(|(key, id)| Step::Move(key, id)),
        (0..8_u64).prop_map(Step::Pass),
    ]
}

#[derive(Debug, Default)]
struct Model {
    /// TTL in seconds and expiry.
    leases: BTreeMap<LeaseId, (u64, Uptime)>,
    owner: BTreeMap<u8, LeaseId>,
    now: Uptime,
}

impl Model {
    fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        let own = self.owner.iter().filter(|&(_, &owner)| owner == id);
        own.map(|(&key, _)| Bytes::from(vec![key])).collect()
    }

    fn by_expiry(&self) -> Vec<(Uptime, LeaseId)> {
        let leases = self.leases.iter().map(|(&id, &(_, expires))| (expires, id));
        leases.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn revoke(&mut self, leases: &mut Leases, id: LeaseId) {
        let wanted = self.leases.remove(&id).map(|_| self.keys(id));
        assert_eq!(leases.revoke(id).ok(), wanted);
        self.owner.retain(|_, owner| *owner != id);
    }

    fn grant(&mut self, leases: &mut Leases, id: LeaseId, ttl_s: i64) {
        let granted = leases.grant(id, ttl_s, self.now).is_ok();
        assert_eq!(granted, !self.leases.contains_key(&id));
        if granted {
            let ttl = ttl_s.unsigned_abs();
            self.leases
                .insert(id, (ttl, self.now + Duration::from_secs(ttl)));
        }
    }

    fn pass(&mut self, leases: &mut Leases, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        loop {
            let due = self.by_expiry().first().copied();
            match (leases.expired(self.now), due) {
                (Expired::Lease(id), Some((expires, wanted))) => {
                    assert!(expires <= self.now);
                    assert_eq!(id, wanted);
                    self.revoke(leases, id);
                }
                (got, due) => {
                    assert_eq!(got, Expired::Nothing);
                    assert!(due.is_none_or(|(expires, _)| expires > self.now));
                    return;
                }
            }
        }
    }

    fn apply(&mut self, leases: &mut Leases, step: Step) {
        match step {
            Step::Grant(id, ttl_s) => self.grant(leases, id, ttl_s),
            Step::Renew(id) => {
                let lease = self.leases.get_mut(&id);
                assert_eq!(leases.renew(id, self.now).is_ok(), lease.is_some());
                if let Some((ttl, expires)) = lease {
                    *expires = self.now + Duration::from_secs(*ttl);
                }
            }
            Step::Revoke(id) => self.revoke(leases, id),
            Step::Move(key, id) => {
                // A put with an unknown lease is refused.
                let to = if self.leases.contains_key(&id) { id } else { 0 };
                let from = self.owner.remove(&key).unwrap_or(0);
                if to != 0 {
                    self.owner.insert(key, to);
                }
                leases.moved(&[key], from, to);
            }
            Step::Pass(seconds) => self.pass(leases, seconds),
        }
    }
}

proptest! {
    #[test]
    fn leases_expire_in_order_and_own_the_keys_that_were_moved_to_them(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let (mut leases, mut model) = (Leases::default(), Model::default());
        for step in steps {
            model.apply(&mut leases, step);
            let order: Vec<_> = model.by_expiry().into_iter().map(|(_, id)| id).collect();
            let mut list = LeaseList::default();
            prop_assert!(list.slice(&leases));
            prop_assert_eq!(list.by_expiry(), order);
            for (&id, &(ttl, expires)) in &model.leases {
                let state = leases.time_to_live(id, model.now).unwrap();
                let left = expires.saturating_sub(model.now).as_secs();
                prop_assert_eq!(state.ttl_s.unsigned_abs(), left);
                prop_assert_eq!(state.granted_ttl_s.unsigned_abs(), ttl);
                prop_assert_eq!(state.keys, model.keys(id));
            }
        }
        for id in model.by_expiry().into_iter().map(|(_, id)| id) {
            model.revoke(&mut leases, id);
        }
        prop_assert_eq!(leases.bytes(), 0);
        prop_assert_eq!(leases.next_expiry(), None);
    }
}
