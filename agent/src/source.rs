//! Where a node learns what to do. With control that is the fleet stream.

pub mod fleet;
pub mod fleet_state;
pub mod manifests;
