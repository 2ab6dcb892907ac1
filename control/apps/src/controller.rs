//! The controller's loop, events in and actions out, and the handle that reads its state.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator as activator;
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{Client, Key, View};
use dormouse_fleet::{Boottime, Handle as Fleet, root};
use dormouse_scheduler::SchedulerClient;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::actuator::{Actuator, Clients};
use crate::apps::{Apps, Config};
use crate::event::{ActivatorLoad, Event};
use crate::explain;

/// Interval of the load measurement.
const SECOND: Duration = Duration::from_secs(1);
/// Time beyond the node lease in which nodes of the store may connect after a start.
const NODES_MARGIN: Duration = Duration::from_secs(5);

/// The inputs of the controller and the parts that it drives.
pub struct Parts {
    /// The store's client.
    pub client: Client,
    /// The cluster at the start.
    pub view: View,
    /// Changes after `view`.
    pub changes: mpsc::Receiver<Batch>,
    /// The scheduler's client.
    pub scheduler: SchedulerClient<Channel>,
    /// The fleet of nodes.
    pub fleet: Fleet,
    /// Events of the nodes.
    pub fleet_events: mpsc::Receiver<root::Event>,
    /// The activator.
    pub activator: activator::Handle,
    /// Demands for pods, from the activator.
    pub demands: mpsc::Receiver<activator::Demand>,
}

/// The controller's state, for the rest of control; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    /// Held for microseconds, never across an await.
    apps: Arc<Mutex<Apps>>,
    activator: activator::Handle,
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
    let (apps, actions) = Apps::new(config, &parts.view, seed, Boottime::now());
    let apps = Arc::new(Mutex::new(apps));
    let clients = Clients {
        store: parts.client,
        scheduler: parts.scheduler,
        fleet: parts.fleet,
        activator: parts.activator.clone(),
    };
    let (actuator, outcomes) = Actuator::new(clients, epoch);
    for action in actions {
        actuator.execute(action);
    }
    let inbox = Inbox {
        changes: parts.changes,
        fleet_events: parts.fleet_events,
        demands: parts.demands,
        outcomes,
        activator: parts.activator.clone(),
        overdue,
    };
    let running = run(inbox, Arc::clone(&apps), actuator, shutdown);
    let handle = Handle {
        apps,
        activator: parts.activator,
    };
    (handle, running)
}

struct Inbox {
    changes: mpsc::Receiver<Batch>,
    fleet_events: mpsc::Receiver<root::Event>,
    demands: mpsc::Receiver<activator::Demand>,
    outcomes: mpsc::Receiver<Event>,
    activator: activator::Handle,
    overdue: Duration,
}

async fn run(
    mut inbox: Inbox,
    apps: Arc<Mutex<Apps>>,
    actuator: Actuator,
    shutdown: CancellationToken,
) {
    let mut second = tokio::time::interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let overdue = tokio::time::sleep(inbox.overdue);
    tokio::pin!(overdue);
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            batch = inbox.changes.recv() => match batch {
                Some(batch) => Event::Changes(batch),
                None => return,
            },
            Some(demand) = inbox.demands.recv() => Event::Demand { vip: demand.vip, at: demand.at },
            Some(event) = inbox.fleet_events.recv() => Event::Fleet(event),
            Some(outcome) = inbox.outcomes.recv() => outcome,
            _ = second.tick() => {
                complete_wakes(&apps, &inbox.activator);
                Event::Second(activator_load(&inbox.activator))
            }
            () = &mut overdue, if !overdue.is_elapsed() => Event::NodesOverdue,
        };
        let actions = apps.lock().apply(Boottime::now(), event);
        for action in actions {
            actuator.execute(action);
        }
    }
}

fn activator_load(activator: &activator::Handle) -> Vec<ActivatorLoad> {
    let stats = activator.take_stats().into_iter();
    stats
        .map(|(vip, stat)| ActivatorLoad {
            vip,
            concurrency: stat.concurrency,
            requests: stat.requests,
        })
        .collect()
}

/// Completes the wakes whose first response has begun.
fn complete_wakes(apps: &Mutex<Apps>, activator: &activator::Handle) {
    let mut apps = apps.lock();
    for vip in apps.without_first_byte() {
        if let Some(at) = activator.first_byte(vip) {
            apps.apply(Boottime::now(), Event::FirstByte { vip, at });
        }
    }
}

impl Handle {
    /// An app's `Explanation` as JSON; none if there is no such app.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Value> {
        let apps = self.apps.lock();
        let record = apps
            .records
            .get(apps.index.get(&Key::new(namespace, name))?)?;
        Some(explain::explain(record, Boottime::now()))
    }

    /// An app's wakes, newest first, as `WakeList` JSON; none if there is no such app.
    pub fn wakes(&self, namespace: &str, name: &str) -> Option<Value> {
        complete_wakes(&self.apps, &self.activator);
        let apps = self.apps.lock();
        let vip = *apps.index.get(&Key::new(namespace, name))?;
        let items: Vec<_> = apps.wakes.of(vip).map(crate::wake::Wake::json).collect();
        Some(json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeList", "items": items}))
    }

    /// Registers the metrics of apps.
    pub fn register(&self, registry: &mut Registry) {
        self.apps.lock().metrics.register(registry);
    }
}
