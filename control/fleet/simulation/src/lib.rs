//! What the simulations of the fleet and of all of control share: randomness, and a node with its clock, its stream and its lease.

#![forbid(unsafe_code)]

pub mod node;
pub mod random;

pub use node::{Node, Rule};
pub use random::Random;
