//! Where the outcomes of calls go: those about one app directly to its shard, those about pods and nodes to the dispatcher.

use tokio::sync::mpsc;

use crate::event::{Input, ShardEvent};
use crate::shards::Shards;

/// Outcomes queued for the dispatcher; at the limit, ended calls wait in their tasks.
const OUTCOMES_MAX: usize = 256;

/// The queues of outcomes.
pub(crate) struct Outcomes {
    shards: Shards,
    queues: Vec<mpsc::Sender<ShardEvent>>,
    others: mpsc::Sender<Input>,
}

impl Outcomes {
    /// The queues, those of the shards among them, and the outcomes for the dispatcher.
    pub(crate) fn new(
        shards: Shards,
        queues: Vec<mpsc::Sender<ShardEvent>>,
    ) -> (Self, mpsc::Receiver<Input>) {
        let (others, received) = mpsc::channel(OUTCOMES_MAX);
        let outcomes = Self {
            shards,
            queues,
            others,
        };
        (outcomes, received)
    }

    /// Passes an outcome on. Its receiver is closed only at shutdown.
    pub(super) async fn send(&self, outcome: Input) {
        match outcome {
            Input::App(event) => {
                let shard = self.shards.of(event.vip());
                drop(self.queues[shard].send(ShardEvent::App(event)).await);
            }
            other => drop(self.others.send(other).await),
        }
    }
}
