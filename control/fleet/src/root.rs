//! The root's half of the stream, pure: who follows what, what each node lacks, and who may still use what it was told.

mod outcome;
mod peer;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Boottime;
use crate::lease::Terms;
use crate::proto::{Entry, Hello, NodeConfig, PodSpec, Up};
pub use outcome::{Event, Heard, HelloError, Next, Opened, Session, Settling};
use peer::Peer;

/// VIPs one node may follow; a node that wants more keeps those packets on the activator's way.
pub const FOLLOWS_MAX: usize = 65_536;

/// The root of the fleet.
pub struct Root {
    terms: Terms,
    epoch: u64,
    config: NodeConfig,
    boot_id: String,
    started: Boottime,
    entries: BTreeMap<u32, Entry>,
    followers: BTreeMap<u32, BTreeSet<Arc<str>>>,
    peers: BTreeMap<Arc<str>, Peer>,
    sessions: BTreeMap<Session, Arc<str>>,
    /// Nodes without a stream, by the end of their lease.
    leaving: BTreeSet<(Boottime, Arc<str>)>,
    session_last: u64,
}

impl Root {
    /// A root that starts at `now` on the machine with this boot id.
    pub fn new(
        terms: Terms,
        epoch: u64,
        config: NodeConfig,
        boot_id: String,
        now: Boottime,
    ) -> Self {
        Self {
            terms,
            epoch,
            config,
            boot_id,
            started: now,
            entries: BTreeMap::new(),
            followers: BTreeMap::new(),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            leaving: BTreeSet::new(),
            session_last: 0,
        }
    }

    /// Opens a stream for a node. Everything that it follows will be sent to it, before any grant.
    pub fn hello(&mut self, hello: Hello) -> Result<Opened, HelloError> {
        if hello.node.is_empty() {
            return Err(HelloError::Nameless);
        }
        if hello.follows.len() > FOLLOWS_MAX {
            return Err(HelloError::FollowsTooMany {
                follows: hello.follows.len(),
                node: hello.node,
            });
        }
        let node: Arc<str> = hello.node.as_str().into();
        self.session_last += 1;
        let session = Session(self.session_last);
        let peer = self.peers.entry(Arc::clone(&node)).or_default();
        let replaced = peer.session();
        if let Some(older) = replaced {
            self.sessions.remove(&older);
        }
        if let Some(end) = peer.leaves_at() {
            self.leaving.remove(&(end, Arc::clone(&node)));
        }
        for vip in peer.follows() {
            unfollow(&mut self.followers, &mut self.entries, vip, &node);
        }
        for vip in &hello.follows {
            self.followers
                .entry(*vip)
                .or_default()
                .insert(Arc::clone(&node));
        }
        let foreign = hello.boot_id != self.boot_id;
        peer.open(session, &hello.follows, foreign);
        self.sessions.insert(session, node);
        let event = Event::NodeUp {
            node: hello.node,
            status: hello.status.unwrap_or_default(),
            boot_id: hello.boot_id,
        };
        Ok(Opened {
            session,
            replaced,
            event,
        })
    }

    /// Takes in one message of a stream; one of a stream that is over changes nothing.
    pub fn hear(&mut self, session: Session, up: Up, now: Boottime) -> Heard {
        let Some(node) = self.sessions.get(&session).map(Arc::clone) else {
            return Heard::default();
        };
        let Some(peer) = self.peers.get_mut(&node) else {
            return Heard::default();
        };
        let settles = peer.acknowledge(up.applied) | !up.drop.is_empty();
        for vip in up.drop {
            peer.unfollow(vip);
            unfollow(&mut self.followers, &mut self.entries, vip, &node);
        }
        let mut wakes = settles;
        for vip in up.want {
            if peer.want(vip) {
                self.followers
                    .entry(vip)
                    .or_default()
                    .insert(Arc::clone(&node));
                wakes = true;
            }
        }
        if let Some(beat) = up.beat {
            peer.beat(Boottime(beat.at_ns), now);
            wakes = true;
        }
        let mut events = Vec::new();
        for woke in up.woke {
            let at = peer.here(Boottime(woke.at_ns));
            events.push(Event::Woke {
                node: node.to_string(),
                vip: woke.vip,
                at,
            });
        }
        for status in up.pods {
            let status = peer.pod(status);
            events.push(Event::Pod {
                node: node.to_string(),
                status,
            });
        }
        if !up.counts.is_empty() {
            events.push(Event::Counts {
                node: node.to_string(),
                counts: up.counts,
            });
        }
        Heard {
            events,
            settles,
            wakes,
        }
    }

