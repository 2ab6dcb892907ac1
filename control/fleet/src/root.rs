//! The root's half of the stream, pure: the entries, the nodes that follow each, the changes to send to each node, and
//! the nodes that may still use an older version.
//!
//! Entries of sleeping apps exist only while a node follows them. The root asks control for an entry that a node follows
//! and that it does not have ([`Event::Wanted`]): [`Root::publish`] or [`Root::absent`] answers.

mod outcome;
mod peer;
mod pods;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::lease::Terms;
use crate::proto::{Entry, Hello, PodSpec, Up, entry};
pub use outcome::{Event, HelloError, Next, Opened, Received, Session, Settling};
use peer::Peer;

/// Limit of the VIPs that one node follows. Packets to further ones are forwarded to the activator.
pub const FOLLOWS_MAX: usize = 65_536;
/// Limit of the VIPs in one [`Event::Wanted`].
pub const WANTED_MAX: usize = 1_024;
/// The version of the answer that no such VIP exists. Published entries have the store's revisions, which begin at 1.
const ABSENT: u64 = 0;

/// The root of the fleet.
pub struct Root {
    config: ServerConfig,
    terms: Terms,
    started: Boottime,
    /// The store had this root's epoch then, or later.
    confirmed_at: Option<Boottime>,
    /// The newest entry of each VIP that a node follows or that has ready pods.
    entries: BTreeMap<u32, Entry>,
    /// The nodes that follow each VIP.
    followers: BTreeMap<u32, BTreeSet<Arc<str>>>,
    /// Followed VIPs without an entry: control has not answered yet.
    unanswered: BTreeSet<u32>,
    /// Those of `unanswered` that control was not asked for yet.
    unasked: BTreeSet<u32>,
    peers: HashMap<Arc<str>, Peer>,
    sessions: BTreeMap<Session, Arc<str>>,
    /// Nodes without a stream, by the end of their lease.
    disconnected: BTreeSet<(Boottime, Arc<str>)>,
    session_last: u64,
}

