//! The scheduler's server: one task owns the state, applies the store's changes, answers calls and starts the writing of
//! decisions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dormouse_cluster::Client;
use dormouse_cluster::reflector::{self, Batch, Kinds};
use dormouse_scheduler_decide::Profile;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;

use crate::clock::{Clock, boottime_ns};
use crate::metrics::Metrics;
use crate::proto::scheduler_server::{Scheduler, SchedulerServer};
use crate::service::{Call, Service};
use crate::source::{self, Seen, Source};
use crate::state::{Attempt, Outcome, State, Verdict, Work};
use crate::writer;

/// Queued calls; further ones wait in their connections.
const CALLS_MAX: usize = 1_024;
/// Decisions that are being written.
const WRITES_MAX: usize = 64;
/// Interval in which the state is told that time passes: backoffs and assumed pods end without a further event.
const TICK: Duration = Duration::from_secs(1);

/// An error that ends the scheduler.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The watch of the store ended, or the task that owns the state panicked.
    #[error("the scheduler lost its watch of the store: restart it, it lists the store at start")]
    WatchEnded,
    /// The gRPC server failed.
    #[error("cannot serve gRPC")]
    Grpc(#[source] tonic::transport::Error),
}

/// Serves until `shutdown`, with the default profile: gRPC on `listener`, and bindings for the pods in the store without a
/// node.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    Server::new(client).follow(listener, shutdown).await
}

/// A scheduler that does not run yet.
pub struct Server {
    client: Client,
    profiles: Vec<Profile>,
    metrics: Metrics,
    calls: mpsc::Sender<Call>,
    received: mpsc::Receiver<Call>,
}

impl Server {
    /// A scheduler of the pods in a store, with the default profile.
    pub fn new(client: Client) -> Self {
        let (calls, received) = mpsc::channel(CALLS_MAX);
        Self {
            client,
            profiles: vec![Profile::default()],
            metrics: Metrics::default(),
            calls,
            received,
        }
    }

    /// The scheduler with other profiles, of which each has another name.
    #[must_use]
    pub fn with_profiles(mut self, profiles: Vec<Profile>) -> Self {
        self.profiles = profiles;
        self
    }

    /// Adds the scheduler's metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Its service for clients in this process. Calls wait until the scheduler runs and knows all nodes and pods.
    pub fn in_process(&self) -> SchedulerServer<impl Scheduler + use<>> {
        SchedulerServer::new(Service {
            calls: self.calls.clone(),
        })
    }

    /// Runs until `shutdown`, with a reflector of its own.
    pub async fn follow(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let changes = reflector::start(self.client.clone(), Kinds::PodsAndNodes, shutdown.clone());
        self.run(listener, changes, shutdown).await
    }

    /// Runs until `shutdown`, with a reflector's changes of pods and nodes.
    pub async fn run(
        self,
        listener: TcpListener,
        changes: mpsc::Receiver<Batch>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let service = self.in_process();
        let received = self.received;
        let Source { seen, kinds } = source::store::start(&self.client, changes, &shutdown);
        let owner = Owner::new(self.client, self.profiles, self.metrics, kinds);
        let owner = shutdown
            .clone()
            .run_until_cancelled_owned(owner.run(seen, received));
        let owner = tokio::spawn(owner);
        let served = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                shutdown.clone().cancelled_owned(),
            );
        tokio::select! {
            served = served => served.map_err(ServeError::Grpc),
            _ = owner => if shutdown.is_cancelled() { Ok(()) } else { Err(ServeError::WatchEnded) },
        }
    }
}

/// The end of the writing of a decision.
struct Written {
    attempt: Option<Attempt>,
    outcome: Outcome,
}

/// The task that owns the state. It never awaits the store: writes are tasks of their own.
struct Owner {
    state: State,
    clock: Clock,
    /// The kinds of objects that were not all seen yet.
    awaited: BTreeSet<&'static str>,
    client: Client,
    metrics: Metrics,
    /// Writes that have not reported their end.
    writes: usize,
    ends: mpsc::Sender<Written>,
    ended: mpsc::Receiver<Written>,
}