    /// What this stream shall send: changes first, removals foremost; a grant only when the node lacks nothing.
    pub fn next(&mut self, session: Session, now: Boottime) -> Next {
        let Some(peer) = self
            .sessions
            .get(&session)
            .and_then(|node| self.peers.get_mut(node))
        else {
            return Next::Over;
        };
        let terms = peer::Sending {
            terms: self.terms,
            epoch: self.epoch,
            config: &self.config,
            entries: &self.entries,
        };
        peer.next(&terms, now)
            .map_or(Next::Idle, |down| Next::Send(Box::new(down)))
    }

    /// A stream ended; its node counts as a user of its entries until its lease is over.
    pub fn end(&mut self, session: Session, now: Boottime) {
        let Some(node) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&node) {
            let end = peer.close(self.terms, now);
            self.leaving.insert((end, node));
        }
    }

    /// Makes `entry` the newest of its VIP; an older version than the known one is ignored. Returns whom to wake.
    pub fn publish(&mut self, entry: Entry) -> Vec<Session> {
        let vip = entry.vip;
        if self
            .entries
            .get(&vip)
            .is_some_and(|known| known.version > entry.version)
        {
            return Vec::new();
        }
        let settle = entry.settle;
        self.entries.insert(vip, entry);
        let mut wakes = Vec::new();
        for node in self.followers.get(&vip).into_iter().flatten() {
            if let Some(peer) = self.peers.get_mut(node) {
                wakes.extend(peer.lacks(vip, settle));
            }
        }
        wakes
    }

    /// There is no such VIP any more: its followers are told so, and keep following.
    pub fn forget(&mut self, vip: u32) -> Vec<Session> {
        let Some(entry) = self.entries.get(&vip) else {
            return Vec::new();
        };
        // Any real change has a later revision than this; the settle flag keeps acknowledgements honest.
        let version = entry.version + 1;
        let wakes = self.publish(Entry {
            vip,
            version,
            gone: true,
            settle: true,
            ..Entry::default()
        });
        if !self.followers.contains_key(&vip) {
            self.entries.remove(&vip);
        }
        wakes
    }

    /// A pod to run on, or to stop at, a node. A lost node is told all its pods when it comes back, so nothing is
    /// kept for it.
    pub fn run(&mut self, node: &str, pod: PodSpec) -> Option<Session> {
        self.peers.get_mut(node)?.run(pod)
    }

    /// All pods of a node; it stops those that are not among them.
    pub fn sync_pods(&mut self, node: &str, pods: Vec<PodSpec>) -> Option<Session> {
        self.peers.entry(node.into()).or_default().sync_pods(pods)
    }

    /// Whether no node uses, or will use, an older version of the VIP's entry than `version`.
    pub fn settling(&self, vip: u32, version: u64, now: Boottime) -> Settling {
        // Nodes may hold a lease from a root before this one.
        let first = self.terms.usable_until(self.started);
        if now < first {
            return Settling::Wait(Some(first));
        }
        if self
            .entries
            .get(&vip)
            .is_some_and(|entry| entry.version < version)
        {
            return Settling::Wait(None);
        }
        let mut latest = None;
        for node in self.followers.get(&vip).into_iter().flatten() {
            let usable = self.peers.get(node).and_then(|peer| {
                peer.uses_older(vip, version, self.terms)
                    .filter(|until| *until > now)
            });
            latest = latest.max(usable);
        }
        if latest.is_some() {
            Settling::Wait(latest)
        } else {
            Settling::Settled
        }
    }

    /// The first node, if any, whose stream and lease are both over.
    pub fn expire(&mut self, now: Boottime) -> Option<Event> {
        let (end, _) = self.leaving.first()?;
        if *end > now {
            return None;
        }
        let (_, node) = self.leaving.pop_first()?;
        let peer = self.peers.remove(&node)?;
        for vip in peer.follows() {
            unfollow(&mut self.followers, &mut self.entries, vip, &node);
        }
        Some(Event::NodeDown {
            node: node.to_string(),
        })
    }

    /// When [`Root::expire`] has something to say next.
    pub fn expires_at(&self) -> Option<Boottime> {
        self.leaving.first().map(|(end, _)| *end)
    }

    /// How many nodes have a stream.
    pub fn streams(&self) -> usize {
        self.sessions.len()
    }
}

/// A node no longer follows a VIP; an entry that says `gone` is kept for followers only.
fn unfollow(
    followers: &mut BTreeMap<u32, BTreeSet<Arc<str>>>,
    entries: &mut BTreeMap<u32, Entry>,
    vip: u32,
    node: &Arc<str>,
) {
    let Some(nodes) = followers.get_mut(&vip) else {
        return;
    };
    nodes.remove(node);
    if nodes.is_empty() {
        followers.remove(&vip);
        if entries.get(&vip).is_some_and(|entry| entry.gone) {
            entries.remove(&vip);
        }
    }
}
