//! The controller's loop, events in and actions out, and the handle that reads its state.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator::{Report, link};
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{Channel, Client, Key};
use dormouse_fleet::{Boottime, Handle as Fleet, root};
use dormouse_scheduler::SchedulerClient;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::actuator::{Actuator, Clients};
use crate::apps::{Apps, Config, SLICE, SLICES};
use crate::dispatch::Dispatch;
use crate::event::{Event, Input, ShardEvent};
use crate::explain;
use crate::shards::Shards;

/// Time beyond the node lease in which nodes of the store may connect after a start.
const NODES_MARGIN: Duration = Duration::from_secs(5);

/// The inputs of the controller and the parts that it drives.
pub struct Parts {
    /// The store's client.
    pub client: Client,
    /// A list of the cluster, and the changes after it.
    pub changes: mpsc::Receiver<Batch>,
    /// The scheduler's client.
    pub scheduler: SchedulerClient<Channel>,
    /// The fleet of nodes.
    pub fleet: Fleet,
    /// Events of the nodes.
    pub fleet_events: mpsc::Receiver<root::Event>,
    /// The link to the activators.
    pub hub: link::Hub,
    /// What the activators report.
    pub link_events: mpsc::Receiver<link::Event>,
}

/// The controller's state, for the rest of control; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    /// Held for microseconds, never across an await.
    apps: Arc<Mutex<Apps>>,
}

/// The controller: its handle, and its loop, which ends with `shutdown` or when the stream of changes ends.
pub fn start(
    config: Config,
    parts: Parts,
    shutdown: CancellationToken,
) -> (Handle, impl Future<Output = ()> + Send + use<>) {
    let seed = RandomState::new().build_hasher().finish();
    let overdue = config.node_lease + NODES_MARGIN;
    let epoch = config.epoch;
    let dispatch = Dispatch::new(Shards::new(1), config.ranges.clone());
    let apps = Arc::new(Mutex::new(Apps::new(config, seed)));
    let clients = Clients {
        store: parts.client,
        scheduler: parts.scheduler,
        fleet: parts.fleet,
        hub: parts.hub.clone(),
    };
    let (actuator, outcomes) = Actuator::new(clients, epoch);
    let inbox = Inbox {
        hub: parts.hub,
        changes: parts.changes,
        fleet_events: parts.fleet_events,
        link_events: parts.link_events,
        outcomes,
        overdue,
    };
    let core = Core {
        dispatch,
        apps: Arc::clone(&apps),
        actuator,
    };
    let running = run(inbox, core, shutdown);
    (Handle { apps }, running)
}

struct Inbox {
    hub: link::Hub,
    changes: mpsc::Receiver<Batch>,
    fleet_events: mpsc::Receiver<root::Event>,
    link_events: mpsc::Receiver<link::Event>,
    outcomes: mpsc::Receiver<Input>,
    overdue: Duration,
}

/// The planning parts, and the executor of their actions.
struct Core {
    dispatch: Dispatch,
    apps: Arc<Mutex<Apps>>,
    actuator: Actuator,
}

impl Core {
    fn take(&mut self, input: Input) {
        let dispatched = self.dispatch.apply(input);
        for action in dispatched.actions {
            self.actuator.execute(action);
        }
        for (_, event) in dispatched.events {
            self.apply(event);
        }
    }

    fn apply(&self, event: ShardEvent) {
        let actions = self.apps.lock().apply(Boottime::now(), event);
        for action in actions {
            self.actuator.execute(action);
        }
    }
}

async fn run(mut inbox: Inbox, mut core: Core, shutdown: CancellationToken) {
    let listed = list(&mut inbox.changes, &mut core);
    if shutdown.run_until_cancelled(listed).await != Some(true) {
        return;
    }
    inbox.hub.complete();
    let mut ticks = tokio::time::interval(SLICE);
    // After a delay, the slices that are due follow at once: each app is visited once for each second.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut slices = (0..SLICES).cycle();
    let overdue = tokio::time::sleep(inbox.overdue);
    tokio::pin!(overdue);
    let mut is_ticking = false;
    loop {
        let (is_idle, admission) = {
            let apps = core.apps.lock();
            (apps.is_idle(), apps.admission_due())
        };
        // While nothing is awake, no timer runs.
        let ticked = std::mem::replace(&mut is_ticking, !is_idle);
        if is_ticking && !ticked {
            ticks.reset();
        }
        let wait = admission.map(|at| at.since(Boottime::now()));
        let input = tokio::select! {
            () = shutdown.cancelled() => return,
            batch = inbox.changes.recv() => match batch {
                Some(batch) => Input::Changes(batch),
                None => return,
            },
            Some(event) = inbox.link_events.recv() => match input_of(event) {
                Some(input) => input,
                None => continue,
            },
            Some(event) = inbox.fleet_events.recv() => Input::Fleet(event),
            Some(outcome) = inbox.outcomes.recv() => outcome,
            _ = ticks.tick(), if is_ticking => {
                core.apply(ShardEvent::Slice(slices.next().unwrap_or_default()));
                continue;
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                core.apply(ShardEvent::Admission);
                continue;
            }
            () = &mut overdue, if !overdue.is_elapsed() => Input::NodesOverdue,
        };
        core.take(input);
    }
}

/// Applies the first list of the cluster. Only then are the nodes' events handled: a node that connects gets the complete
/// list of its pods. False: the changes ended.
async fn list(changes: &mut mpsc::Receiver<Batch>, core: &mut Core) -> bool {
    while !core.dispatch.is_listed() {
        let Some(batch) = changes.recv().await else {
            return false;
        };
        core.take(Input::Changes(batch));
    }
    true
}

/// An event of the link to the activators, for the dispatcher.
fn input_of(event: link::Event) -> Option<Input> {
    match event {
        link::Event::Report(report) => Some(Input::App(match report {
            Report::Want { vip, port, at } => Event::Want { vip, port, at },
            Report::Demand { vip, at } => Event::Demand { vip, at },
            Report::FirstByte { vip, at } => Event::FirstByte { vip, at },
        })),
        link::Event::Load(loads) => Some(Input::Load(loads)),
        link::Event::Attached { name } => {
            tracing::info!(name, "activator attached");
            None
        }
        link::Event::Detached { name } => {
            tracing::warn!(name, "activator detached");
            None
        }
    }
}

impl Handle {
    /// An app's `Explanation` as JSON; none if there is no such app.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Value> {
        let apps = self.apps.lock();
        let key = Key::new(namespace, name);
        let vip = apps.vip_of(&key)?;
        match apps.records.get(&vip) {
            Some(record) => {
                let waits = apps.waiting.waits_for(vip);
                Some(explain::explain(record, waits, Boottime::now()))
            }
            None => Some(explain::asleep(&key, vip, &apps)),
        }
    }

    /// An app's wakes, newest first, as `WakeList` JSON; none if there is no such app.
    pub fn wakes(&self, namespace: &str, name: &str) -> Option<Value> {
        let apps = self.apps.lock();
        let vip = apps.vip_of(&Key::new(namespace, name))?;
        let items: Vec<_> = apps.wakes.of(vip).map(crate::wake::Wake::json).collect();
        Some(json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeList", "items": items}))
    }

    /// Registers the metrics of apps.
    pub fn register(&self, registry: &mut Registry) {
        self.apps.lock().metrics.register(registry);
    }
}
