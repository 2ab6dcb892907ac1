//! The shards behind their locks, and the loop of each.

use std::sync::Arc;

use dormouse_cluster::Key;
use dormouse_fleet::Boottime;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::{BURST_MAX, ShardInputs};
use crate::action::Action;
use crate::actuator::Actuator;
use crate::apps::{Apps, SLICE, SLICES};
use crate::event::ShardEvent;
use crate::metrics::ShardMetrics;
use crate::shared::Shared;

/// The planning of all apps, and the executor of its actions.
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    shards: Vec<Shard>,
    actuator: Actuator,
    /// A wake waits for the rates.
    wakes_wait: Notify,
}

struct Shard {
    /// Held for microseconds, never across an await.
    apps: Mutex<Apps>,
    /// It is the turn of an app of this shard.
    admitted: Notify,
    metrics: ShardMetrics,
}

impl Core {
    pub(super) fn new(shared: Arc<Shared>, actuator: Actuator) -> Self {
        let new = |number| Shard {
            apps: Mutex::new(Apps::new(Arc::clone(&shared), number)),
            admitted: Notify::new(),
            metrics: shared.metrics.of_shard(number),
        };
        Self {
            shards: (0..shared.shards.count()).map(new).collect(),
            shared,
            actuator,
            wakes_wait: Notify::new(),
        }
    }

    /// The loop of a shard, which ends with its queue.
    pub(super) async fn run(
        self: Arc<Self>,
        number: usize,
        ShardInputs {
            mut events,
            mut checks,
        }: ShardInputs,
    ) {
        let shard = &self.shards[number];
        let mut ticks = tokio::time::interval(SLICE);
        // After a delay, the slices that are due follow at once: each app is visited once for each second.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut slices = (0..SLICES).cycle();
        let mut is_idle = shard.apps.lock().is_idle();
        let mut is_ticking = false;
        loop {
            // While nothing is awake, no timer runs.
            let ticked = std::mem::replace(&mut is_ticking, !is_idle);
            if is_ticking && !ticked {
                ticks.reset();
            }
            let event = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => event,
                    None => return,
                },
                _ = ticks.tick(), if is_ticking => {
                    ShardEvent::Slice(slices.next().unwrap_or_default())
                }
                () = shard.admitted.notified() => ShardEvent::Admission,
                Some(check) = checks.recv() => {
                    is_idle = shard.apps.lock().is_idle();
                    // It may have timed out.
                    let _ = check.send(());
                    continue;
                }
            };
            is_idle = self.handle(number, event, events.len());
            for _ in 1..BURST_MAX {
                let Ok(event) = events.try_recv() else { break };
                is_idle = self.handle(number, event, events.len());
            }
        }
    }

    /// Handles an event outside the loop of its shard.
    pub(super) fn apply(&self, number: usize, event: ShardEvent) {
        self.handle(number, event, 0);
    }

    /// Handles an event; returns whether the passing of time changes nothing in its shard.
    fn handle(&self, number: usize, event: ShardEvent, queued: usize) -> bool {
        let shard = &self.shards[number];
        let (effects, is_idle, held) = {
            let mut apps = shard.apps.lock();
            let now = Boottime::now();
            let effects = apps.apply(now, event);
            (effects, apps.is_idle(), Boottime::now().since(now))
        };
        shard.metrics.handled(held, queued);
        if effects.ports_moved {
            self.listen();
        }
        self.execute(effects.actions);
        if effects.waits {
            self.wakes_wait.notify_one();
        }
        self.notify(effects.admitted);
        is_idle
    }

    /// Sends the activators the ports of all apps, if they have changed. The lock is held meanwhile: the newest ports are
    /// sent last, whichever shard does it.
    fn listen(&self) {
        let mut ports = self.shared.ports.lock();
        if let Some(ports) = ports.take_changed() {
            self.actuator.execute(Action::Listen { ports });
        }
    }

    pub(super) fn execute(&self, actions: Vec<Action>) {
        for action in actions {
            self.actuator.execute(action);
        }
    }

    /// Admits the wakes whose time has come.
    pub(super) fn admit(&self) {
        self.notify(self.shared.admission.admit(Boottime::now()));
    }

    /// Resolves when a wake has begun to wait for the rates. Cancel safe.
    pub(super) async fn wakes_wait(&self) {
        self.wakes_wait.notified().await;
    }

    fn notify(&self, shards: Vec<usize>) {
        for shard in shards {
            self.shards[shard].admitted.notify_one();
        }
    }

    /// Reads an app with its shard, by its VIP; none if there is no such app.
    pub(super) fn of_app<T>(&self, key: &Key, read: impl FnOnce(&Apps, u32) -> T) -> Option<T> {
        for shard in &self.shards {
            let apps = shard.apps.lock();
            if let Some(vip) = apps.vip_of(key) {
                return Some(read(&apps, vip));
            }
        }
        None
    }
}
