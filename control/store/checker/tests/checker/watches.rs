//! Faults in watches: each guarantee is broken at each place.

use dormouse_store_checker::{
    history::{Delivery, Operation, Watch},
    watches::{self, Violation},
};

use crate::simulation::{Shape, history, watch};

const SHAPE: Shape = Shape {
    seed: 3,
    clients: 5,
    operations: 200,
    keys: 4,
    lost_of: 12,
};

struct Recorded {
    operations: Vec<Operation>,
    /// A watch from the first revision, and one from a later one.
    watches: [Watch; 2],
}

fn recorded() -> Recorded {
    let (operations, simulation) = history(SHAPE);
    let watches = [(1, 7), (40, 8)].map(|(start, seed)| watch(&simulation.events, start, seed));
    Recorded {
        operations,
        watches,
    }
}

impl Recorded {
    /// Plants a fault at each delivery of the first watch that `plant` accepts; returns the violations.
    fn violations(&self, plant: impl Fn(&mut Vec<Delivery>, usize) -> bool) -> Vec<Violation> {
        let mut violations = Vec::new();
        for index in 0..self.watches[0].deliveries.len() {
            let mut faulty = self.watches.clone();
            if plant(&mut faulty[0].deliveries, index) {
                let found = watches::check(&self.operations, &faulty);
                violations.push(found.expect_err(&format!("the fault at delivery {index}")));
            }
        }
        assert!(
            violations.len() > 10,
            "{} faults were planted",
            violations.len()
        );
        violations
    }
}

#[test]
fn watches_of_a_sequential_store_are_accepted() {
    let Recorded {
        operations,
        watches,
    } = recorded();
    assert_eq!(watches::check(&operations, &watches), Ok(()));
    assert!(watches[1].deliveries.len() > 20);
}

#[test]
fn a_missing_event_is_rejected() {
    let recorded = recorded();
    let last = recorded.watches[0].deliveries.len() - 1;
    recorded.violations(|deliveries, index| {
        let missing = index < last && !deliveries[index].events.is_empty();
        if missing {
            deliveries[index].events.remove(0);
        }
        missing
    });
}

#[test]
fn an_event_delivered_again_is_rejected() {
    let violations = recorded().violations(|deliveries, index| {
        let event = deliveries[index].events.last().cloned();
        deliveries[index].events.extend(event.clone());
        event.is_some()
    });
    assert!(
        violations
            .iter()
            .all(|found| matches!(found, Violation::Twice(_)))
    );
}

#[test]
fn responses_in_the_wrong_order_are_rejected() {
    recorded().violations(|deliveries, index| {
        let swapped = index > 0 && !deliveries[index].events.is_empty();
        if swapped {
            deliveries.swap(index - 1, index);
        }
        swapped
    });
}

#[test]
fn a_revision_split_over_two_responses_is_rejected() {
    let (operations, simulation) = history(Shape {
        operations: 800,
        ..SHAPE
    });
    let recorded = Recorded {
        operations,
        watches: [1, 300].map(|start| watch(&simulation.events, start, 9)),
    };
    let violations = recorded.violations(|deliveries, index| {
        let Delivery { revision, events } = deliveries[index].clone();
        let Some([.., a, b]) = events.last_chunk::<2>().map(|pair| [&pair[0], &pair[1]]) else {
            return false;
        };
        if a.revision == b.revision {
            deliveries[index].events.pop();
            let events = vec![b.clone()];
            deliveries.insert(index + 1, Delivery { revision, events });
        }
        a.revision == b.revision
    });
    assert!(
        violations
            .iter()
            .all(|found| matches!(found, Violation::Order { .. }))
    );
}

#[test]
fn a_bookmark_before_an_event_that_it_covers_is_rejected() {
    let violations = recorded().violations(|deliveries, index| {
        let covered = deliveries[index].events.first().map(|event| event.revision);
        if let Some(revision) = covered {
            let events = Vec::new();
            deliveries.insert(index, Delivery { revision, events });
        }
        covered.is_some()
    });
    let late = |found: &Violation| matches!(found, Violation::AfterBookmark { .. });
    assert!(violations.iter().all(late));
}

#[test]
fn a_bookmark_older_than_its_events_is_rejected() {
    recorded().violations(|deliveries, index| {
        let delivered = deliveries[index].events.last().map(|event| event.revision);
        if let Some(delivered) = delivered {
            let (revision, events) = (delivered - 1, Vec::new());
            deliveries.insert(index + 1, Delivery { revision, events });
        }
        delivered.is_some()
    });
}

#[test]
fn an_event_that_no_operation_explains_is_rejected() {
    recorded().violations(|deliveries, index| {
        let event = deliveries[index].events.first_mut();
        event.map(|event| event.value = Some(u64::MAX)).is_some()
    });
}

#[test]
fn a_wrong_previous_version_is_rejected() {
    let recorded = recorded();
    // The first event of a key has no version before it in the watch.
    let later = recorded.watches[0].deliveries.len() / 2;
    let violations = recorded.violations(|deliveries, index| {
        let event = deliveries[index]
            .events
            .first_mut()
            .filter(|_| index > later);
        event
            .map(|event| event.previous = event.previous.xor(Some(VERSION)))
            .is_some()
    });
    assert!(
        violations
            .iter()
            .all(|found| matches!(found, Violation::Previous { .. }))
    );
}

const VERSION: dormouse_store_checker::history::Version =
    dormouse_store_checker::history::Version {
        value: u64::MAX,
        mod_revision: 1,
    };

#[test]
fn an_event_above_its_responses_revision_is_rejected() {
    recorded().violations(|deliveries, index| {
        deliveries[index].revision -= 1;
        !deliveries[index].events.is_empty()
    });
}
