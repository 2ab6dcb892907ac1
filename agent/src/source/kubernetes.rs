//! A Kubernetes API server: Services, EndpointSlices and the own Node, each followed by one connection.
//!
//! Nothing is passed on as complete before each of the three was listed. While no server can be reached, nothing changes.
//!
//! Reading order: the servers and credentials ([`Access`]), one followed kind (`follow`), the state for metrics
//! ([`KubernetesState`]), and their join here. What is asked and how responses are understood is in `agent/follow`.

mod access;
mod follow;
mod state;

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use dormouse_agent_follow::{Follower, Scope};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::object::{Change, Kind};

pub use access::{Access, AccessError, Flags, SERVICE_ACCOUNT};
pub use state::KubernetesState;

use access::Servers;
use follow::{Followed, Message};

/// Messages of the followers that wait for the data path; each has the changes of one received part. Reading stops while
/// they are not taken: a server that closes the connection then is asked for the rest.
const QUEUE: usize = 64;
/// Changes that are passed on together, unless one message has more.
const BATCH: usize = 4_096;

/// The objects at a Kubernetes API server.
pub struct Kubernetes {
    messages: mpsc::Receiver<Message>,
    unlisted: Vec<Kind>,
    _followers: JoinSet<()>,
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
    /// Starts to follow the objects that concern the node with this name; needs the async runtime. Never fails: what cannot
    /// be reached is tried again.
    pub fn open(access: &Access, node: &str, state: &Arc<KubernetesState>) -> Self {
        let (sender, messages) = mpsc::channel(QUEUE);
        let mut followers = JoinSet::new();
        let mut start = Start {
            access,
            state,
            sender,
            followers: &mut followers,
        };
        start.follow::<Node>(Scope::named::<Node>(node));
        start.follow::<Service>(Scope::proxied::<Service>());
        start.follow::<EndpointSlice>(Scope::proxied::<EndpointSlice>());
        Self {
            messages,
            unlisted: Kind::ALL.to_vec(),
            _followers: followers,
        }
    }

    /// The next changes. Cancel safe.
    pub async fn next(&mut self) -> Batch {
        let mut batch = Batch::default();
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
        batch.changes.extend(message.changes);
        if let Some(kind) = message.listed {
            self.unlisted.retain(|unlisted| *unlisted != kind);
        }
    }
}

#[cfg(test)]
mod tests;

/// What the followers have in common.
struct Start<'a> {
    access: &'a Access,
    state: &'a Arc<KubernetesState>,
    sender: mpsc::Sender<Message>,
    followers: &'a mut JoinSet<()>,
}

impl Start<'_> {
    fn follow<T: Followed>(&mut self, scope: Scope) {
        let servers = Servers::new(self.access.clone());
        let state = Arc::clone(self.state);
        let following = follow::run::<T>(Follower::new(scope), servers, state, self.sender.clone());
        self.followers.spawn(following);
    }
}
