//! The leader: it has the cluster, the members and the pods that are to be scheduled. It hands changes to the shards,
//! begins attempts, and permits one binding for each pod.

mod attempts;
mod cluster;
mod members;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_scheduler_decide::{Malformed, PodKey, Profile};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::change::{Change, Kind, Thing};
use crate::message::{Message, Rejection, Sent};
use crate::object::Object;
use crate::relay::Relay;
use crate::view::{Epoch, Member, View};
use cluster::Cluster;
use members::Lease;
pub use members::Renewal;
use streams::Stream;

/// Limits and times.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The relays below a relay, or below the leader.
    pub fan_out: usize,
    /// The attempts in flight. With one, each sees all decisions before it, as in a scheduler of one part; with more, a claim
    /// that meets a change is scored again.
    pub window: usize,
    /// An attempt without an end is begun again after it, with another number.
    pub attempt: Duration,
    /// What was not acknowledged is sent again after it.
    pub resend: Duration,
    /// Shards that have not answered after it are left out, if others have: decisions are inexact then. `None` to wait for
    /// all.
    pub straggler: Option<Duration>,
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a message.
    Send(Member, Message),
    /// Change the cluster.
    Effect(Effect),
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Bind a pod, unless it is bound or another leader has a later term. Repeated until [`Leader::bound`].
    Bind {
        /// The leader's term.
        term: u64,
        /// The pod.
        key: PodKey,
        /// Its uid.
        uid: String,
        /// The node.
        node: String,
    },
    /// No node can have the pod. It is nominated to the node of its victims, if it has any, which are to be evicted.
    Reject {
        /// The pod.
        key: PodKey,
        /// Why, and what helps.
        rejection: Rejection,
        /// Pods that lose their nomination to that node.
        cleared: Vec<PodKey>,
    },
    /// The attempt failed; the error.
    Fail(PodKey, String),
    /// The decision that follows was made without so many shards, which had not answered in time.
    Inexact(PodKey, usize),
}

/// What has been decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Attempts that ended.
    pub decided: u64,
    /// Those of them without the answers of all shards.
    pub inexact: u64,
    /// Attempts that were begun again.
    pub repeated: u64,
    /// Views.
    pub views: u64,
}

/// The leader.
pub struct Leader {
    me: Member,
    limits: Limits,
    relay: Relay,
    cluster: Cluster,
    leases: BTreeMap<String, Lease>,
    view: View,
    /// The members that have adopted the view.
    adopted: BTreeSet<Member>,
    view_sent_at: Duration,
    streams: BTreeMap<Member, Stream>,
    /// Pods that are to be scheduled, in their order.
    waiting: VecDeque<(PodKey, Object<Pod>)>,
    flights: BTreeMap<u64, Flight>,
    bindings: BTreeMap<PodKey, Binding>,
    /// The number of the last attempt.
    serial: u64,
    seen: Seen,
    outputs: Vec<Output>,
}

/// An attempt in flight.
struct Flight {
    key: PodKey,
    pod: Object<Pod>,
    began: Duration,
}

/// A binding that the API has not confirmed.
struct Binding {
    uid: String,
    node: String,
    sent_at: Duration,
}

impl Leader {
    /// A leader by a Lease of this term, which no other leader has. It knows nothing yet: the caller adds what the API has.
    pub fn new(me: Member, profile: &Profile, limits: Limits, term: u64) -> Self {
        let view = View {
            epoch: Epoch { term, view: 0 },
            leader: me.clone(),
            relays: Vec::new(),
            shards: Vec::new(),
            fan_out: limits.fan_out,
        };
        let mut relay = Relay::new(me.clone(), profile.clone(), limits.straggler);
        relay.adopt(view.clone());
        Self {
            adopted: BTreeSet::from([me.clone()]),
            me,
            limits,
            relay,
            cluster: Cluster::default(),
            leases: BTreeMap::new(),
            view,
            view_sent_at: Duration::ZERO,
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
            flights: BTreeMap::new(),
            bindings: BTreeMap::new(),
            serial: 0,
            seen: Seen::default(),
            outputs: Vec::new(),
        }
    }

