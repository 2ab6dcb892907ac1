//! The allocator's guarantees, also against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn allocator(prefix: &str, quarantine: Duration) -> Allocator {
    Allocator::new(prefix.parse().unwrap(), None, Order::Counting, quarantine)
}

fn key(container: &str) -> LeaseKey {
    LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    }
}

fn request(container: &str, address: Option<&str>) -> Request {
    let address = address.map(|a| a.parse().unwrap());
    Request {
        address,
        ..Request::new(key(container), NetnsId::default())
    }
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn take(allocator: &mut Allocator, container: &str, now: Duration) -> Suffix {
    let lease = allocator.claim(&request(container, None), now).unwrap();
    allocator.apply(&Record::Reserve(Arc::clone(&lease)));
    lease.suffix
}

#[test]
fn numbers_are_drawn_in_order_from_the_first_anonymous_cohort() {
    let mut allocator = allocator("2001:db8::/96", QUARANTINE_DEFAULT);
    assert_eq!(take(&mut allocator, "a", seconds(0)), Suffix(0x1_0000));
    assert_eq!(take(&mut allocator, "b", seconds(0)), Suffix(0x1_0001));
    assert_eq!(Suffix(0x1_0000).cohort(), 64);
}

#[test]
fn a_released_address_is_quarantined_for_an_hour_while_others_are_free() {
    let mut allocator = allocator("2001:db8::/120", QUARANTINE_DEFAULT);
    let first = take(&mut allocator, "first", seconds(0));
    allocator.apply(&Record::Free(first, seconds(0)));
    let hour = seconds(3_600);
    for i in 0..239 {
        let taken = take(
            &mut allocator,
            &format!("c{i}"),
            hour.saturating_sub(seconds(1)),
        );
        assert_ne!(taken, first);
        allocator.apply(&Record::Free(taken, hour.saturating_sub(seconds(1))));
    }
    assert_eq!(allocator.usage(hour.saturating_sub(seconds(1))).free, 0);
    assert_eq!(allocator.usage(hour).free, 1);
}

#[test]
fn a_quarantine_gives_way_when_no_address_is_free_the_oldest_first() {
    let range = "10.0.0.0/24".parse().unwrap();
    let mut allocator = Allocator::new(
        "2001:db8::/120".parse().unwrap(),
        Some(range),
        Order::Counting,
        QUARANTINE_DEFAULT,
    );
    let mut add = |container: &str, now| {
        let request = Request {
            ipv4: Ipv4Wish::Any,
            ..request(container, None)
        };
        let lease = allocator.claim(&request, now)?;
        allocator.apply(&Record::Reserve(Arc::clone(&lease)));
        allocator.apply(&Record::Free(lease.suffix, now));
        Ok::<_, AllocateError>((lease.suffix, lease.ipv4.unwrap()))
    };
    // As many pods as there are IPv4 addresses came and went within a minute.
    let released: Vec<_> = (0..253)
        .map(|i| add(&format!("c{i}"), seconds(i / 5)).unwrap())
        .collect();
    let again = [
        add("x", seconds(52)).unwrap(),
        add("y", seconds(52)).unwrap(),
    ];
    assert_eq!(again.map(|pod| pod.1), [released[0].1, released[1].1]);
    // 13 of the prefix's 240 addresses were drawn twice before.
    assert_eq!(again.map(|pod| pod.0), [released[13].0, released[14].0]);
    allocator.check_room(seconds(52)).unwrap();
}

#[test]
fn the_number_of_quarantined_addresses_is_bounded() {
    let mut allocator = allocator("2001:db8::/96", QUARANTINE_DEFAULT);
    let first = take(&mut allocator, "a", seconds(0));
    allocator.apply(&Record::Free(first, seconds(0)));
    for _ in 0..1 << 14 {
        let taken = take(&mut allocator, "a", seconds(1));
        allocator.apply(&Record::Free(taken, seconds(1)));
    }
    assert_eq!(allocator.usage(seconds(1)).quarantined, 1 << 14);
}

#[test]
fn a_second_reservation_of_one_attachment_is_refused_and_the_first_stays() {
    let mut allocator = allocator("2001:db8::/96", QUARANTINE_DEFAULT);
    let first = take(&mut allocator, "a", seconds(0));
    let refused = allocator
        .claim(&request("a", None), seconds(0))
        .unwrap_err();
    assert!(matches!(refused, AllocateError::Held { .. }));
    assert_eq!(allocator.lease(&key("a")).unwrap().suffix, first);
}

#[test]
fn a_requested_address_must_be_free_and_of_cohort_zero() {
    let mut allocator = allocator("2001:db8::/96", QUARANTINE_DEFAULT);
    let lease = allocator
        .claim(&request("a", Some("2001:db8::10")), seconds(0))
        .unwrap();
    allocator.apply(&Record::Reserve(lease.clone()));
    let mut refused = |address: &str, now| {
        allocator
            .claim(&request("b", Some(address)), now)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("2001:db8::10", seconds(0)).contains("held by pods/a/eth0"));
    assert!(refused("2001:db8::1", seconds(0)).contains("2001:db8::10 to 2001:db8::3ff"));
    assert!(refused("2001:db8::1:0", seconds(0)).contains("cannot be requested"));
    assert!(refused("2001:db9::10", seconds(0)).contains("cannot be requested"));
    allocator.apply(&Record::Free(lease.suffix, seconds(5)));
    let refused = allocator
        .claim(&request("b", Some("2001:db8::10")), seconds(6))
        .unwrap_err();
    assert!(matches!(
        refused,
        AllocateError::Quarantined {
            left_ms: 59_000,
            ..
        }
    ));
    assert!(
        allocator
            .claim(&request("b", Some("2001:db8::10")), seconds(65))
            .is_ok()
    );
}

#[test]
fn an_attachment_takes_its_requested_address_back_until_another_one_had_it() {
    let mut allocator = allocator("2001:db8::/96", QUARANTINE_DEFAULT);
    let mut lease_of = |container: &str, address: &str, now| {
        let lease = allocator.claim(&request(container, Some(address)), seconds(now))?;
        allocator.apply(&Record::Reserve(lease.clone()));
        allocator.apply(&Record::Free(lease.suffix, seconds(now)));
        Ok::<_, AllocateError>(())
    };
    let mut lease = |container: &str, now| lease_of(container, "2001:db8::10", now);
    assert!(lease("a", 0).is_ok());
    assert!(lease("b", 1).is_err(), "another one waits");
    assert!(lease("a", 2).is_ok(), "the same one takes it back");
    assert!(lease("b", 70).is_ok());
    assert!(lease("a", 71).is_err(), "it was another one's since");
    assert!(lease_of("b", "2001:db8::20", 80).is_ok());
    let late = lease_of("a", "2001:db8::10", 81);
    assert!(late.is_err(), "also when that one has another address now");
}

#[derive(Clone, Debug)]
enum Op {
    Reserve(u8),
    Live(u8),
    Release(u8),
    Free(u8),
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..40u8).prop_map(Op::Reserve),
        1 => (0..40u8).prop_map(Op::Live),
        1 => (0..40u8).prop_map(Op::Release),
        2 => (0..40u8).prop_map(Op::Free),
        2 => (0..40u8).prop_map(Op::Wait),
    ]
}

