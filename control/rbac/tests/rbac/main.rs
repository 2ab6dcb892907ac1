//! Decisions: cases by hand, and random policies against a slow reference.
#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod builtin;
mod cases;
mod escalation;
mod node;
mod reference;
mod world;
