//! The table of cases: what every plugin must do, then thirteen groups that implementations most often get wrong.

mod burst;
mod capabilities;
mod chain;
mod codes;
mod collect;
mod deadline;
mod delegate;
mod delete;
mod drift;
mod duplicates;
mod identity;
mod killed;
mod namespaces;
mod passthrough;
mod requested;
mod streams;
mod verbs;
mod versions;

use crate::conformance::run::Case;

/// Every case for a plugin that wires pods.
pub(crate) fn all() -> Vec<Case> {
    let groups = [
        verbs::CASES,
        codes::CASES,
        capabilities::CASES,
        chain::CASES,
        delegate::IPAM,
        // From here on, what is most often wrong.
        delete::CASES,
        duplicates::CASES,
        killed::CASES,
        deadline::CASES,
        namespaces::CASES,
        versions::CASES,
        collect::CASES,
        requested::CASES,
        streams::CASES,
        passthrough::CASES,
        drift::CASES,
        burst::CASES,
        identity::CASES,
    ];
    groups.into_iter().flatten().copied().collect()
}

/// Cases for a plugin that draws its addresses from another.
pub(crate) fn delegated() -> Vec<Case> {
    delegate::OVER.to_vec()
}
