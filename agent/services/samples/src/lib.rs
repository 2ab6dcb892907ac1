//! Objects that tests of Services share: those of the scenarios recorded from kube-proxy, and random ones.
//!
//! The core, the data path's maps and the loaded programs are tested with the same ones.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "the samples' form is fixed: another one must fail the test"
)]

pub mod objects;
pub mod recorded;
pub mod services;
