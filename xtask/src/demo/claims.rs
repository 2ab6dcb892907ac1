//! What the demo claims, one module a theme; every claim is checked where a user would see it.

pub(super) mod direct;
pub(super) mod faults;
pub(super) mod scale;
pub(super) mod truth;
pub(super) mod wake;
