//! A Kubernetes API server: Services, EndpointSlices and the own Node, each followed by one connection.
//!
//! Nothing is passed on as complete before each of the three was listed. While no server can be reached, nothing changes.
//!
//! Reading order: the servers and credentials ([`Access`]), one followed kind (`follow`), the state for metrics
//! ([`KubernetesState`]), and their join here. What is asked and how responses are understood is in `agent/follow`.

mod access;
mod follow;
mod state;
mod write;

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use dormouse_agent_follow::{Follower, Scope};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::object::{Change, Kind, Object};

pub use access::{Access, AccessError, Flags, SERVICE_ACCOUNT};
pub use state::KubernetesState;
pub use write::{Method, Write, WriteError, Writer};

use access::Servers;
use follow::{Followed, Message};

/// Messages of the followers that wait for the data path; each has the changes of one received part. Reading stops while
/// they are not taken: a server that closes the connection then is asked for the rest.
const QUEUE: usize = 64;
/// Changes that are passed on together, unless one message has more.
const BATCH: usize = 4_096;

/// The objects at a Kubernetes API server.
pub struct Kubernetes {
    access: Access,
    state: Arc<KubernetesState>,
    sender: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    unlisted: Vec<Kind>,
    followers: JoinSet<()>,
    own: watch::Sender<Option<Arc<Node>>>,
    /// The own Node, which was received before Services were followed.
    early: Option<Change>,
}

/// Changes that are passed on together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The changes, in their order for each object.
    pub changes: Vec<Change>,
    /// The first lists are not complete: more objects follow.
    pub more: bool,
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("unlisted", &self.unlisted)
            .finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// Starts to follow the Node with this name; needs the async runtime. Never fails: what cannot be reached is tried again.
    pub fn open(access: Access, node: &str, state: Arc<KubernetesState>) -> Self {
        let (sender, messages) = mpsc::channel(QUEUE);
        let mut kubernetes = Self {
            access,
            state,
            sender,
            messages,
            unlisted: Kind::ALL.to_vec(),
            followers: JoinSet::new(),
            own: watch::channel(None).0,
            early: None,
        };
        kubernetes.follow::<Node>(Scope::named::<Node>(node));
        kubernetes
    }

    /// Starts to follow Services and EndpointSlices, too. The Node that was received before is passed on again.
    pub fn follow_services(&mut self) {
        self.follow::<Service>(Scope::proxied::<Service>());
        self.follow::<EndpointSlice>(Scope::proxied::<EndpointSlice>());
        let own = self.own.borrow();
        self.early = own
            .as_ref()
            .map(|own| Change::Applied(Object::Node(Box::new((**own).clone()))));
    }

    /// The own Node, as it is now.
    pub fn own_node(&self) -> watch::Receiver<Option<Arc<Node>>> {
        self.own.subscribe()
    }

    /// Whether it is known if there is a Node of the name.
    pub fn knows_node(&self) -> bool {
        !self.unlisted.contains(&Kind::Node)
    }

    /// The credentials, and where the state of the connections is recorded.
    pub fn access(&self) -> &Access {
        &self.access
    }

    fn follow<T: Followed>(&mut self, scope: Scope) {
        let servers = Servers::new(self.access.clone());
        let (state, sender) = (Arc::clone(&self.state), self.sender.clone());
        let following = follow::run::<T>(Follower::new(scope), servers, state, sender);
        self.followers.spawn(following);
    }

    /// The next changes. Cancel safe.
    pub async fn next(&mut self) -> Batch {
        let mut batch = Batch::default();
        if let Some(early) = self.early.take() {
            batch.changes.push(early);
            batch.more = true;
            return batch;
        }
        match self.messages.recv().await {
            Some(message) => self.take(message, &mut batch),
            None => pending().await,
        }
        while batch.changes.len() < BATCH
            && let Ok(message) = self.messages.try_recv()
        {
            self.take(message, &mut batch);
        }
        batch.more = !self.unlisted.is_empty();
        batch
    }

    fn take(&mut self, message: Message, batch: &mut Batch) {
        for change in &message.changes {
            self.note(change);
        }
        batch.changes.extend(message.changes);
        if let Some(kind) = message.listed {
            self.unlisted.retain(|unlisted| *unlisted != kind);
        }
    }

    /// Publishes the own Node without its images, which are most of it.
    fn note(&self, change: &Change) {
        match change {
            Change::Applied(Object::Node(node)) => {
                let mut node = (**node).clone();
                if let Some(status) = &mut node.status {
                    status.images = None;
                }
                self.own.send_replace(Some(Arc::new(node)));
            }
            Change::Deleted(Object::Node(_)) => drop(self.own.send_replace(None)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
