//! The controller's one loop: events in, actions out. What it knows can be asked for at any time.

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

use crate::actuator::Actuator;
use crate::apps::{Apps, Config};
use crate::event::{Event, Proxied};
use crate::explain;

/// How often apps are measured.
const SECOND: Duration = Duration::from_secs(1);
/// How much longer than its lease a node that the store shows is waited for after a start.
const NODES_MARGIN: Duration = Duration::from_secs(5);

/// What the controller works with.
pub struct Parts {
    /// The store.
    pub client: Client,
    /// The cluster as it was, and every change since.
    pub view: View,
    /// Changes after `view`.
    pub changes: mpsc::Receiver<Batch>,
    /// Who chooses nodes.
    pub scheduler: SchedulerClient<Channel>,
    /// The nodes.
    pub fleet: Fleet,
    /// What nodes say.
    pub fleet_events: mpsc::Receiver<root::Event>,
    /// Who stands in for sleeping apps.
    pub activator: activator::Handle,
    /// Requests that wait for sleeping apps.
    pub demands: mpsc::Receiver<activator::Demand>,
}

/// What the rest of control asks the controller; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    /// Held for microseconds, never across an await.
    apps: Arc<Mutex<Apps>>,
    activator: activator::Handle,
}

/// Starts the controller: what it can be asked, and its loop, which ends with `shutdown` or when the cluster's changes
/// end.
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
    let (actuator, outcomes) = Actuator::new(
        parts.client,
        parts.scheduler,
        parts.fleet,
        parts.activator.clone(),
        epoch,
    );
    for action in actions {
        actuator.carry_out(action);
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
                answers(&apps, &inbox.activator);
                Event::Second(measured(&inbox.activator))
            }
            () = &mut overdue, if !overdue.is_elapsed() => Event::NodesOverdue,
        };
        let actions = apps.lock().apply(Boottime::now(), event);
        for action in actions {
            actuator.carry_out(action);
        }
    }
}

fn measured(activator: &activator::Handle) -> Vec<Proxied> {
    let stats = activator.take_stats().into_iter();
    stats
        .map(|(vip, stat)| Proxied {
            vip,
            concurrency: stat.concurrency,
            requests: stat.requests,
        })
        .collect()
}

/// Completes the wakes that were answered meanwhile.
fn answers(apps: &Mutex<Apps>, activator: &activator::Handle) {
    let mut apps = apps.lock();
    for vip in apps.unanswered() {
        if let Some(at) = activator.first_byte(vip) {
            apps.apply(Boottime::now(), Event::FirstByte { vip, at });
        }
    }
}

impl Handle {
    /// Why an app is as it is, as `Explanation` JSON; none where there is no such app.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Value> {
        let apps = self.apps.lock();
        let slot = apps
            .slots
            .get(apps.index.get(&Key::new(namespace, name))?)?;
        Some(explain::explain(slot, Boottime::now()))
    }

    /// An app's wakes, newest first, as `WakeList` JSON; none where there is no such app.
    pub fn wakes(&self, namespace: &str, name: &str) -> Option<Value> {
        answers(&self.apps, &self.activator);
        let apps = self.apps.lock();
        let vip = *apps.index.get(&Key::new(namespace, name))?;
        let items: Vec<_> = apps.wakes.of(vip).map(crate::wake::Wake::json).collect();
        Some(json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeList", "items": items}))
    }

    /// Registers the always-on metrics of apps.
    pub fn register(&self, registry: &mut Registry) {
        self.apps.lock().metrics.register(registry);
    }
}
