//! The execution of actions: each slow call in its own task, which sends its result back as an event.

pub(crate) mod convert;
mod create;
mod known;
mod outcomes;
mod permits;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator::link::Hub;
use dormouse_cluster::client::{Guard, chain};
use dormouse_cluster::events::{self, EventType, Occurrence};
use dormouse_cluster::pod::set_unscheduled;
use dormouse_cluster::{App, Channel, Client, ClientError, Key, Object, Revision};
use dormouse_fleet::{Boottime, Handle as Fleet, proto};
use dormouse_scheduler::{SchedulerClient, place_request};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::action::{Action, Entry, Status};
use crate::event::{AppRead, Event, Input, RevisionRead};
use crate::nodes::{self, ConnectedNode};
use crate::pod::{self, UNSCHEDULABLE};
use convert::{app_status, entry_message, has_same_split, route_of};
use known::write_known;
pub(crate) use outcomes::Outcomes;
use permits::{Kind, Permits};

/// Timeout of the scheduler; after it the pod is created without a node, and the scheduler binds it later.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// The clients with which actions are executed.
pub(crate) struct Clients {
    /// It writes only while this control has the newest epoch.
    pub(crate) store: Client,
    pub(crate) scheduler: SchedulerClient<Channel>,
    pub(crate) fleet: Fleet,
    pub(crate) hub: Hub,
}

/// The executor of actions.
pub(crate) struct Actuator {
    clients: Clients,
    outcomes: Arc<Outcomes>,
    /// Permits of slow calls.
    permits: Arc<Permits>,
}

impl Actuator {
    /// An actuator whose calls end in `outcomes`.
    pub(crate) fn new(clients: Clients, outcomes: Outcomes) -> Self {
        Self {
            clients,
            outcomes: Arc::new(outcomes),
            permits: Arc::default(),
        }
    }

    /// Executes one action without blocking.
    pub(crate) fn execute(&self, action: Action) {
        match action {
            Action::Announce {
                vip,
                version,
                entry,
            } => announce(&self.clients.fleet, vip, version, &entry),
            Action::Absent { vip } => self.clients.fleet.absent(vip),
            Action::Withdraw { vip, version } => {
                let gone = proto::Entry {
                    vip,
                    version,
                    gone: true,
                    settle: true,
                    ..proto::Entry::default()
                };
                self.clients.fleet.publish(gone);
            }
            Action::Route {
                vip,
                version,
                route,
            } => match route {
                Some(route) => self.clients.hub.publish(vip, route_of(version, route)),
                None => self.clients.hub.absent(vip),
            },
            Action::Listen { ports } => self.clients.hub.ports(ports),
            Action::Run { node, spec } => self.clients.fleet.run(&node, spec),
            Action::SyncPods { node, specs } => self.clients.fleet.sync_pods(&node, specs),
            Action::Settle { vip, version } => self.clients.fleet.settle(vip, version),
            Action::Read { vip, app } => self.read(vip, app),
            Action::ReadRevision { vip, revision } => self.read_revision(vip, revision),
            Action::Create { vip, pod } => self.create(vip, pod),
            Action::Publish {
                vip,
                app,
                status,
                entry,
            } => self.publish(vip, app, status, entry),
            Action::Delete { vip, pod } => self.delete(vip, pod),
            Action::PodStatus { pod, node, status } => {
                let host_network = dormouse_cluster::pod::has_host_network(&pod);
                let status = pod::without_refused(*status, |address| {
                    let fleet = &self.clients.fleet;
                    fleet.check_pod_address((&node, None), address, host_network)
                });
                self.pod_status(pod, status);
            }
            Action::NodeUp {
                node,
                status,
                boot_id,
            } => self.node_up(ConnectedNode {
                name: node,
                status: *status,
                boot_id,
            }),
            Action::NodeDown { node } => self.node_down(node),
            Action::RecordEvent {
                about,
                reason,
                message,
            } => self.record_event(*about, reason, message),
        }
    }