impl Owner {
    fn new(
        client: Client,
        profiles: Vec<Profile>,
        metrics: Metrics,
        kinds: BTreeSet<&'static str>,
    ) -> Self {
        let (ends, ended) = mpsc::channel(WRITES_MAX);
        Self {
            state: State::new(profiles, seed()),
            clock: Clock::start(),
            awaited: kinds,
            client,
            metrics,
            writes: 0,
            ends,
            ended,
        }
    }

    /// Runs until the changes end.
    async fn run(mut self, mut seen: mpsc::Receiver<Vec<Seen>>, mut calls: mpsc::Receiver<Call>) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                batch = seen.recv() => match batch {
                    Some(batch) => self.apply(batch),
                    None => return,
                },
                Some(call) = calls.recv(), if self.awaited.is_empty() => self.answer(call),
                Some(written) = self.ended.recv() => self.finish(written),
                _ = tick.tick() => self.state.tick(self.clock.now()),
            }
            if self.awaited.is_empty() {
                self.start_writes();
            }
            self.metrics.follow(&mut self.state);
        }
    }

    /// Answers a call. Its caller may have timed out: a pod that was placed for it is then assumed until it expires.
    fn answer(&mut self, call: Call) {
        let now = self.clock.now();
        match call {
            Call::Place { pod, reply } => {
                let began = Instant::now();
                let placed = self.state.place(now, &pod);
                self.metrics.decided(began.elapsed());
                drop(reply.send(placed));
            }
            Call::Check { reply } => {
                let _ = reply.send(());
            }
            Call::Explain { key, reply } => {
                drop(reply.send(self.state.explain(now, &key)));
            }
        }
    }

    fn apply(&mut self, batch: Vec<Seen>) {
        let now = self.clock.now();
        for seen in batch {
            match seen {
                Seen::Change(change) => self.state.apply(now, &change),
                Seen::Related(related) => self.state.apply_related(&related),
                Seen::Listed(kind) => drop(self.awaited.remove(kind)),
            }
        }
    }

    fn finish(&mut self, Written { attempt, outcome }: Written) {
        self.writes -= 1;
        if let Some(attempt) = attempt {
            self.state.finish(self.clock.now(), attempt, outcome);
        }
    }

    fn start_writes(&mut self) {
        while self.writes < WRITES_MAX {
            let began = Instant::now();
            let Some(work) = self.state.next(self.clock.now()) else {
                return;
            };
            self.metrics.decided(began.elapsed());
            self.writes += 1;
            let (client, ends) = (self.client.clone(), self.ends.clone());
            tokio::spawn(write(
                client,
                work,
                began,
                self.clock,
                self.metrics.clone(),
                ends,
            ));
        }
    }
}

/// Writes one decision, and reports the end.
async fn write(
    client: Client,
    work: Work,
    began: Instant,
    clock: Clock,
    metrics: Metrics,
    ends: mpsc::Sender<Written>,
) {
    let Work {
        pod,
        attempt,
        verdict,
    } = work;
    if let Verdict::Rejected(rejection) = &verdict {
        metrics.rejected(attempt.as_ref(), rejection, began.elapsed());
    }
    let scheduler = attempt.as_ref().map_or("", Attempt::scheduler);
    let outcome = writer::write(&client, &pod, &verdict, scheduler).await;
    if let (Verdict::Placed(_), Some(attempt)) = (&verdict, &attempt) {
        metrics.written(attempt, outcome, began.elapsed(), clock.now());
    }
    // The receiver is dropped only at shutdown.
    drop(ends.send(Written { attempt, outcome }).await);
}

/// A seed that differs between processes; not a secret.
fn seed() -> u64 {
    boottime_ns() ^ u64::from(std::process::id()) << 32
}
