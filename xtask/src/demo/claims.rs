//! The demo's claims, one module per topic; each claim is checked from a user's point of view.

pub(super) mod control;
pub(super) mod direct;
pub(super) mod faults;
pub(crate) mod rollout;
pub(super) mod scale;
pub(super) mod service;
pub(super) mod steps;
pub(super) mod truth;
pub(super) mod wake;
