//! The process of a shard or a relay: it registers, and runs its state machine on the messages of others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_fleet::Callers;
use dormouse_scheduler_decide::Profile;
use dormouse_scheduler_shard::{Epoch, Member, Message, Relay, Sent, Shard, View};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::leases::Leases;
use super::peers::Peers;
use super::registration::{Registration, RegistrationError, Role};
use super::{INBOX_MAX, Incoming, Reach, TICK, profile_hash};
use crate::metrics::members::Metrics;

/// A member that does not run yet.
pub struct Join {
    /// Where members register.
    pub leases: Leases,
    /// The name of the scheduler's own Lease, by which its members know each other.
    pub scheduler: String,
    /// The role.
    pub role: Role,
    /// The member's name among those of its role.
    pub name: String,
    /// The URL at which the others reach it; that of its listener if missing.
    pub address: Option<String>,
    /// How it reaches the others.
    pub reach: Reach,
    /// Time without a renewal of its Lease after which it has left.
    pub lease_duration: Duration,
    /// Time after which a relay leaves out shards that have not answered.
    pub straggler_timeout: Option<Duration>,
    /// The scheduler's profile.
    pub profile: Profile,
}

/// An error that ends a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The listener has no address.
    #[error("cannot read the address of the listener")]
    Listener(#[source] std::io::Error),
    /// The Lease is another member's.
    #[error(transparent)]
    Registration(RegistrationError),
    /// The gRPC server failed.
    #[error("cannot serve gRPC")]
    Grpc(#[source] tonic::transport::Error),
    /// The task that owns the state ended.
    #[error("the state machine of the member failed: this is a bug")]
    Ended,
}

enum Machine {
    Shard(Box<Shard>),
    Relay(Box<Relay>),
}

impl Join {
    /// Runs until `shutdown`; then the Lease is deleted.
    pub async fn run(
        self,
        listener: dormouse_fleet::Incoming,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) -> Result<(), JoinError> {
        let url = listener.url().map_err(JoinError::Listener)?;
        let address = self.address.clone().unwrap_or(url);
        let profile = profile_hash(&self.profile);
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        let endpoint = Endpoint::new(profile, sender, metrics.clone());
        let serving = Callers::Roles
            .server()
            .add_service(endpoint.service())
            .serve_with_incoming_shutdown(
                listener.connections(),
                shutdown.clone().cancelled_owned(),
            );
        let serving = tokio::spawn(serving);
        let registration = Registration::begin(
            self.leases.clone(),
            &self.scheduler,
            (self.role, &self.name),
            (address, Arc::clone(&self.reach)),
            self.lease_duration,
        );
        let mut registration = registration.await.map_err(JoinError::Registration)?;
        let me = registration.registered.member.clone();
        tracing::info!(
            role = self.role.name(),
            lease = me.name,
            incarnation = me.incarnation,
            address = me.address,
            "registered"
        );
        endpoint.open(me.clone());
        let owner = self.owner(me, profile, metrics, inbox);
        let owner = shutdown.clone().run_until_cancelled_owned(owner.run());
        let owner = tokio::spawn(owner);
        let ended = tokio::select! {
            lost = registration.keep() => Err(JoinError::Registration(lost)),
            _ = owner => Err(JoinError::Ended),
            ended = serving => ended.map_or(Err(JoinError::Ended), |served| served.map_err(JoinError::Grpc)),
        };
        if shutdown.is_cancelled() {
            registration.end().await;
            return Ok(());
        }
        ended
    }

    fn owner(
        &self,
        me: Member,
        profile: u64,
        metrics: Metrics,
        inbox: mpsc::Receiver<Incoming>,
    ) -> Owner {
        let (of, timeout) = (self.profile.clone(), self.straggler_timeout);
        let machine = match self.role {
            Role::Shard => Machine::Shard(Box::new(Shard::new(me.clone(), of))),
            Role::Relay => Machine::Relay(Box::new(Relay::new(me.clone(), of, timeout))),
        };
        Owner {
            machine,
            inbox,
            peers: Peers::new(me, profile, Arc::clone(&self.reach), metrics.clone()),
            metrics,
            began: Instant::now(),
        }
    }
}

/// The task that owns the state machine.
struct Owner {
    machine: Machine,
    inbox: mpsc::Receiver<Incoming>,
    peers: Peers,
    metrics: Metrics,
    began: Instant,
}

impl Owner {
    async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            let sent = tokio::select! {
                Some(incoming) = self.inbox.recv() => self.receive(incoming),
                _ = tick.tick() => self.tick(),
            };
            self.peers.send(sent);
        }
    }

    fn receive(&mut self, incoming: Incoming) -> Sent {
        let Incoming::Message(from, message) = incoming else {
            return Sent::new();
        };
        let view = match &*message {
            Message::View(view) => Some(view.clone()),
            _ => None,
        };
        let began = Instant::now();
        let now = began.duration_since(self.began);
        let before = self.epoch();
        let sent = match &mut self.machine {
            Machine::Shard(shard) => shard.receive(&from, *message),
            Machine::Relay(relay) => relay.receive(&from, *message, now),
        };
        self.metrics.handled(began.elapsed());
        if let Some(view) = view {
            self.viewed(before, &view);
        }
        sent
    }

    /// A leader has sent a view, which the state machine has adopted or not.
    fn viewed(&mut self, before: Option<Epoch>, view: &View) {
        let Epoch { term, view: number } = view.epoch;
        if self.epoch() != Some(view.epoch) {
            let leader = &view.leader.name;
            tracing::warn!(
                leader,
                term,
                number,
                adopted = before.map(|epoch| epoch.term),
                "a leader of an earlier term sends views: its Lease has passed to another one, or was deleted"
            );
        } else if before != self.epoch() {
            let (shards, relays) = (view.shards.len(), view.relays.len());
            tracing::info!(term, number, shards, relays, "view adopted");
            self.peers
                .retain(|peer| view.members().any(|member| member == peer));
        }
    }

    fn epoch(&self) -> Option<Epoch> {
        match &self.machine {
            Machine::Shard(shard) => shard.epoch(),
            Machine::Relay(relay) => relay.epoch(),
        }
    }

    fn tick(&mut self) -> Sent {
        match &mut self.machine {
            Machine::Shard(shard) => {
                self.metrics.nodes(shard.nodes_len());
                Sent::new()
            }
            Machine::Relay(relay) => relay.tick(self.began.elapsed()),
        }
    }
}
