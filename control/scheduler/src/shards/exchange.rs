//! The leader's connections: its election, the Leases of its members, and the streams to and from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_cluster::client::chain;
use dormouse_scheduler_decide::Profile;
use dormouse_scheduler_shard::{Epoch, Limits, Member};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::lead::Lead;
use super::leases::Leases;
use super::peers::Peers;
use super::registration::{self, Registered};
use super::{INBOX_MAX, Incoming, Reach, TICK, profile_hash};
use crate::leader::Candidate;
use crate::metrics::members::Metrics;

/// Interval in which the leader reads the Leases of members.
const READ_LEASES_EVERY: Duration = Duration::from_millis(500);
/// An attempt without an end is begun again after it: its messages may have been lost.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Changes and views that were not acknowledged are sent again after it.
const RESEND_AFTER: Duration = Duration::from_secs(1);

/// A scheduler whose nodes are spread over shards.
#[derive(Clone)]
pub struct Sharding {
    /// Where members register, and the leader is elected.
    pub leases: Leases,
    /// The name of the scheduler's own Lease, by which its members know each other.
    pub scheduler: String,
    /// The URL at which members reach the leader; that of its listener if missing.
    pub address: Option<String>,
    /// How the leader reaches members.
    pub reach: Reach,
    /// Time without a renewal after which another leader may take the Lease.
    pub lease_duration: Duration,
    /// The relays below a relay, or below the leader.
    pub fan_out: usize,
    /// The attempts in flight.
    pub window: usize,
    /// Time after which shards that have not answered are left out; `None` to wait for all.
    pub straggler_timeout: Option<Duration>,
}

impl Sharding {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            fan_out: self.fan_out,
            window: self.window,
            attempt: ATTEMPT_TIMEOUT,
            resend: RESEND_AFTER,
            straggler: self.straggler_timeout,
        }
    }
}

/// The leader's connections.
pub(crate) struct Exchange {
    inbox: mpsc::Receiver<Incoming>,
    peers: Peers,
    metrics: Metrics,
    /// The epoch of the members to which streams may be open.
    epoch: Epoch,
}

impl Exchange {
    /// The leader, its connections, and the service that its members reach. It takes part in the election, and cancels `lost`
    /// when it has led and leads no more.
    pub(crate) fn start(
        sharding: Sharding,
        profile: &Profile,
        address: String,
        metrics: Metrics,
        lost: CancellationToken,
        shutdown: &CancellationToken,
    ) -> (Lead, Self, Endpoint) {
        let me = Member {
            name: sharding.scheduler.clone(),
            incarnation: u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0),
            address,
        };
        let hash = profile_hash(profile);
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        let endpoint = Endpoint::new(hash, sender.clone(), metrics.clone());
        endpoint.open(me.clone());
        let lead = Lead::new(me.clone(), profile, sharding.limits());
        let exchange = Self {
            inbox,
            peers: Peers::new(
                me.clone(),
                hash,
                Arc::clone(&sharding.reach),
                metrics.clone(),
            ),
            metrics,
            epoch: Epoch::default(),
        };
        let part = take_part(sharding, me, sender, lost);
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(part));
        (lead, exchange, endpoint)
    }

    /// The next of what the leader is to handle; never without shards.
    pub(crate) async fn next(exchange: &mut Option<Self>) -> Option<Incoming> {
        match exchange {
            Some(exchange) => exchange.inbox.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Handles it. Returns whether this scheduler leads from now on.
    pub(crate) fn receive(&self, now: Timestamp, lead: &mut Lead, incoming: Incoming) -> bool {
        match incoming {
            Incoming::Message(from, message) => {
                let began = Instant::now();
                lead.receive(now, &from, *message);
                self.metrics.handled(began.elapsed());
            }
            Incoming::Members(renewed, gone) => lead.set_members(now, renewed, &gone),
            Incoming::Tick => lead.tick(now),
            Incoming::Lead(term) => {
                lead.lead(term);
                tracing::info!(term, "pods wait until a shard has registered");
                return true;
            }
        }
        false
    }

    /// Sends what the leader has to send.
    pub(crate) fn send(&mut self, now: Timestamp, lead: &mut Lead) {
        self.peers.send(lead.outputs(now));
        let view = lead.view();
        if view.epoch != self.epoch {
            self.epoch = view.epoch;
            let names = |members: &[Member]| {
                let names: Vec<&str> = members.iter().map(|one| one.name.as_str()).collect();
                names.join(", ")
            };
            let Epoch { term, view: number } = view.epoch;
            let (shards, relays) = (names(&view.shards), names(&view.relays));
            tracing::info!(term, number, shards, relays, "the members changed");
            if view.shards.is_empty() {
                tracing::warn!("no shard is left: pods wait until one has registered");
            }
            self.peers
                .retain(|peer| view.members().any(|member| member == peer));
        }
        self.metrics.follow(lead.seen(), lead.view());
    }
}

/// Leads once the Lease is this one's, until it is not.
async fn take_part(
    sharding: Sharding,
    me: Member,
    sender: mpsc::Sender<Incoming>,
    lost: CancellationToken,
) {
    let identity = format!("{}_{}", me.address, me.incarnation);
    let Sharding {
        leases,
        scheduler,
        lease_duration,
        ..
    } = sharding;
    let mut candidate = Candidate::new(leases.clone(), &scheduler, &identity, lease_duration);
    let renewed = candidate.acquire().await;
    // It fails only at shutdown.
    drop(sender.send(Incoming::Lead(candidate.term())).await);
    let members = read_members(leases, &scheduler, sender.clone());
    tokio::select! {
        () = candidate.hold(renewed) => {}
        () = members => {}
        () = tick(sender) => {}
    }
    lost.cancel();
}

/// Reads the Leases of members, and passes on what has changed.
async fn read_members(leases: Leases, scheduler: &str, sender: mpsc::Sender<Incoming>) {
    let mut known: BTreeMap<String, Registered> = BTreeMap::new();
    let mut interval = tokio::time::interval(READ_LEASES_EVERY);
    loop {
        interval.tick().await;
        let found = match registration::list(&leases, scheduler).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot read the Leases of shards and relays, retrying");
                continue;
            }
        };
        let found = found.into_iter().map(|one| (one.member.name.clone(), one));
        let found: BTreeMap<_, _> = found.collect();
        let renewed = found
            .iter()
            .filter(|(name, one)| known.get(*name) != Some(one));
        let renewed: Vec<_> = renewed.map(|(_, one)| one.clone()).collect();
        let gone = known.keys().filter(|name| !found.contains_key(*name));
        let gone: Vec<_> = gone.cloned().collect();
        known = found;
        let is_same = renewed.is_empty() && gone.is_empty();
        if !is_same && sender.send(Incoming::Members(renewed, gone)).await.is_err() {
            return;
        }
    }
}

async fn tick(sender: mpsc::Sender<Incoming>) {
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        if sender.send(Incoming::Tick).await.is_err() {
            return;
        }
    }
}
