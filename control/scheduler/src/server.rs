//! The scheduler's server: one task owns the state, applies the store's changes, serves gRPC and starts bindings.

use std::time::Duration;

use dormouse_cluster::reflector::{self, Batch, Kinds};
use dormouse_cluster::{Change, Client, Object};
use k8s_openapi::api::core::v1::Pod;
use nix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::binder::{self, Outcome};
use crate::nodes::FitError;
use crate::proto::scheduler_server::{Scheduler, SchedulerServer};
use crate::proto::{CheckReply, CheckRequest, PlaceReply, PlaceRequest};
use crate::state::State;

/// Queued `Place` calls; further ones wait in their connections.
const CALLS_MAX: usize = 1_024;
/// Concurrent bindings.
const BINDINGS_MAX: usize = 64;
/// Interval of the expiry of assumed pods, so that pending pods get their resources without a further event.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

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

/// A call that the loop answers.
enum Call {
    Place {
        pod: Box<Pod>,
        reply: oneshot::Sender<Result<String, FitError>>,
    },
    Check {
        reply: oneshot::Sender<()>,
    },
}

/// Serves until `shutdown`: gRPC on `listener`, and bindings for the pods in the store without a node.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let changes = reflector::start(client.clone(), Kinds::PodsAndNodes, shutdown.clone());
    Server::new(client).run(listener, changes, shutdown).await
}

/// A scheduler that does not run yet.
pub struct Server {
    client: Client,
    calls: mpsc::Sender<Call>,
    received: mpsc::Receiver<Call>,
}

impl Server {
    /// A scheduler of the pods in a store.
    pub fn new(client: Client) -> Self {
        let (calls, received) = mpsc::channel(CALLS_MAX);
        Self {
            client,
            calls,
            received,
        }
    }

    /// Its service for clients in this process. Calls wait until the scheduler runs and knows all nodes and pods.
    pub fn in_process(&self) -> SchedulerServer<impl Scheduler + use<>> {
        SchedulerServer::new(Service {
            calls: self.calls.clone(),
        })
    }

    /// Runs until `shutdown`, as [`serve`] does, with a reflector's changes of pods and nodes.
    pub async fn run(
        self,
        listener: TcpListener,
        changes: mpsc::Receiver<Batch>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let service = self.in_process();
        let owner = Owner::new(self.client);
        let owner = shutdown
            .clone()
            .run_until_cancelled_owned(owner.run(changes, self.received));
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

/// The task that owns the state. It never awaits the store: bindings are tasks of their own.
struct Owner {
    state: State,
    /// The state contains all nodes and pods.
    listed: bool,
    client: Client,
    /// Bindings that have not reported their outcome.
    bindings: usize,
    outcomes: mpsc::Sender<Outcome>,
    finished: mpsc::Receiver<Outcome>,
}

impl Owner {
    fn new(client: Client) -> Self {
        let (outcomes, finished) = mpsc::channel(BINDINGS_MAX);
        Self {
            state: State::new(seed()),
            listed: false,
            client,
            bindings: 0,
            outcomes,
            finished,
        }
    }

    /// Runs until the changes end.
    async fn run(mut self, mut changes: mpsc::Receiver<Batch>, mut calls: mpsc::Receiver<Call>) {
        let mut expiry = tokio::time::interval(EXPIRE_INTERVAL);
        loop {
            tokio::select! {
                batch = changes.recv() => match batch {
                    Some(batch) => self.apply(&batch),
                    None => return,
                },
                Some(call) = calls.recv(), if self.listed => self.answer(call),
                Some(outcome) = self.finished.recv() => self.finish(&outcome),
                _ = expiry.tick() => self.state.expire_assumed(now_ms()),
            }
            if self.listed {
                self.start_bindings();
            }
        }
    }

    /// Answers a call. Its caller may have timed out: a pod that was placed for it is then assumed until it expires.
    fn answer(&mut self, call: Call) {
        match call {
            Call::Place { pod, reply } => {
                drop(reply.send(self.state.place(now_ms(), &pod.key(), &pod)));
            }
            Call::Check { reply } => {
                let _ = reply.send(());
            }
        }
    }

    fn apply(&mut self, batch: &Batch) {
        for (_, change) in batch {
            self.state.apply(change);
            self.listed |= *change == Change::Listed;
        }
    }

    fn finish(&mut self, outcome: &Outcome) {
        self.bindings -= 1;
        match outcome {
            Outcome::Bound(key) => self.state.finish_binding(key, true),
            Outcome::Failed(key) => self.state.finish_binding(key, false),
            Outcome::Unschedulable => {}
        }
    }

    fn start_bindings(&mut self) {
        while self.bindings < BINDINGS_MAX
            && let Some((pod, placed)) = self.state.place_next(now_ms())
        {
            self.bindings += 1;
            let (client, outcomes) = (self.client.clone(), self.outcomes.clone());
            tokio::spawn(binder::run(client, pod, placed, outcomes));
        }
    }
}

struct Service {
    calls: mpsc::Sender<Call>,
}

impl Service {
    /// Sends a call to the loop; returns its answer.
    async fn call<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Status> {
        let closed = || Status::unavailable("the scheduler is shutting down");
        let (reply, answer) = oneshot::channel();
        let sent = self.calls.send(call(reply)).await;
        sent.map_err(|_closed| closed())?;
        answer.await.map_err(|_closed| closed())
    }
}

#[tonic::async_trait]
impl Scheduler for Service {
    async fn place(&self, request: Request<PlaceRequest>) -> Result<Response<PlaceReply>, Status> {
        let pod: Pod = serde_json::from_slice(&request.into_inner().pod)
            .map_err(|error| Status::invalid_argument(format!("cannot decode the pod: {error}")))?;
        if pod.key().name.is_empty() || pod.key().namespace.is_empty() {
            return Err(Status::invalid_argument(
                "the pod has no name or no namespace",
            ));
        }
        let pod = Box::new(pod);
        let placed = self.call(|reply| Call::Place { pod, reply }).await?;
        Ok(Response::new(place_reply(placed, boottime_ns())))
    }

    async fn check(&self, _request: Request<CheckRequest>) -> Result<Response<CheckReply>, Status> {
        self.call(|reply| Call::Check { reply }).await?;
        Ok(Response::new(CheckReply {}))
    }
}

fn place_reply(placed: Result<String, FitError>, placed_ns: u64) -> PlaceReply {
    match placed {
        Ok(node) => PlaceReply {
            node,
            placed_ns,
            reason: String::new(),
        },
        Err(error) => PlaceReply {
            node: String::new(),
            placed_ns,
            reason: error.to_string(),
        },
    }
}

/// `CLOCK_BOOTTIME`, the clock of all timestamps of a wake.
fn boottime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let fraction = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds * 1_000_000_000 + fraction
    })
}

fn now_ms() -> u64 {
    boottime_ns() / 1_000_000
}

/// A seed that differs between processes; not a secret.
fn seed() -> u64 {
    boottime_ns() ^ u64::from(std::process::id()) << 32
}