    /// The term of the Lease by which it leads; to be set before any member is known. Until then it follows the cluster as a
    /// standby does.
    pub fn lead(&mut self, term: u64) {
        self.view.epoch.term = term;
    }

    /// The members.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What has been decided.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// What the caller is to do now. Called after all else.
    pub fn outputs(&mut self, now: Duration) -> Vec<Output> {
        self.flush_images();
        self.flush_streams(now);
        self.begin_attempts(now);
        std::mem::take(&mut self.outputs)
    }

    /// Adds a node, or replaces it.
    pub fn set_node(&mut self, node: Object<Node>) -> Result<(), Malformed> {
        let Some((name, is_new)) = self.cluster.set_node(node.clone())? else {
            return Ok(());
        };
        let changes = if is_new {
            self.cluster.with_pods(&name)
        } else {
            vec![Change::Node(node)]
        };
        for change in changes {
            self.push(&name, change);
        }
        Ok(())
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
        for change in self.cluster.without_pods(name) {
            self.push(name, change);
        }
    }

    /// Adds a pod that is bound or nominated, or replaces it. One that is neither is on no node, unless its binding is still
    /// to be confirmed.
    pub fn set_pod(&mut self, pod: Object<Pod>) -> Result<(), Malformed> {
        let parsed = dormouse_scheduler_decide::Pod::parse(&pod)?;
        let key = parsed.key().clone();
        if parsed.node_name().is_empty() && self.bindings.contains_key(&key) {
            return Ok(());
        }
        if self
            .cluster
            .pod(&key)
            .is_none_or(|(_, known)| *known != pod)
        {
            self.place(&key, pod);
        }
        Ok(())
    }

    /// Removes a pod, also one that is to be scheduled.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.displace(key);
        self.bindings.remove(key);
        self.waiting.retain(|(waiting, _)| waiting != key);
        let of_pod = |(serial, flight): (&u64, &Flight)| (flight.key == *key).then_some(*serial);
        if let Some(serial) = self.flights.iter().find_map(of_pod) {
            self.drop_flight(serial);
        }
    }

    /// Adds an object that plugins look up, or replaces it.
    pub fn set_thing(&mut self, thing: Thing) -> Result<(), Malformed> {
        self.cluster.set_thing(thing.clone())?;
        self.push_to_all(&Change::Thing(thing));
        Ok(())
    }

    /// Removes such an object.
    pub fn remove_thing(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.cluster.remove_thing(kind, namespace, name);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.push_to_all(&Change::ThingGone(kind, namespace, name));
    }

    /// A message from another member.
    pub fn receive(&mut self, from: &Member, message: Message, now: Duration) {
        match message {
            Message::Adopted(epoch) if epoch == self.view.epoch => {
                self.adopted.insert(from.clone());
            }
            Message::Applied { stream, len } => {
                if let Some(of) = self.streams.get_mut(from) {
                    of.applied(stream, len);
                }
            }
            Message::Decided {
                id,
                decision,
                missing,
            } => self.decided(id, decision, missing, now),
            other => {
                let sent = self.relay.receive(from, other, now);
                self.send(sent, now);
            }
        }
    }

    /// Sends what is too old again, and begins attempts that are too old again.
    pub fn tick(&mut self, now: Duration) {
        self.expire(now);
        self.resend(now);
        self.repeat_attempts(now);
        self.repeat_bindings(now);
        let sent = self.relay.tick(now);
        self.send(sent, now);
    }

    /// Sends messages; those to this member are received at once.
    fn send(&mut self, sent: Sent, now: Duration) {
        let me = self.me.clone();
        for (to, message) in sent {
            if to == me {
                self.receive(&me, message, now);
            } else {
                self.outputs.push(Output::Send(to, message));
            }
        }
    }
}
