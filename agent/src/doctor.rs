//! Checks of this machine: what the data path, the pod network and a change from kube-proxy need, line by line, each with the reason
//! and the fix.
//!
//! Reading order: what is known about the machine ([`facts`]), what follows from it ([`findings`], pure), the report
//! ([`report`]), and how the facts are read ([`probe`]).

pub mod facts;
pub mod findings;
pub mod probe;
pub mod report;

pub use facts::Facts;
pub use findings::examine;
pub use report::{Finding, Level, Report};
