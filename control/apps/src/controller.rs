//! The controller: a loop that receives everything and dispatches it, a loop for each shard of the apps, and the handle that
//! reads their state.
//!
//! The dispatching loop has the timers of the controller as a whole; a shard has one, for the slices of the second, and only
//! while an app of it is awake. Queues between them are bounded: a shard at its limit delays the dispatching, and nothing is
//! dropped. No shard waits for another or for the dispatcher, so they cannot block each other.

pub(crate) mod checks;
mod core;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator::{Report, link};
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::claim::Claims;
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{App, Channel, Client, Key};
use dormouse_fleet::{Boottime, Handle as Fleet, root};
use dormouse_scheduler::SchedulerClient;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::checks::{Check, Checks};
use self::core::Core;
use crate::actuator::{Actuator, Clients, Outcomes};
use crate::config::Config;
use crate::dispatch::Dispatch;
use crate::event::{Event, Input, ShardEvent};
use crate::settings::follow::Follower;
use crate::shards::Shards;
use crate::shared::Shared;
use crate::traffic::worker::{self, Touched, Worker};
use crate::{epoch, explain};

/// Time beyond the node lease in which nodes of the store may connect after a start.
const NODES_MARGIN: Duration = Duration::from_secs(5);
/// Events queued for a shard. At the limit, the dispatching for all shards waits: so many that only a shard that handles nothing any
/// more reaches it. The memory follows what is queued.
const QUEUED_MAX: usize = 65_536;
/// Events of one queue that are handled before another queue's turn.
const BURST_MAX: usize = 64;

/// The inputs of the controller and the parts that it drives.
pub struct Parts {
    /// The store's client.
    pub client: Client,
    /// The VIPs of apps.
    pub claims: Claims,
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
    core: Arc<Core>,
    checks: Arc<Checks>,
}

/// The inputs of a shard's loop.
struct ShardInputs {
    events: mpsc::Receiver<ShardEvent>,
    checks: mpsc::Receiver<Check>,
}

/// The controller: its handle, and its loops, which end with `shutdown` or when the stream of changes ends.
pub fn start(
    config: Config,
    parts: Parts,
    shutdown: CancellationToken,
) -> (Handle, impl Future<Output = ()> + Send + use<>) {
    let seed = RandomState::new().build_hasher().finish();
    let overdue = config.node_lease + NODES_MARGIN;
    let store = parts.client.fenced(epoch::is_current(config.epoch));
    let clients = Clients {
        store: store.clone(),
        scheduler: parts.scheduler,
        fleet: parts.fleet.clone(),
        hub: parts.hub.clone(),
    };
    let shared = Arc::new(Shared::new(config, Shards::of_machine(), seed));
    let channels = (0..shared.shards.count()).map(|_| mpsc::channel(QUEUED_MAX));
    let (queues, events): (Vec<_>, Vec<_>) = channels.unzip();
    let (outcomes, others) = Outcomes::new(shared.shards, queues.clone());
    let actuator = Actuator::new(clients, outcomes);
    let touched = Arc::new(Touched::default());
    let families = worker::Clients {
        claims: parts.claims.written_by(store.clone()),
        store,
        fleet: parts.fleet,
        shared: Arc::clone(&shared),
    };
    let mut checks = Checks::default();
    let traffic = Worker::new(families, Arc::clone(&touched), checks.add());
    let mut settings = Follower::new(
        parts.client,
        Arc::clone(&shared),
        queues.clone(),
        checks.add(),
    );
    let dispatch = Dispatch::new(shared.shards, shared.config.ranges.clone());
    let core = Arc::new(Core::new(shared, actuator));
    let checked = checks.add();
    let inputs = events.into_iter().map(|events| ShardInputs {
        events,
        checks: checks.add(),
    });
    let inputs: Vec<_> = inputs.collect();
    let dispatcher = Dispatcher {
        core: Arc::clone(&core),
        checks: checked,
        dispatch,
        hub: parts.hub,
        changes: parts.changes,
        fleet_events: parts.fleet_events,
        link_events: parts.link_events,
        outcomes: others,
        queues,
        overdue,
        touched,
    };
    let running = async move {
        let both = async {
            settings.first().await;
            tokio::select! {
                () = settings.run() => {}
                () = dispatcher.run(inputs) => {}
                () = traffic.run() => {}
            }
        };
        shutdown.run_until_cancelled(Box::pin(both)).await;
    };
    let checks = Arc::new(checks);
    (Handle { core, checks }, running)
}

/// Receives everything, and passes it on.
struct Dispatcher {
    core: Arc<Core>,
    dispatch: Dispatch,
    hub: link::Hub,
    changes: mpsc::Receiver<Batch>,
    fleet_events: mpsc::Receiver<root::Event>,
    link_events: mpsc::Receiver<link::Event>,
    outcomes: mpsc::Receiver<Input>,
    checks: mpsc::Receiver<Check>,
    queues: Vec<mpsc::Sender<ShardEvent>>,
    overdue: Duration,
    /// The apps that divide their traffic.
    touched: Arc<Touched>,
}

