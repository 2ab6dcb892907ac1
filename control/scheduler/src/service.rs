//! The gRPC service: requests become calls of the loop that owns the state.

use std::sync::Arc;

use dormouse_cluster::Object;
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::clock::boottime_ns;
use crate::proto::scheduler_server::Scheduler;
use crate::proto::{
    CheckReply, CheckRequest, ExplainReply, ExplainRequest, PlaceReply, PlaceRequest,
};
use crate::state::Topic;

/// A call that the loop answers.
pub(crate) enum Call {
    Place {
        pod: Box<Pod>,
        reply: oneshot::Sender<Result<String, String>>,
    },
    Check {
        reply: oneshot::Sender<()>,
    },
    Explain {
        key: PodKey,
        reply: oneshot::Sender<Option<Vec<Topic>>>,
    },
}

/// The service.
pub(crate) struct Service {
    pub(crate) calls: mpsc::Sender<Call>,
    /// Explanations that are made at one time: each has a copy of the cluster.
    pub(crate) explanations: Arc<Semaphore>,
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
        let (node, reason) = match placed {
            Ok(node) => (node, String::new()),
            Err(reason) => (String::new(), reason),
        };
        Ok(Response::new(PlaceReply {
            node,
            placed_ns: boottime_ns(),
            reason,
        }))
    }

    async fn check(&self, _request: Request<CheckRequest>) -> Result<Response<CheckReply>, Status> {
        self.call(|reply| Call::Check { reply }).await?;
        Ok(Response::new(CheckReply {}))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainReply>, Status> {
        let ExplainRequest { namespace, name } = request.into_inner();
        let key = PodKey { namespace, name };
        let unknown = format!("the scheduler knows no pod {key}");
        let permit = self.explanations.acquire().await;
        let _permit = permit.map_err(|closed| Status::unavailable(closed.to_string()))?;
        let topics = self.call(|reply| Call::Explain { key, reply }).await?;
        let topics = topics.ok_or_else(|| Status::not_found(unknown))?;
        let topics = serde_json::to_vec(&topics);
        let topics = topics.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(ExplainReply { topics }))
    }
}
