//! The part of a server that decides: a scheduler alone, or the leader of shards with its connections.

use tokio_util::sync::CancellationToken;

use super::{ServeError, Server, seed};
use crate::shards::endpoint::Endpoint;
use crate::shards::exchange::Exchange;
use crate::state::State;

/// What the owner of the state has, and the service that members reach.
pub(super) type Deciding = ((State, Option<Exchange>), Option<Endpoint>);

impl Server {
    /// The state of a scheduler alone, or of the leader of shards.
    pub(super) fn state(
        &self,
        url: String,
        lost: CancellationToken,
        shutdown: &CancellationToken,
    ) -> Result<Deciding, ServeError> {
        let Some(sharding) = self.sharding.clone() else {
            let state = State::new(self.profiles.clone(), seed());
            return Ok(((state, None), None));
        };
        let [profile] = self.profiles.as_slice() else {
            return Err(ServeError::Profiles);
        };
        let address = sharding.address.clone();
        let address = address.unwrap_or(url);
        let metrics = self.member_metrics.clone();
        let (lead, exchange, endpoint) =
            Exchange::start(sharding, profile, address, metrics, lost, shutdown);
        let state = State::with_shards(profile.clone(), lead);
        Ok(((state, Some(exchange)), Some(endpoint)))
    }
}