    /// Runs a slow call for a tenant in its own task and sends its event. The call's state is allocated when it is permitted:
    /// many may wait.
    fn spawn<Call>(&self, kind: Kind, tenant: String, call: impl FnOnce() -> Call + Send + 'static)
    where
        Call: Future<Output = Option<Input>> + Send,
    {
        let (outcomes, permits) = (Arc::clone(&self.outcomes), Arc::clone(&self.permits));
        tokio::spawn(async move {
            let Some(_permit) = permits.acquire(kind, &tenant).await else {
                return;
            };
            if let Some(outcome) = Box::pin(call()).await {
                outcomes.send(outcome).await;
            }
        });
    }

    fn read(&self, vip: u32, app: Key) {
        let client = self.clients.store.clone();
        self.spawn(Kind::Read, app.namespace.clone(), move || async move {
            let read = match client.get::<App>(&app).await {
                Ok(Some(found)) => AppRead::Found(Arc::new(found)),
                Ok(None) => AppRead::Absent,
                Err(error) => {
                    tracing::warn!(app = %app, error = %chain(&error), "cannot read an app");
                    AppRead::Failed
                }
            };
            Some(Event::AppRead { vip, read }.into())
        });
    }

    fn read_revision(&self, vip: u32, key: Key) {
        let client = self.clients.store.clone();
        self.spawn(Kind::Read, key.namespace.clone(), move || async move {
            let read = match client.get::<Revision>(&key).await {
                Ok(Some(found)) => RevisionRead::Found(Box::new(found)),
                Ok(None) => RevisionRead::Absent,
                Err(error) => {
                    tracing::warn!(revision = %key, error = %chain(&error), "cannot read a revision");
                    RevisionRead::Failed
                }
            };
            Some(Event::RevisionRead { vip, read }.into())
        });
    }

    fn create(&self, vip: u32, mut pod: Box<Pod>) {
        let (client, scheduler, outcomes) = (
            self.clients.store.clone(),
            self.clients.scheduler.clone(),
            Arc::clone(&self.outcomes),
        );
        let tenant = pod.key().namespace;
        self.spawn(Kind::Create, tenant, move || async move {
            pod.metadata.creation_timestamp = Some(Time(Timestamp::now()));
            let key = pod.key();
            let placed = place(scheduler, &pod).await;
            match &placed {
                Ok(Placement::Node(node, at)) => {
                    pod.spec.get_or_insert_default().node_name = Some(node.clone());
                    let event = Event::Placed {
                        vip,
                        pod: key.clone(),
                        node: Some(node.clone()),
                        at: *at,
                    };
                    outcomes.send(event.into()).await;
                }
                Ok(Placement::None(reason)) => {
                    set_unscheduled(&mut pod, UNSCHEDULABLE, reason, Timestamp::now());
                }
                Err(status) => {
                    let message = format!(
                        "the scheduler does not respond, the pod stays pending: {}",
                        status.message()
                    );
                    set_unscheduled(&mut pod, "SchedulerUnavailable", &message, Timestamp::now());
                    record_event(
                        &client,
                        &events::reference(pod.as_ref()),
                        "SchedulerUnavailable",
                        &message,
                    )
                    .await;
                }
            }
            let written = match create::create(&client, &pod).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(pod = %key, error = %chain(&error), "cannot create a pod");
                    false
                }
            };
            let created = Event::Created {
                vip,
                pod: key,
                written,
            };
            Some(created.into())
        });
    }

    fn publish(&self, vip: u32, app: Arc<App>, status: Status, entry: Option<Entry>) {
        let (client, fleet) = (self.clients.store.clone(), self.clients.fleet.clone());
        self.spawn(Kind::Publish, app.key().namespace, move || async move {
            let write = |object: &mut App| {
                object.status = Some(app_status(object, &status));
                // Written even if unchanged: the write's revision is the entry's version and must be new.
                true
            };
            let written = match write_known(&client, app.as_ref(), write).await {
                // The entry has the split that was in force when it was planned: it is planned again.
                Ok(written) if !has_same_split(&app, &written) => None,
                Ok(written) => Some(Arc::new(written)),
                Err(ClientError::NotFound { .. }) => None,
                Err(error) => {
                    tracing::warn!(app = %app.key(), error = %chain(&error), "cannot write an app's status");
                    None
                }
            };
            if let (Some(written), Some(entry)) = (&written, &entry) {
                announce(&fleet, vip, written.revision(), entry);
            }
            Some(Event::Published { vip, app: written }.into())
        });
    }

    fn delete(&self, vip: u32, pod: Key) {
        let client = self.clients.store.clone();
        self.spawn(Kind::Delete, pod.namespace.clone(), move || async move {
            let gone = match client.delete::<Pod>(&pod, &Guard::default()).await {
                Ok(_) | Err(ClientError::NotFound { .. }) => true,
                Err(error) => {
                    tracing::warn!(pod = %pod, error = %chain(&error), "cannot remove a pod");
                    false
                }
            };
            Some(Event::Deleted { vip, pod, gone }.into())
        });
    }

    fn pod_status(&self, pod: Arc<Pod>, reported: proto::PodStatus) {
        let client = self.clients.store.clone();
        let key = pod.key();
        self.spawn(Kind::PodStatus, key.namespace.clone(), move || async move {
            let write = |pod: &mut Pod| pod::write_status(pod, &reported, Timestamp::now());
            let written = write_known(&client, pod.as_ref(), write).await;
            if let Err(error) = written
                && !matches!(error, ClientError::NotFound { .. })
            {
                tracing::warn!(pod = %key, error = %chain(&error), "cannot write a pod's status");
            }
            Some(Input::StatusWritten { pod: key })
        });
    }

    fn node_up(&self, connected: ConnectedNode) {
        let client = self.clients.store.clone();
        self.spawn(Kind::Node, connected.name.clone(), move || async move {
            let key = Key::cluster_scoped(&connected.name);
            let now = Timestamp::now();
            let change = |node: &mut Node| nodes::up(node, &connected, now);
            let written = match client.modify(&key, change).await {
                Err(ClientError::NotFound { .. }) => {
                    let mut node = Node::default();
                    nodes::up(&mut node, &connected, now);
                    client.create(&node).await
                }
                other => other,
            };
            match written {
                Ok(_) => tracing::info!(node = connected.name, "node up"),
                Err(error) => {
                    tracing::warn!(node = connected.name, error = %chain(&error), "cannot write a node");
                }
            }
            Some(Input::NodeWritten {
                node: connected.name,
            })
        });
    }

    fn node_down(&self, name: String) {
        let client = self.clients.store.clone();
        self.spawn(Kind::Node, name.clone(), move || async move {
            let written = client
                .modify(&Key::cluster_scoped(&name), |node: &mut Node| {
                    nodes::down(node, Timestamp::now())
                })
                .await;
            match written {
                Ok(node) => {
                    record_event(
                        &client,
                        &events::reference(&node),
                        "NoFleet",
                        "the node has no fleet stream and its lease has expired: its pods are replaced",
                    )
                    .await;
                }
                Err(ClientError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(node = name, error = %chain(&error), "cannot write a node");
                }
            }
            Some(Input::NodeWritten { node: name })
        });
    }

    fn record_event(&self, about: ObjectReference, reason: Cow<'static, str>, message: String) {
        let client = self.clients.store.clone();
        self.spawn(
            Kind::Event,
            about.namespace.clone().unwrap_or_default(),
            move || async move {
                record_event(&client, &about, &reason, &message).await;
                None
            },
        );
    }
}