proptest! {
    /// The narrowest prefix and few attachments make reuse and exhaustion frequent.
    #[test]
    fn no_address_is_leased_twice_nor_within_its_quarantine(ops in prop::collection::vec(op(), 1..600)) {
        let mut allocator = allocator("2001:db8::/120", seconds(600));
        let (mut now, mut held, mut freed) = (seconds(0), BTreeMap::<u8, Suffix>::new(), BTreeMap::new());
        for op in ops {
            let suffix_of = |c: u8| allocator.lease(&key(&c.to_string())).map(|l| l.suffix);
            let record = match op {
                Op::Wait(s) => { now += seconds(u64::from(s)); None }
                Op::Live(c) => suffix_of(c).map(Record::Live),
                Op::Release(c) => suffix_of(c).map(Record::Release),
                Op::Free(c) => suffix_of(c).map(|s| Record::Free(s, now)),
                Op::Reserve(c) => match allocator.claim(&request(&c.to_string(), None), now) {
                    Ok(lease) => Some(Record::Reserve(lease)),
                    Err(AllocateError::Held { .. }) => { prop_assert!(held.contains_key(&c)); None }
                    Err(error) => {
                        prop_assert_eq!(held.len(), 240, "{}", error);
                        None
                    }
                },
            };
            match &record {
                Some(Record::Reserve(lease)) => {
                    prop_assert!(!held.values().any(|s| *s == lease.suffix));
                    if let Some(at) = freed.get(&lease.suffix) {
                        let resting = |at: &Duration| now < *at + seconds(600);
                        let others = freed.iter().filter(|(other, _)| !held.values().any(|s| s == *other));
                        let quarantined = others.clone().filter(|(_, at)| resting(at)).count();
                        let none_free = held.len() + quarantined == 240;
                        let oldest = others.map(|(_, at)| *at).min();
                        prop_assert!(!resting(at) || none_free && oldest == Some(*at));
                    }
                    held.insert(lease.key.container.parse().unwrap(), lease.suffix);
                }
                Some(Record::Free(suffix, at)) => {
                    held.retain(|_, s| s != suffix);
                    freed.insert(*suffix, *at);
                }
                _ => {}
            }
            if let Some(record) = &record { allocator.apply(record); }
            let leased: BTreeSet<_> = allocator.leases().map(|l| l.suffix).collect();
            prop_assert_eq!(leased, held.values().copied().collect());
        }
        let mut copy = self::allocator("2001:db8::/120", seconds(600));
        for record in &allocator.snapshot() { copy.apply(record); }
        // A snapshot has no ended leases.
        copy.ended = allocator.ended.clone();
        prop_assert_eq!(copy, allocator);
    }
}
