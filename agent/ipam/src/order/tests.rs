//! A shuffled lane has the same numbers, each once.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::prefix::NodePrefix;

fn shuffled(byte: u8) -> Order {
    Order::Shuffled(Secret([byte; 16]))
}

fn length(lane: Lane) -> usize {
    usize::try_from(lane.count).unwrap()
}

fn walk(order: Order, lane: Lane) -> Vec<u32> {
    let numbers: Vec<_> = order
        .from(lane, order.first(lane))
        .take(length(lane))
        .collect();
    assert_eq!(order.after(lane, numbers[numbers.len() - 1]), numbers[0]);
    numbers
}

#[test]
fn the_hash_is_the_published_one() {
    let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    assert_eq!(siphash(key, key[0]), 0x93f5_f579_9a93_2462);
}

#[test]
fn all_numbers_of_the_anonymous_lane_come_once() {
    let prefix: NodePrefix = "2001:db8::/96".parse().unwrap();
    let lane = prefix.anonymous();
    let numbers: HashSet<_> = walk(shuffled(7), lane).into_iter().collect();
    assert_eq!(numbers.len(), 983_040);
    let anonymous = lane.first..lane.first + lane.count;
    assert!(numbers.iter().all(|number| anonymous.contains(number)));
}

#[test]
fn each_secret_and_lane_has_an_order_of_its_own() {
    let lane = |first| Lane { first, count: 1023 };
    let order = |secret, first| -> Vec<u32> {
        let numbers = walk(shuffled(secret), lane(first)).into_iter();
        numbers.map(|number| number - first).collect()
    };
    assert_ne!(order(1, 0), order(2, 0));
    assert_ne!(order(1, 0), order(1, 1024));
    let neighbours = order(1, 0).windows(2).filter(|w| w[1] == w[0] + 1).count();
    assert!(
        neighbours < 10,
        "{neighbours} of 1,023 are followed by their neighbour"
    );
}

#[test]
fn a_debug_print_hides_the_secret() {
    assert_eq!(format!("{:?}", Secret([0x42; 16])), "Secret(..)");
}

proptest! {
    #[test]
    fn each_number_of_a_lane_comes_exactly_once(
        secret in any::<[u8; 16]>(),
        first in 0..u32::MAX / 2,
        count in 1..3000u32,
    ) {
        let lane = Lane { first, count };
        for order in [Order::Counting, Order::Shuffled(Secret(secret))] {
            let mut numbers = walk(order, lane);
            for pair in numbers.windows(2) {
                prop_assert_eq!(order.after(lane, pair[0]), pair[1]);
                prop_assert_eq!(order.from(lane, pair[0]).nth(1), Some(pair[1]));
            }
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(first..first + count));
        }
    }

    #[test]
    fn offsets_stay_inside_a_lane_of_any_size(
        secret in any::<[u8; 16]>(),
        count in 1..=u32::MAX,
        position in any::<u32>(),
    ) {
        let shuffle = Shuffle::new(Secret(secret), Lane { first: 0, count });
        let position = position % count;
        let offset = shuffle.offset(position);
        prop_assert!(offset < count);
        prop_assert_eq!(shuffle.position(offset), position);
    }
}
