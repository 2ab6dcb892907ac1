//! Faults in operations: stale and lost versions, second winners, revisions that go back.

use dormouse_store_checker::{
    history::{Ending, Op, Operation, Outcome, Request, Response, Revision, Version},
    linearize::{self, Violation},
    revisions,
};

use crate::simulation::{Shape, history};

const SHAPE: Shape = Shape {
    seed: 1,
    clients: 6,
    operations: 300,
    keys: 4,
    lost_of: 0,
};

fn response(operation: &mut Operation) -> &mut Response {
    let Ending::Answered { response, .. } = &mut operation.ending else {
        panic!("a lost operation")
    };
    response
}

fn rejected(operations: &[Operation]) -> bool {
    matches!(
        linearize::check(operations),
        Err(Violation::NotLinearizable { .. })
    )
}

#[test]
fn histories_of_a_sequential_store_are_accepted() {
    for seed in 0..20 {
        for lost_of in [0, 10] {
            let (operations, _) = history(Shape {
                seed,
                lost_of,
                ..SHAPE
            });
            assert!(operations.len() > 200, "{}", operations.len());
            assert_eq!(linearize::check(&operations), Ok(()));
            assert_eq!(revisions::check(&operations), Ok(()));
        }
    }
}

/// Reads of `operations` with the version before the one that they returned, for each read whose version was written and
/// answered before the read was sent.
fn stale_reads(operations: &[Operation]) -> Vec<(usize, usize, Option<Version>)> {
    let mut stale = Vec::new();
    for (reader, read) in operations.iter().enumerate() {
        let (_, answer) = read.answer().unwrap();
        let ops = read
            .request
            .branch(answer.succeeded)
            .iter()
            .zip(&answer.outcomes);
        for (at, (op, outcome)) in ops.enumerate() {
            let (Op::Get(key), Outcome::Got(Some(version))) = (op, outcome) else {
                continue;
            };
            let wrote = |operation: &&Operation| {
                let (returned, answer) = operation.answer().unwrap();
                let wrote = operation.effects().contains(&(key, Some(version.value)));
                wrote && answer.revision == version.mod_revision && returned < read.called
            };
            if let Some(writer) = operations.iter().find(wrote) {
                stale.push((reader, at, before(operations, key, writer)));
            }
        }
    }
    stale
}

/// The version of a key before a write.
fn before(operations: &[Operation], key: &String, writer: &Operation) -> Option<Version> {
    let revision = |operation: &Operation| operation.answer().unwrap().1.revision;
    let earlier = operations
        .iter()
        .filter(|other| revision(other) < revision(writer));
    let changes = earlier.flat_map(|other| {
        let effects = other
            .effects()
            .into_iter()
            .filter(|(changed, _)| *changed == key);
        effects
            .map(|(_, value)| (revision(other), value))
            .collect::<Vec<_>>()
    });
    let (mod_revision, value) = changes.max_by_key(|(revision, _)| *revision)?;
    value.map(|value| Version {
        value,
        mod_revision,
    })
}

#[test]
fn each_stale_read_is_rejected() {
    let (operations, _) = history(SHAPE);
    let stale = stale_reads(&operations);
    assert!(stale.len() > 30, "{} reads", stale.len());
    for (reader, at, version) in stale {
        let mut faulty = operations.clone();
        response(&mut faulty[reader]).outcomes[at] = Outcome::Got(version);
        assert!(rejected(&faulty), "{:?}", faulty[reader]);
    }
}