/// Publishes an entry to the nodes.
fn announce(fleet: &Fleet, vip: u32, version: u64, entry: &Entry) {
    let message = entry_message(vip, version, entry);
    if entry.idle {
        fleet.publish_idle(message);
    } else {
        fleet.publish(message);
    }
}

/// The scheduler's answer.
enum Placement {
    /// A node, and the time of the decision.
    Node(String, Boottime),
    /// No node fits: the reason.
    None(String),
}

async fn place(
    mut scheduler: SchedulerClient<Channel>,
    pod: &Pod,
) -> Result<Placement, tonic::Status> {
    let request = place_request(pod).map_err(|error| tonic::Status::internal(error.to_string()))?;
    let reply = tokio::time::timeout(PLACE_TIMEOUT, scheduler.place(request)).await;
    let reply = reply
        .map_err(|_elapsed| tonic::Status::deadline_exceeded("no response within 1 s"))??
        .into_inner();
    Ok(if reply.node.is_empty() {
        Placement::None(reply.reason)
    } else {
        Placement::Node(reply.node, Boottime(reply.placed_ns))
    })
}

async fn record_event(client: &Client, about: &ObjectReference, reason: &str, message: &str) {
    let (namespace, object) = (about.namespace.as_deref(), about.name.as_deref());
    tracing::info!(namespace, object, reason, message, "event");
    let occurrence = Occurrence {
        type_: EventType::Warning,
        reason,
        message,
    };
    if let Err(error) = events::record(client, about, &occurrence).await {
        tracing::warn!(reason, error = %chain(&error), "cannot record an event");
    }
}
