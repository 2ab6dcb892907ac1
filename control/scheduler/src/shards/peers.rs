//! The streams to other members, of which each is opened with the first message to its member.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse_cluster::client::chain;
use dormouse_fleet::client::connect;
use dormouse_scheduler_shard::{Member, Message, Sent};
use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::transport::Channel;

use super::proto::members_client::MembersClient;
use super::proto::{Frame, Greeting, IdentifyRequest, Identity, frame::Content};
use super::{MESSAGE_BYTES_MAX, Reach};
use crate::metrics::members::Metrics;

/// Messages queued for one member; further ones are dropped, and sent again by their sender.
const QUEUE_MAX: usize = 4_096;
/// Time between two attempts to reach a member.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Timeout of a connection, and of a member's response to a question about its name.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of the pings by which a connection to a machine that is gone is found broken.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Time without an answer to a ping after which the connection is broken.
const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// The streams to other members.
pub(crate) struct Peers {
    me: Member,
    profile: u64,
    streams: HashMap<Member, Outgoing>,
    reach: Reach,
    metrics: Metrics,
}

struct Outgoing {
    queue: mpsc::Sender<Bytes>,
    began: Instant,
}

impl Peers {
    pub(crate) fn new(me: Member, profile: u64, reach: Reach, metrics: Metrics) -> Self {
        Self {
            me,
            profile,
            streams: HashMap::new(),
            reach,
            metrics,
        }
    }

    /// Queues messages. One is lost if its member cannot be reached, or takes too long. Of a question to many members, which
    /// follow each other, one encoding serves all.
    pub(crate) fn send(&mut self, sent: Sent) {
        let mut last: Option<(Message, Bytes)> = None;
        for (to, message) in sent {
            let encoded = last.take().filter(|(before, _)| *before == message);
            let encoded = encoded
                .map(|(_, bytes)| bytes)
                .or_else(|| encode(&to, &message));
            let Some(bytes) = encoded else {
                continue;
            };
            self.enqueue(&to, bytes.clone());
            last = Some((message, bytes));
        }
    }

    fn enqueue(&mut self, to: &Member, bytes: Bytes) {
        let len = bytes.len();
        match self.queue(to).try_send(bytes) {
            Ok(()) => self.metrics.sent(len),
            Err(_full_or_closed) => self.metrics.dropped(),
        }
    }

    /// Closes the streams to members that are gone.
    pub(crate) fn retain(&mut self, is_member: impl Fn(&Member) -> bool) {
        self.streams.retain(|member, _| is_member(member));
    }

    fn queue(&mut self, to: &Member) -> mpsc::Sender<Bytes> {
        if let Some(stream) = self.streams.get(to) {
            let is_retry = stream.queue.is_closed() && stream.began.elapsed() >= RETRY_AFTER;
            if !is_retry {
                return stream.queue.clone();
            }
        }
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        let stream = Outgoing {
            queue: queue.clone(),
            began: Instant::now(),
        };
        self.streams.insert(to.clone(), stream);
        let greeting = Greeting {
            from: Some(identity(&self.me)),
            to: Some(identity(to)),
            profile: self.profile,
        };
        let reach = Arc::clone(&self.reach);
        tokio::spawn(deliver(reach, to.clone(), greeting, queued));
        queue
    }
}

fn encode(to: &Member, message: &Message) -> Option<Bytes> {
    let encoded = serde_json::to_vec(message);
    if encoded.is_err() {
        tracing::error!(member = to.name, "a message cannot be encoded");
    }
    encoded.ok().map(Bytes::from)
}

/// Delivers what is queued, until the queue is dropped or the stream breaks.
async fn deliver(reach: Reach, to: Member, greeting: Greeting, queued: mpsc::Receiver<Bytes>) {
    match stream(&reach, &to, greeting, queued).await {
        Ok(()) => tracing::debug!(member = to.name, "the stream to a member ended"),
        Err(status) => {
            let (reason, code) = (status.message(), status.code());
            tracing::warn!(
                member = to.name,
                address = to.address,
                %code,
                reason,
                "the stream to a member broke"
            );
        }
    }
}

async fn stream(
    reach: &Reach,
    to: &Member,
    greeting: Greeting,
    mut queued: mpsc::Receiver<Bytes>,
) -> Result<(), Status> {
    let frame = |content| Frame {
        content: Some(content),
    };
    let mut client = client(reach, &to.address).await?;
    let messages = stream::poll_fn(move |context| queued.poll_recv(context));
    let greeting = stream::iter([frame(Content::Greeting(greeting))]);
    let frames = greeting.chain(messages.map(move |bytes| frame(Content::Message(bytes))));
    client.deliver(frames).await.map(drop)
}

async fn client(reach: &Reach, address: &str) -> Result<MembersClient<Channel>, Status> {
    let target = reach(address).map_err(Status::invalid_argument)?;
    let target = target.adjusted(|endpoint| {
        endpoint
            .connect_timeout(TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
    });
    let channel = connect(target).await;
    let channel = channel.map_err(|error| Status::unavailable(chain(&error)))?;
    Ok(MembersClient::new(channel).max_encoding_message_size(MESSAGE_BYTES_MAX))
}

/// Whether a member runs at its address, and is no other one.
pub(crate) async fn responds(reach: &Reach, member: &Member) -> bool {
    let asked = async {
        let mut client = client(reach, &member.address).await?;
        client.identify(IdentifyRequest {}).await
    };
    let answer = tokio::time::timeout(TIMEOUT, asked).await;
    answer.is_ok_and(|answer| {
        answer.is_ok_and(|identity| member_of(identity.into_inner()) == *member)
    })
}

pub(super) fn identity(member: &Member) -> Identity {
    let Member {
        name,
        incarnation,
        address,
    } = member.clone();
    Identity {
        name,
        incarnation,
        address,
    }
}

pub(super) fn member_of(identity: Identity) -> Member {
    let Identity {
        name,
        incarnation,
        address,
    } = identity;
    Member {
        name,
        incarnation,
        address,
    }
}
