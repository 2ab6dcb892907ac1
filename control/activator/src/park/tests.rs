//! The queue's order and limits.

use super::*;

const ROOM: Room = Room {
    count_max: 3,
    bytes_max: 100,
};

#[test]
fn the_earliest_ticket_leaves_first_whenever_it_was_parked() {
    let mut queue = Queue::default();
    for ticket in [5, 9, 2] {
        queue.park(Ticket(ticket), 1, ticket, ROOM).unwrap();
    }
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop())
        .map(|(_, waiter)| waiter)
        .collect();
    assert_eq!(order, [2, 5, 9]);
}

#[test]
fn a_full_queue_says_which_limit_was_met() {
    let mut queue = Queue::default();
    queue.park(Ticket(1), 60, (), ROOM).unwrap();
    assert_eq!(queue.park(Ticket(2), 41, (), ROOM), Err(Full::Bytes));
    queue.park(Ticket(3), 20, (), ROOM).unwrap();
    queue.park(Ticket(4), 20, (), ROOM).unwrap();
    assert_eq!(queue.park(Ticket(5), 0, (), ROOM), Err(Full::Count));
}

#[test]
fn one_who_leaves_gives_his_bytes_back() {
    let mut queue = Queue::default();
    queue.park(Ticket(1), 60, "a", ROOM).unwrap();
    assert_eq!(queue.remove(Ticket(1)), Some("a"));
    assert_eq!(queue.remove(Ticket(1)), None);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn a_share_of_the_budget_is_given_back_when_dropped() {
    let budget = Budget::new(ROOM);
    let share = budget.claim(70).unwrap();
    assert_eq!(budget.claim(31).unwrap_err(), Full::Bytes);
    assert_eq!(budget.used(), (1, 70));
    drop(share);
    let shares: Vec<Share> = (0..3).map(|_| budget.claim(10).unwrap()).collect();
    assert_eq!(budget.claim(0).unwrap_err(), Full::Count);
    drop(shares);
    assert_eq!(budget.used(), (0, 0));
}
