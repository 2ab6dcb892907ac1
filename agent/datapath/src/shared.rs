//! The parts of a data path that several others use, each with locks of its own.

use std::sync::Arc;

use super::arrays::Arrays;
use super::facts::NodeFacts;
use super::flows::Flows;
use super::grace::Graces;
use super::pool::Pool;

/// Handles of the shared parts.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) arrays: Arc<Arrays>,
    pub(super) pool: Arc<Pool>,
    pub(super) graces: Graces,
    pub(super) facts: Arc<NodeFacts>,
    pub(super) flows: Flows,
}
