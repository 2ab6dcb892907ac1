//! What the programs need of the kernel: the maps, and the few steps that more than one hook takes.

pub(crate) mod atomic;
pub(crate) mod choose;
pub(crate) mod count;
pub(crate) mod rewrite;
pub(crate) mod socket;
pub(crate) mod tables;
