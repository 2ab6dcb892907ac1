//! Revisions against the clock, for all keys at once: a revision belongs to one write, and no response is older than one
//! that was received before its request was sent.

use crate::history::{Operation, Revision};

/// A contradiction between revisions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two writes have the same revision.
    #[error("two writes at revision {revision}:\n  {first:?}\n  {second:?}")]
    Shared {
        /// The revision of both.
        revision: Revision,
        /// One of the writes.
        first: Box<Operation>,
        /// The other.
        second: Box<Operation>,
    },
    /// A response is older than one received before its request was sent.
    #[error(
        "revision {newest} was received before this call, whose response is older:\n  {operation:?}"
    )]
    Back {
        /// The highest revision received before the call.
        newest: Revision,
        /// The operation with the older response.
        operation: Box<Operation>,
    },
}

/// Checks the operations of all clients.
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    unique(operations)?;
    forward(operations)
}

fn unique(operations: &[Operation]) -> Result<(), Violation> {
    let mut writes: Vec<(Revision, &Operation)> = operations
        .iter()
        .filter(|operation| !operation.effects().is_empty())
        .filter_map(|operation| Some((operation.answer()?.1.revision, operation)))
        .collect();
    writes.sort_by_key(|(revision, _)| *revision);
    let mut pairs = writes.windows(2);
    match pairs.find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => Err(Violation::Shared {
            revision: pair[0].0,
            first: Box::new(pair[0].1.clone()),
            second: Box::new(pair[1].1.clone()),
        }),
    }
}

fn forward(operations: &[Operation]) -> Result<(), Violation> {
    let mut calls: Vec<&Operation> = operations.iter().collect();
    calls.sort_by_key(|operation| operation.called);
    let answers = operations.iter().filter_map(Operation::answer);
    let mut returns: Vec<_> = answers
        .map(|(at, response)| (at, response.revision))
        .collect();
    returns.sort_unstable();
    let mut returns = returns.into_iter().peekable();
    let mut newest = 0;
    for operation in calls {
        while let Some((_, revision)) = returns.next_if(|(at, _)| *at < operation.called) {
            newest = newest.max(revision);
        }
        let Some((_, response)) = operation.answer() else {
            continue;
        };
        let least = newest + Revision::from(!operation.effects().is_empty());
        if response.revision < least {
            let operation = Box::new(operation.clone());
            return Err(Violation::Back { newest, operation });
        }
    }
    Ok(())
}
