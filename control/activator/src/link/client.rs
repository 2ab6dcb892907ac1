//! The activator's gRPC client of the link: connects, and connects again when the stream has ended.

use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Backoff, LinkError, Target, connect, jitter};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Channel;
use tracing::warn;

use super::attach::{Attachment, Ended};
use super::proto::activators_client::ActivatorsClient;
use super::proto::{Down, Up};
use super::server::MESSAGE_BYTES_MAX;
use crate::refusal::chain;

/// Messages in flight to the controller. While they are, the follower merges further reports.
const UP_MAX: usize = 2;
/// Longest wait between attempts: sleeping apps cannot wake meanwhile, and a controller has few activators.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// A stream that lasted this long was a working one.
const STABLE: Duration = Duration::from_secs(5);

impl Attachment {
    /// Attaches to the controller at `target` until `shutdown`, again whenever the stream ends. Meanwhile routes stay,
    /// and the requests of unknown VIPs are parked up to the wake timeout.
    pub async fn dial(self, target: impl Into<Target>, shutdown: CancellationToken) {
        let redial = Box::pin(self.redial(target.into()));
        shutdown.run_until_cancelled(redial).await;
    }

    async fn redial(mut self, target: Target) {
        let mut backoff = Backoff::new();
        loop {
            let begun = Instant::now();
            let error = match self.attach(target.clone()).await {
                Ok(ended) => chain(&ended),
                Err(error) => chain(&error),
            };
            self.closed();
            if begun.elapsed() > STABLE {
                backoff = Backoff::new();
            }
            let wait = backoff.next(jitter()).min(RECONNECT_MAX);
            warn!(%error, again_in_s = wait.as_secs_f64(), "not attached to control: awake apps are served, sleeping ones do not wake");
            self.meanwhile(sleep(wait)).await;
        }
    }

    /// Opens a stream and runs it until it ends.
    async fn attach(&mut self, target: Target) -> Result<Ended, LinkError> {
        let channel = self.meanwhile(Box::pin(connect(target))).await?;
        let (ups, sent) = mpsc::channel(UP_MAX);
        let hello = self.open(Boottime::now());
        // The channel is empty: this never waits.
        ups.send(hello).await.map_err(|_closed| LinkError::Closed)?;
        let downs = self.meanwhile(Box::pin(open(channel, sent))).await?;
        let downs = downs.map(|down| down.map_err(|status| Ended::Failed(Box::new(status))));
        Ok(self.attached(ups, downs).await)
    }
}

async fn open(channel: Channel, ups: mpsc::Receiver<Up>) -> Result<Streaming<Down>, LinkError> {
    let mut client = ActivatorsClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok(client.attach(ReceiverStream::new(ups)).await?.into_inner())
}