#[test]
fn each_second_winner_of_a_compare_is_rejected() {
    let (operations, _) = history(SHAPE);
    let mut planted = 0;
    for (index, loser) in operations.iter().enumerate() {
        let (_, answer) = loser.answer().unwrap();
        let [(key, compared)] = loser.request.compares.as_slice() else {
            continue;
        };
        let overwritten = |other: &Operation| {
            let (returned, answer) = other.answer().unwrap();
            let writes = other.effects().iter().any(|(changed, _)| *changed == key);
            writes && answer.revision > *compared && returned < loser.called
        };
        if answer.succeeded || *compared == 0 || !operations.iter().any(overwritten) {
            continue;
        }
        let mut faulty = operations.clone();
        let request = faulty[index].request.clone();
        let response = response(&mut faulty[index]);
        response.succeeded = true;
        response.outcomes = vec![Outcome::Put; request.success.len()];
        if let [Op::Delete(_)] = request.success.as_slice() {
            response.outcomes = vec![Outcome::Deleted(true)];
        }
        assert!(rejected(&faulty), "{:?}", faulty[index]);
        planted += 1;
    }
    assert!(planted > 10, "{planted} winners");
}

#[test]
fn each_revision_that_goes_back_is_rejected() {
    let (operations, _) = history(SHAPE);
    let mut planted = 0;
    for (index, operation) in operations.iter().enumerate() {
        let answers = operations.iter().filter_map(Operation::answer);
        let received = answers.filter(|(at, _)| *at < operation.called);
        let newest = received
            .map(|(_, response)| response.revision)
            .max()
            .unwrap_or(0);
        if newest > 0 {
            let mut faulty = operations.clone();
            response(&mut faulty[index]).revision = newest - 1;
            assert!(revisions::check(&faulty).is_err());
            planted += 1;
        }
    }
    assert!(planted > 200, "{planted} operations");
}

#[test]
fn two_writes_with_one_revision_are_rejected() {
    let write = |client, key: &str, value| Operation {
        client,
        called: 1,
        request: Request::of(vec![Op::Put(key.into(), value)]),
        ending: answered(2, 7, vec![Outcome::Put]),
    };
    let writes = [write(0, "a", 1), write(1, "b", 2)];
    assert!(matches!(
        revisions::check(&writes),
        Err(revisions::Violation::Shared { revision: 7, .. })
    ));
}

fn answered(at: u64, revision: Revision, outcomes: Vec<Outcome>) -> Ending {
    let succeeded = true;
    Ending::Answered {
        at,
        response: Response {
            revision,
            succeeded,
            outcomes,
        },
    }
}

/// A write that is sent at time 10 and lost, and reads that are sent at the given times and find the write's revision.
fn lost_write_then_reads(until: u64, reads: &[(u64, Option<Revision>)]) -> Vec<Operation> {
    let key = || "a".to_owned();
    let mut operations = vec![Operation {
        client: 0,
        called: 10,
        request: Request::of(vec![Op::Put(key(), 1)]),
        ending: Ending::Lost { until },
    }];
    for &(called, found) in reads {
        let version = found.map(|mod_revision| Version {
            value: 1,
            mod_revision,
        });
        operations.push(Operation {
            client: 1,
            called,
            request: Request::of(vec![Op::Get(key())]),
            ending: answered(called + 5, found.unwrap_or(4), vec![Outcome::Got(version)]),
        });
    }
    operations
}

#[test]
fn a_lost_write_takes_effect_once_in_time_or_never() {
    let accepted =
        |until, reads: &[_]| linearize::check(&lost_write_then_reads(until, reads)).is_ok();
    assert!(accepted(20, &[(30, None)]));
    assert!(accepted(20, &[(30, Some(5))]));
    assert!(accepted(100, &[(30, None), (50, Some(5))]));
    assert!(
        !accepted(40, &[(30, None), (60, None), (80, Some(5))]),
        "it took effect too late"
    );
    assert!(
        !accepted(100, &[(30, Some(5)), (50, None)]),
        "it was taken back"
    );
    assert!(
        !accepted(100, &[(30, Some(5)), (50, Some(6))]),
        "it has two revisions"
    );
    assert!(
        !accepted(100, &[(0, Some(5))]),
        "it was read before it was sent"
    );
}
