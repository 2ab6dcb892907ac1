//! The root's half of the stream, pure: the entries, the nodes that follow each, the changes to send to each node, and
//! the nodes that may still use an older version.

mod outcome;
mod peer;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::lease::Terms;
use crate::proto::{Entry, Hello, PodSpec, Up};
pub use outcome::{Event, HelloError, Next, Opened, Received, Session, Settling};
use peer::Peer;

/// Limit of the VIPs that one node follows. Packets to further ones are forwarded to the activator.
pub const FOLLOWS_MAX: usize = 65_536;

/// The root of the fleet.
pub struct Root {
    config: ServerConfig,
    terms: Terms,
    started: Boottime,
    /// The newest entry of each VIP.
    entries: BTreeMap<u32, Entry>,
    /// The nodes that follow each VIP.
    followers: BTreeMap<u32, BTreeSet<Arc<str>>>,
    peers: BTreeMap<Arc<str>, Peer>,
    sessions: BTreeMap<Session, Arc<str>>,
    /// Nodes without a stream, by the end of their lease.
    disconnected: BTreeSet<(Boottime, Arc<str>)>,
    session_last: u64,
}

impl Root {
    /// A root that starts at `now`.
    pub fn new(config: ServerConfig, now: Boottime) -> Self {
        let terms = Terms {
            lease: config.lease,
        };
        Self {
            config,
            terms,
            started: now,
            entries: BTreeMap::new(),
            followers: BTreeMap::new(),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            disconnected: BTreeSet::new(),
            session_last: 0,
        }
    }

    /// Opens a stream for a node. All entries that it follows are sent before the first grant.
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
        if let Some(end) = peer.down_at() {
            self.disconnected.remove(&(end, Arc::clone(&node)));
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
        let remote = hello.boot_id != self.config.boot_id;
        peer.open(session, &hello.follows, remote);
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

    /// Receives one message of a stream; messages of a closed stream are ignored.
    pub fn receive(&mut self, session: Session, up: Up, now: Boottime) -> Received {
        let Some(node) = self.sessions.get(&session).map(Arc::clone) else {
            return Received::default();
        };
        let Some(peer) = self.peers.get_mut(&node) else {
            return Received::default();
        };
        let acknowledged = peer.acknowledge(up.applied);
        let mut wakes = acknowledged.is_some() || !up.drop.is_empty();
        let mut settles = acknowledged.unwrap_or_default();
        settles.extend(&up.drop);
        for vip in up.drop {
            peer.unfollow(vip);
            unfollow(&mut self.followers, &mut self.entries, vip, &node);
        }
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
            let at = peer.root_time(Boottime(woke.at_ns));
            events.push(Event::Woke {
                node: node.to_string(),
                vip: woke.vip,
                at,
            });
        }
        for status in up.pods {
            let status = peer.pod_status(status);
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
        Received {
            events,
            settles,
            wakes,
        }
    }

    /// The next message of a stream: entries with `settle` first, then other changes. A grant is added only if no change
    /// remains.
    pub fn next(&mut self, session: Session, now: Boottime) -> Next {
        let Some(peer) = self
            .sessions
            .get(&session)
            .and_then(|node| self.peers.get_mut(node))
        else {
            return Next::Closed;
        };
        let root = peer::RootState {
            terms: self.terms,
            epoch: self.config.epoch,
            config: &self.config.node_config,
            entries: &self.entries,
        };
        peer.next(&root, now)
            .map_or(Next::Idle, |down| Next::Send(Box::new(down)))
    }

    /// A stream ended. Its node is assumed to use its entries until its lease has expired.
    pub fn end(&mut self, session: Session, now: Boottime) {
        let Some(node) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&node) {
            let end = peer.close(self.terms, now);
            self.disconnected.insert((end, node));
        }
    }

    /// Stores `entry` as its VIP's newest; an older version than the stored one is ignored. Returns the streams to wake.
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
                wakes.extend(peer.changed(vip, settle));
            }
        }
        wakes
    }

    /// Runs or stops a pod on a node. Ignored for a lost node: the complete list is sent when it reconnects.
    pub fn run(&mut self, node: &str, pod: PodSpec) -> Option<Session> {
        self.peers.get_mut(node)?.run(pod)
    }

    /// Sends a node the complete list of its pods; it stops all others.
    pub fn sync_pods(&mut self, node: &str, pods: Vec<PodSpec>) -> Option<Session> {
        self.peers.entry(node.into()).or_default().sync_pods(pods)
    }

    /// Whether no node uses, or can use later, an older version of the VIP's entry than `version`.
    pub fn settling(&self, vip: u32, version: u64, now: Boottime) -> Settling {
        // Nodes may have a lease from the previous root.
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

    /// Removes the first node without a stream whose lease has expired, if there is one.
    pub fn expire(&mut self, now: Boottime) -> Option<Event> {
        let (end, _) = self.disconnected.first()?;
        if *end > now {
            return None;
        }
        let (_, node) = self.disconnected.pop_first()?;
        let peer = self.peers.remove(&node)?;
        for vip in peer.follows() {
            unfollow(&mut self.followers, &mut self.entries, vip, &node);
        }
        Some(Event::NodeDown {
            node: node.to_string(),
        })
    }

    /// The time at which [`Root::expire`] removes the next node.
    pub fn expires_at(&self) -> Option<Boottime> {
        self.disconnected.first().map(|(end, _)| *end)
    }

    /// The number of nodes with an open stream.
    pub fn streams(&self) -> usize {
        self.sessions.len()
    }
}

/// Removes a follower of a VIP. An entry marked `gone` is deleted with its last follower.
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
