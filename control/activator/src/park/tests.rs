//! Order and limits of the queue.

use super::*;

const LIMITS: QueueLimits = QueueLimits {
    count_max: 3,
    bytes_max: 100,
};

#[test]
fn the_smallest_ticket_is_removed_first_in_any_order_of_parking() {
    let mut queue = Queue::default();
    for ticket in [5, 9, 2] {
        queue.park(Ticket(ticket), 1, ticket, LIMITS).unwrap();
    }
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop())
        .map(|(_, waiter)| waiter)
        .collect();
    assert_eq!(order, [2, 5, 9]);
}

#[test]
fn a_full_queue_returns_the_limit_that_was_reached() {
    let mut queue = Queue::default();
    queue.park(Ticket(1), 60, (), LIMITS).unwrap();
    assert_eq!(
        queue.park(Ticket(2), 41, (), LIMITS),
        Err(LimitReached::Bytes)
    );
    queue.park(Ticket(3), 20, (), LIMITS).unwrap();
    queue.park(Ticket(4), 20, (), LIMITS).unwrap();
    assert_eq!(
        queue.park(Ticket(5), 0, (), LIMITS),
        Err(LimitReached::Count)
    );
}

#[test]
fn removing_a_request_frees_its_bytes() {
    let mut queue = Queue::default();
    queue.park(Ticket(1), 60, "a", LIMITS).unwrap();
    assert_eq!(queue.remove(Ticket(1)), Some("a"));
    assert_eq!(queue.remove(Ticket(1)), None);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn dropping_a_reservation_frees_its_part_of_the_budget() {
    let budget = Budget::new(LIMITS);
    let reservation = budget.claim(70).unwrap();
    assert_eq!(budget.claim(31).unwrap_err(), LimitReached::Bytes);
    assert_eq!(budget.used(), (1, 70));
    drop(reservation);
    let reservations: Vec<Reservation> = (0..3).map(|_| budget.claim(10).unwrap()).collect();
    assert_eq!(budget.claim(0).unwrap_err(), LimitReached::Count);
    drop(reservations);
    assert_eq!(budget.used(), (0, 0));
}
