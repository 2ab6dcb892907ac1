//! The scheduler's shell: one task owns what is known, follows the store, answers gRPC and hands out bindings.

use std::time::Duration;

use dormouse_cluster::{Client, ClientError, Object, View, source};
use k8s_openapi::api::core::v1::Pod;
use nix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::binder::{self, Outcome};
use crate::nodes::Unfit;
use crate::proto::scheduler_server::{Scheduler, SchedulerServer};
use crate::proto::{PlaceReply, PlaceRequest};
use crate::state::State;

/// Questions that may wait for an answer; more wait in their connections.
const QUESTIONS_MAX: usize = 1_024;
/// Bindings under way at once.
const BINDINGS_MAX: usize = 64;
/// How often assumed pods are looked through, so that what they held is free again without anybody asking.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// Why the scheduler ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The cluster could not be read.
    #[error("cannot read the cluster from the store")]
    Read(#[source] ClientError),
    /// The store is not the one that was read, or the task that owns what is known panicked.
    #[error("the scheduler lost the cluster: start it again, it reads the store anew")]
    Lost,
    /// The gRPC server failed.
    #[error("cannot serve gRPC")]
    Grpc(#[source] tonic::transport::Error),
}

/// A pod that asks for a node, and where the answer goes.
type Question = (Pod, oneshot::Sender<Result<String, Unfit>>);

/// Serves until `shutdown`: gRPC on `listener`, and bindings for pods in the store that have no node.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (view, changes) = source::store(client.clone(), shutdown.clone())
        .await
        .map_err(ServeError::Read)?;
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let owner = tokio::spawn(own(view, changes, asked, client, shutdown.clone()));
    let served = tonic::transport::Server::builder()
        .add_service(SchedulerServer::new(Service { questions }))
        .serve_with_incoming_shutdown(
            TcpListenerStream::new(listener),
            shutdown.clone().cancelled_owned(),
        );
    tokio::select! {
        served = served => served.map_err(ServeError::Grpc),
        _ = owner => if shutdown.is_cancelled() { Ok(()) } else { Err(ServeError::Lost) },
    }
}

/// The one task that owns what is known. Never waits for the store.
async fn own(
    view: View,
    mut changes: mpsc::Receiver<source::Batch>,
    mut asked: mpsc::Receiver<Question>,
    client: Client,
    shutdown: CancellationToken,
) {
    let mut state = State::new(&view, seed());
    let (outcomes, mut bound) = mpsc::channel(BINDINGS_MAX);
    let mut under_way = 0;
    let mut expire = tokio::time::interval(EXPIRE_EVERY);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            batch = changes.recv() => match batch {
                Some(batch) => batch.iter().for_each(|(_, change)| state.apply(change)),
                None => return,
            },
            Some((pod, answer)) = asked.recv() => {
                // Who asked may have given up: the pod is then assumed until its time is over.
                drop(answer.send(state.place(now_ms(), &pod.key(), &pod)));
            }
            Some(outcome) = bound.recv() => {
                under_way -= 1;
                match outcome {
                    Outcome::Bound(key) => state.bound(&key, true),
                    Outcome::Unbound(key) => state.bound(&key, false),
                    Outcome::Told => {}
                }
            }
            _ = expire.tick() => state.expire(now_ms()),
        }
        while under_way < BINDINGS_MAX
            && let Some((pod, placed)) = state.place_next(now_ms())
        {
            under_way += 1;
            tokio::spawn(binder::run(client.clone(), pod, placed, outcomes.clone()));
        }
    }
}

struct Service {
    questions: mpsc::Sender<Question>,
}

#[tonic::async_trait]
impl Scheduler for Service {
    async fn place(&self, request: Request<PlaceRequest>) -> Result<Response<PlaceReply>, Status> {
        let pod: Pod = serde_json::from_slice(&request.into_inner().pod).map_err(|error| {
            Status::invalid_argument(format!("the pod is not readable: {error}"))
        })?;
        if pod.key().name.is_empty() || pod.key().namespace.is_empty() {
            return Err(Status::invalid_argument(
                "the pod has no name or no namespace",
            ));
        }
        let (answer, answered) = oneshot::channel();
        let gone = || Status::unavailable("the scheduler is shutting down");
        self.questions
            .send((pod, answer))
            .await
            .map_err(|_closed| gone())?;
        let placed = answered.await.map_err(|_closed| gone())?;
        Ok(Response::new(reply(placed, boottime_ns())))
    }
}

fn reply(placed: Result<String, Unfit>, placed_ns: u64) -> PlaceReply {
    match placed {
        Ok(node) => PlaceReply {
            node,
            placed_ns,
            reason: String::new(),
        },
        Err(unfit) => PlaceReply {
            node: String::new(),
            placed_ns,
            reason: unfit.to_string(),
        },
    }
}

/// The clock that all parts share.
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

/// Lots need not be secret, only different from one process to the next.
fn seed() -> u64 {
    boottime_ns() ^ u64::from(std::process::id()) << 32
}