impl Root {
    /// A root that starts at `now`, when its epoch has been taken. It sends nothing before [`Root::confirmed`].
    pub fn new(config: ServerConfig, now: Boottime) -> Self {
        let terms = Terms {
            lease: config.lease,
        };
        Self {
            config,
            terms,
            started: now,
            confirmed_at: None,
            entries: BTreeMap::new(),
            followers: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            unasked: BTreeSet::new(),
            peers: HashMap::new(),
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
        let before = peer.follows();
        let remote = hello.boot_id != self.config.boot_id;
        peer.open(session, &hello.follows, remote);
        let follows: BTreeSet<u32> = hello.follows.iter().copied().collect();
        for vip in before.into_iter().filter(|vip| !follows.contains(vip)) {
            self.unfollow(vip, &node);
        }
        for vip in hello.follows {
            self.follow(vip, &node);
        }
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
        let mut wakes = acknowledged.any || !up.drop.is_empty() || !up.want.is_empty();
        let mut settles = acknowledged.vips;
        settles.extend(&up.drop);
        for vip in &up.drop {
            peer.unfollow(*vip);
        }
        let wanted: Vec<u32> = up.want.into_iter().filter(|vip| peer.want(*vip)).collect();
        let ended = acknowledged.gone.into_iter().chain(up.drop);
        for vip in ended {
            self.unfollow(vip, &node);
        }
        for vip in wanted {
            self.follow(vip, &node);
        }
        let Some(peer) = self.peers.get_mut(&node) else {
            return Received::default();
        };
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
                port: woke.port,
                protocol: woke.protocol,
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

    /// The store had this root's epoch at `at`, or later. Returns the streams to wake, after a time in which none was sent anything.
    pub fn confirmed(&mut self, at: Boottime, now: Boottime) -> Vec<Session> {
        let was_confirmed = self.is_confirmed(now);
        self.confirmed_at = self.confirmed_at.max(Some(at));
        if was_confirmed || !self.is_confirmed(now) {
            return Vec::new();
        }
        self.sessions.keys().copied().collect()
    }

    /// Whether another root can have taken over only just. Later, that one may have removed pods of the entries known here, and
    /// started others.
    pub fn is_confirmed(&self, now: Boottime) -> bool {
        self.confirmed_at
            .is_some_and(|at| now < at + self.terms.confirmed())
    }

    /// The next message of a stream: entries with `settle` first, then other changes. A grant is added only if no change
    /// remains. There is none while the epoch is not confirmed. What is not urgent is sent with other changes, or a second later:
    /// the entry of an idle app, one by which it only falls asleep, and the end of a pod.
    pub fn next(&mut self, session: Session, now: Boottime) -> Next {
        let is_confirmed = self.is_confirmed(now);
        let Some(peer) = self
            .sessions
            .get(&session)
            .and_then(|node| self.peers.get_mut(node))
        else {
            return Next::Closed;
        };
        if !is_confirmed {
            return Next::Idle;
        }
        let root = peer::RootState {
            terms: self.terms,
            epoch: self.config.epoch,
            config: &self.config.node_config,
            entries: &self.entries,
        };
        match peer.next(&root, now) {
            Some(down) => Next::Send(Box::new(down)),
            None => peer.lingers_until().map_or(Next::Idle, Next::Later),
        }
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

    /// Publishes `entry` as its VIP's newest; ignored if it is not newer than the one known. Returns the streams to wake.
    pub fn publish(&mut self, entry: Entry) -> Vec<Session> {
        let known = self.entries.get(&entry.vip);
        let lingers = known.is_some_and(|known| only_sleeps(known, &entry));
        self.put(entry, lingers)
    }

    /// As [`Root::publish`], for an app without load whose former entry has no pod that is lost: nodes may use that a second longer.
    pub fn publish_idle(&mut self, entry: Entry) -> Vec<Session> {
        let known = self.entries.get(&entry.vip);
        let lingers = known.is_some_and(|known| only_leaves_pods(known, &entry));
        self.put(entry, lingers)
    }

    fn put(&mut self, entry: Entry, lingers: bool) -> Vec<Session> {
        let vip = entry.vip;
        self.answered(vip);
        if self
            .entries
            .get(&vip)
            .is_some_and(|known| known.version >= entry.version)
        {
            return Vec::new();
        }
        let mut wakes = Vec::new();
        for node in self.followers.get(&vip).into_iter().flatten() {
            if let Some(peer) = self.peers.get_mut(node) {
                wakes.extend(peer.changed(&entry, lingers));
            }
        }
        let known = if self.followers.contains_key(&vip) || is_awake(&entry) {
            self.entries.insert(vip, entry)
        } else {
            self.entries.remove(&vip)
        };
        self.follow_new_targets(vip, known.as_ref());
        wakes
    }

    /// Answers that no such VIP exists; ignored if an entry was published meanwhile. Returns the streams to wake.
    pub fn absent(&mut self, vip: u32) -> Vec<Session> {
        self.answered(vip);
        if self.entries.contains_key(&vip) {
            return Vec::new();
        }
        self.publish(Entry {
            vip,
            gone: true,
            version: ABSENT,
            ..Entry::default()
        })
    }

    /// Up to `limit` VIPs to ask control for, each once: it answers with [`Root::publish`] or [`Root::absent`].
    pub fn wanted(&mut self, limit: usize) -> Vec<u32> {
        let later = self.unasked.iter().nth(limit).copied();
        let later = later.map_or_else(BTreeSet::new, |vip| self.unasked.split_off(&vip));
        std::mem::replace(&mut self.unasked, later)
            .into_iter()
            .collect()
    }

    /// Whether [`Root::wanted`] has VIPs to return.
    pub fn asks(&self) -> bool {
        !self.unasked.is_empty()
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
        let first = self.terms.inherited_until(self.started);
        if now < first {
            return Settling::Wait(Some(first));
        }
        let older = |entry: &Entry| entry.version < version && entry.version != ABSENT;
        if self.entries.get(&vip).is_some_and(older) {
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
            self.unfollow(vip, &node);
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

    /// Adds a follower of a VIP. Its entry is sent, and asked for first if there is none.
    fn follow_one(&mut self, vip: u32, node: &Arc<str>) {
        self.followers
            .entry(vip)
            .or_default()
            .insert(Arc::clone(node));
        if let Some(entry) = self.entries.get(&vip) {
            if let Some(peer) = self.peers.get_mut(node) {
                peer.changed(entry, false);
            }
        } else if self.unanswered.insert(vip) {
            self.unasked.insert(vip);
        }
    }

    /// Removes a follower of a VIP. The entry of a sleeping app, or of none, is deleted with its last follower.
    fn unfollow(&mut self, vip: u32, node: &Arc<str>) {
        let Some(nodes) = self.followers.get_mut(&vip) else {
            return;
        };
        nodes.remove(node);
        if !nodes.is_empty() {
            return;
        }
        self.followers.remove(&vip);
        if self.entries.get(&vip).is_some_and(|entry| !is_awake(entry)) {
            self.entries.remove(&vip);
        }
        if self.unasked.remove(&vip) {
            self.unanswered.remove(&vip);
        }
    }

    fn answered(&mut self, vip: u32) {
        self.unanswered.remove(&vip);
        self.unasked.remove(&vip);
    }
}

/// Whether an entry only adds that the app sleeps. Its connections go to an activator already, which wakes it too.
fn only_sleeps(before: &Entry, after: &Entry) -> bool {
    let same = Entry {
        version: before.version,
        asleep: before.asleep,
        settle: before.settle,
        ..after.clone()
    };
    after.asleep && !after.settle && *before == same
}

/// Whether an entry differs at most in that connections go to an activator instead of pods.
fn only_leaves_pods(before: &Entry, after: &Entry) -> bool {
    let same = Entry {
        version: before.version,
        mode: before.mode,
        backends: before.backends.clone(),
        asleep: before.asleep,
        settle: before.settle,
        ..after.clone()
    };
    after.mode() == entry::Mode::Proxy && *before == same
}

/// Whether the entry is of an app with ready pods.
fn is_awake(entry: &Entry) -> bool {
    !entry.asleep && !entry.gone
}
