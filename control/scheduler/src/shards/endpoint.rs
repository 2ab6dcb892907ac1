//! The gRPC service of a member: the streams from other members.

use std::sync::{Arc, OnceLock};

use dormouse_scheduler_shard::{Member, Message};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::peers::{identity, member_of};
use super::proto::members_server::{Members, MembersServer};
use super::proto::{Delivered, Frame, Greeting, IdentifyRequest, Identity, frame::Content};
use super::{Incoming, MESSAGE_BYTES_MAX};
use crate::metrics::members::Metrics;

/// The service.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Missing until the member is registered.
    me: Arc<OnceLock<Member>>,
    profile: u64,
    inbox: mpsc::Sender<Incoming>,
    metrics: Metrics,
}

impl Endpoint {
    pub(crate) fn new(profile: u64, inbox: mpsc::Sender<Incoming>, metrics: Metrics) -> Self {
        Self {
            me: Arc::default(),
            profile,
            inbox,
            metrics,
        }
    }

    /// The member is registered, and accepts streams from now on.
    pub(crate) fn open(&self, me: Member) {
        // It is set once, where the member starts.
        drop(self.me.set(me));
    }

    /// The service, for a gRPC server.
    pub(crate) fn service(&self) -> MembersServer<Self> {
        MembersServer::new(self.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn me(&self) -> Result<&Member, Status> {
        let me = self.me.get();
        me.ok_or_else(|| Status::unavailable("the member is not registered yet"))
    }

    /// The sender of a stream that is for this member.
    fn admit(&self, frame: Option<Frame>) -> Result<Member, Status> {
        let Some(Content::Greeting(greeting)) = frame.and_then(|frame| frame.content) else {
            return Err(Status::invalid_argument(
                "a stream begins with a greeting: its first frame is none",
            ));
        };
        let me = self.me()?;
        let Greeting { from, to, profile } = greeting;
        let (Some(from), Some(to)) = (from.map(member_of), to.map(member_of)) else {
            return Err(Status::invalid_argument(
                "a greeting has a sender and a receiver",
            ));
        };
        if to != *me {
            return Err(Status::failed_precondition(format!(
                "the stream is for {} of start {}, and this is {} of start {}: the sender has an old Lease, or two members share an address",
                to.name, to.incarnation, me.name, me.incarnation
            )));
        }
        if profile != self.profile {
            return Err(Status::failed_precondition(format!(
                "{} and {} have other profiles or are of other releases: start all members with the same program and --config",
                from.name, me.name
            )));
        }
        Ok(from)
    }

    /// Hands the messages of a stream on.
    async fn receive(&self, from: &Member, mut frames: Streaming<Frame>) -> Result<(), Status> {
        let mut count = 0_u64;
        while let Some(frame) = frames.message().await? {
            count += 1;
            let Some(Content::Message(bytes)) = frame.content else {
                return Err(Status::invalid_argument(format!(
                    "frame {count} of {} is no message",
                    from.name
                )));
            };
            let message: Message = serde_json::from_slice(&bytes).map_err(|error| {
                Status::invalid_argument(format!(
                    "frame {count} of {} cannot be decoded: {error}",
                    from.name
                ))
            })?;
            self.metrics.received(bytes.len());
            let incoming = Incoming::Message(from.clone(), Box::new(message));
            let handed = self.inbox.send(incoming).await;
            handed.map_err(|_closed| Status::unavailable("the member is shutting down"))?;
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Members for Endpoint {
    async fn deliver(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> Result<Response<Delivered>, Status> {
        let mut frames = request.into_inner();
        let first = frames.message().await?;
        let received = async {
            let from = self.admit(first)?;
            tracing::debug!(member = from.name, "a member began a stream");
            self.receive(&from, frames).await
        };
        if let Err(status) = received.await {
            self.metrics.refused();
            tracing::warn!(reason = status.message(), "a stream from a member ended");
            return Err(status);
        }
        Ok(Response::new(Delivered {}))
    }

    async fn identify(
        &self,
        _request: Request<IdentifyRequest>,
    ) -> Result<Response<Identity>, Status> {
        self.me().map(|me| Response::new(identity(me)))
    }
}

#[cfg(test)]
mod tests;
