//! What follows from the facts. Pure.

mod kernel;
mod kube_proxy;
mod network;
mod pods;
#[cfg(test)]
mod tests;

use super::facts::Facts;
use super::report::{Finding, Report};

/// All findings.
pub fn examine(facts: &Facts) -> Report {
    let areas: [Vec<Finding>; 4] = [
        kernel::examine(&facts.kernel),
        network::examine(facts),
        pods::examine(facts),
        kube_proxy::examine(facts),
    ];
    Report {
        findings: areas.into_iter().flatten().collect(),
    }
}
