//! The controller's planning parts without its loops.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use super::*;

/// Any number of shards. Their events are handled at once, or one by one in an order of the test's choice.
pub(super) struct Planner {
    dispatch: Dispatch,
    pub(super) shared: Arc<Shared>,
    pub(super) shards: Vec<Apps>,
    queues: Vec<VecDeque<ShardEvent>>,
}

impl Planner {
    pub(super) fn new(config: Config, shards: usize, seed: u64) -> Self {
        let shards = Shards::new(shards);
        let dispatch = Dispatch::new(shards, config.ranges.clone());
        let shared = Arc::new(Shared::new(config, shards, seed));
        let apps = |shard| Apps::new(Arc::clone(&shared), shard);
        Self {
            dispatch,
            shards: (0..shards.count()).map(apps).collect(),
            queues: vec![VecDeque::new(); shards.count()],
            shared,
        }
    }

    /// Handles an input, and all that follows in the shards.
    pub(super) fn apply(&mut self, now: Boottime, input: impl Into<Input>) -> Vec<Action> {
        let mut actions = self.accept(input.into());
        actions.extend(self.drain(now));
        actions
    }

    /// A slice of the second in all shards.
    pub(super) fn slice(&mut self, now: Boottime, slice: usize) -> Vec<Action> {
        self.queue_slice(slice);
        self.drain(now)
    }

    /// Queues a slice of the second in all shards.
    pub(super) fn queue_slice(&mut self, slice: usize) {
        for queue in &mut self.queues {
            queue.push_back(ShardEvent::Slice(slice));
        }
    }

    /// The wakes are due.
    pub(super) fn admit(&mut self, now: Boottime) -> Vec<Action> {
        self.notify(self.shared.admission.admit(now));
        self.drain(now)
    }

    /// Dispatches an input; its events are queued.
    pub(super) fn accept(&mut self, input: Input) -> Vec<Action> {
        let dispatched = self.dispatch.apply(input);
        for (shard, event) in dispatched.events {
            self.queues[shard].push_back(event);
        }
        dispatched.actions
    }

    /// Handles all queued events.
    fn drain(&mut self, now: Boottime) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(shard) = self.busy(0) {
            actions.extend(self.step(shard, now));
        }
        actions
    }

    /// One of the shards that have queued events; none if no shard has.
    pub(super) fn busy(&self, number: usize) -> Option<usize> {
        let queues = self.queues.iter().enumerate();
        let busy = queues.filter(|(_, queue)| !queue.is_empty());
        let busy: Vec<usize> = busy.map(|(shard, _)| shard).collect();
        (!busy.is_empty()).then(|| busy[number % busy.len()])
    }

    /// Handles one event of a shard.
    pub(super) fn step(&mut self, shard: usize, now: Boottime) -> Vec<Action> {
        let event = self.queues[shard].pop_front().expect("no event");
        let effects = self.shards[shard].apply(now, event);
        self.notify(effects.admitted);
        let ports = effects
            .ports_moved
            .then(|| self.shared.ports.lock().take_changed());
        let listen = ports.flatten().map(|ports| Action::Listen { ports });
        listen.into_iter().chain(effects.actions).collect()
    }

    fn notify(&mut self, shards: Vec<usize>) {
        for shard in shards {
            if self.queues[shard].back() != Some(&ShardEvent::Admission) {
                self.queues[shard].push_back(ShardEvent::Admission);
            }
        }
    }

    /// The record of an app that does not sleep.
    pub(super) fn record(&self, vip: u32) -> &AppRecord {
        &self.shards[self.shared.shards.of(vip)].records[&vip]
    }
}

/// The only shard.
impl Deref for Planner {
    type Target = Apps;

    fn deref(&self) -> &Apps {
        assert_eq!(self.shards.len(), 1);
        &self.shards[0]
    }
}

impl DerefMut for Planner {
    fn deref_mut(&mut self) -> &mut Apps {
        assert_eq!(self.shards.len(), 1);
        &mut self.shards[0]
    }
}