impl Dispatcher {
    /// Runs until the changes end.
    async fn run(mut self, shards: Vec<ShardInputs>) {
        if !self.list().await {
            return;
        }
        self.hub.complete();
        // They end with this loop.
        let mut loops = JoinSet::new();
        for (number, inputs) in shards.into_iter().enumerate() {
            loops.spawn(Arc::clone(&self.core).run(number, inputs));
        }
        let overdue = tokio::time::sleep(self.overdue);
        tokio::pin!(overdue);
        let (mut reports, mut inputs) = (Vec::new(), Vec::new());
        loop {
            let admission = self.core.shared.admission.due();
            let wait = admission.map(|at| at.since(Boottime::now()));
            tokio::select! {
                batch = self.changes.recv() => match batch {
                    Some(batch) => inputs.push(Input::Changes(batch)),
                    None => return,
                },
                Some(event) = self.link_events.recv() => inputs.extend(input_of(event)),
                1.. = self.fleet_events.recv_many(&mut reports, BURST_MAX) => {
                    inputs.extend(reports.drain(..).map(Input::Fleet));
                }
                1.. = self.outcomes.recv_many(&mut inputs, BURST_MAX) => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                    self.core.admit();
                }
                () = self.core.wakes_wait() => {}
                Some(check) = self.checks.recv() => {
                    checks::answer(check);
                }
                () = &mut overdue, if !overdue.is_elapsed() => inputs.push(Input::NodesOverdue),
            }
            for input in inputs.drain(..) {
                for (shard, event) in self.take(input) {
                    // It is closed only if its shard panicked.
                    if self.queues[shard].send(event).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Applies the first list of the cluster, to all shards. Only then are other events handled: a node that connects gets the
    /// complete list of its pods, and no shard answers that an app is absent which it has not listed yet. False: the
    /// changes ended.
    async fn list(&mut self) -> bool {
        while !self.dispatch.is_listed() {
            let Some(batch) = self.changes.recv().await else {
                return false;
            };
            for (shard, event) in self.take(Input::Changes(batch)) {
                self.core.apply(shard, event);
            }
        }
        true
    }

    /// Handles an input; returns the events for shards.
    fn take(&mut self, input: Input) -> Vec<(usize, ShardEvent)> {
        let dispatched = self.dispatch.apply(input);
        self.core.execute(dispatched.actions);
        self.touched.add(dispatched.families);
        dispatched.events
    }
}

/// An event of the link to the activators, for the dispatcher.
pub(crate) fn input_of(event: link::Event) -> Option<Input> {
    match event {
        link::Event::Report(report) => Some(Input::App(match report {
            Report::Want { vip, port, at } => Event::Want { vip, port, at },
            Report::Demand { vip, at } => Event::Demand { vip, at },
            Report::Unanswered { vip, at, how } => Event::Unanswered { vip, at, how },
            Report::FirstByte { vip, at } => Event::FirstByte { vip, at },
            Report::Answer {
                vip,
                pod,
                at,
                fault,
            } => Event::Answer {
                vip,
                pod,
                at,
                fault,
            },
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
        let key = Key::new(namespace, name);
        self.core.of_app(&key, |apps, vip| {
            let Some(record) = apps.records.get(&vip) else {
                return explain::asleep(&key, vip, apps, Boottime::now());
            };
            let waits = apps.shared.admission.waits_for(vip);
            explain::explain(record, waits, Boottime::now())
        })
    }

    /// The autoscaling settings in force of apps that set none.
    pub fn autoscaling(&self) -> Arc<Cluster> {
        self.core.shared.settings.get()
    }

    /// The settings of an app that are not the defaults, one line each.
    pub fn settings(&self, app: &App) -> Vec<String> {
        explain::settings::settings(app, &self.core.shared.settings)
    }

    /// An app's wakes, newest first, as `WakeList` JSON; none if there is no such app.
    pub fn wakes(&self, namespace: &str, name: &str) -> Option<Value> {
        let key = Key::new(namespace, name);
        let items = self.core.of_app(&key, |apps, vip| {
            let wakes = apps.wakes.of(vip).map(crate::wake::Wake::json);
            wakes.collect::<Vec<_>>()
        })?;
        Some(json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeList", "items": items}))
    }

    /// Resolves once the controller has the list of the cluster, and all of its loops have answered: those that dispatch events, handle
    /// those of each shard, divide traffic, and follow the ConfigMap. False: one has ended.
    pub async fn check(&self) -> bool {
        self.checks.run().await
    }

    /// Registers the metrics of apps.
    pub fn register(&self, registry: &mut Registry) {
        self.core.shared.metrics.register(registry);
    }
}
