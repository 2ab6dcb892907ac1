//! The logs of the nodes' pods: control asks the agent of a node, which answers on a gRPC stream of its own. So each log has its own
//! flow control: what its reader does not take stays on the node, and no other stream waits for it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use crate::proto::log_chunk::Outcome;
use crate::proto::{LogChunk, LogRequest, LogRun};

/// Logs that are read from one node at once. With [`STREAM_BYTES`], their readers together can hold up a third of the connection.
pub const LOGS_PER_NODE_MAX: usize = 16;
/// Lists of logs that one node makes at once; further ones wait. They have room also while all logs are being read.
const LISTS_PER_NODE_MAX: usize = 4;
pub(crate) const REQUESTS_PER_NODE_MAX: usize = LOGS_PER_NODE_MAX + LISTS_PER_NODE_MAX;
/// Bytes on the way to control in one stream.
pub(crate) const STREAM_BYTES: u32 = 64 * 1024;
/// Bytes on the way to control in all streams of a node.
pub(crate) const CONNECTION_BYTES: u32 = 4 << 20;
const _: () =
    assert!(3 * REQUESTS_PER_NODE_MAX * STREAM_BYTES as usize <= CONNECTION_BYTES as usize);
/// Limit of the time until the node begins to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The node has no fleet stream, or its agent does not offer logs.
    #[error("node {0} does not offer its pods' logs: it is not connected, or its agent is too old")]
    NotConnected(String),
    /// Too many logs of the node are read.
    #[error("{LOGS_PER_NODE_MAX} logs of node {0} are being read, which is the limit")]
    TooMany(String),
    /// The node did not answer in time, or the connection broke.
    #[error("node {0} does not answer")]
    NoAnswer(String),
    /// The node has no log of the pod.
    #[error("node {0} has no log of the pod")]
    NoLog(String),
    /// The pod was started once only.
    #[error("the pod was not started before on node {0}")]
    NoPrevious(String),
    /// The node failed to read the log.
    #[error("node {node} failed to read the log: {message}")]
    Failed {
        /// The node.
        node: String,
        /// Its message.
        message: String,
    },
}

/// The nodes that offer logs, and the requests that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    waiting: BTreeMap<u64, Asked>,
    /// Of the last request or stream of a node.
    last_id: u64,
}

#[derive(Debug, Clone)]
struct Node {
    /// Distinguishes it from a later stream of the same node.
    id: u64,
    requests: mpsc::Sender<LogRequest>,
    reads: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

/// A request that a node has to answer.
#[derive(Debug)]
struct Asked {
    node: String,
    answer: oneshot::Sender<Answer>,
}

/// A node's answer.
#[derive(Debug)]
struct Answer {
    first: LogChunk,
    rest: Streaming<LogChunk>,
    /// Ends the node's stream when it is dropped.
    end: DropGuard,
}

/// The text of a log, in parts. Dropping it ends the node's stream.
#[derive(Debug)]
pub struct LogText {
    first: Option<Vec<u8>>,
    rest: Streaming<LogChunk>,
    _end: DropGuard,
    _permit: OwnedSemaphorePermit,
}

/// The requests to one node. Dropping it ends the offer.
pub(crate) struct Requests {
    logs: Arc<Logs>,
    node: String,
    id: u64,
    queue: mpsc::Receiver<LogRequest>,
}

impl Logs {
    /// A node offers its logs. An earlier offer of the same node ends.
    pub(crate) fn offer(self: &Arc<Self>, node: String) -> Requests {
        let (sender, queue) = mpsc::channel(REQUESTS_PER_NODE_MAX);
        let mut state = self.state.lock();
        let id = state.next_id();
        let offer = Node {
            id,
            requests: sender,
            reads: Arc::new(Semaphore::new(LOGS_PER_NODE_MAX)),
            lists: Arc::new(Semaphore::new(LISTS_PER_NODE_MAX)),
        };
        state.nodes.insert(node.clone(), offer);
        Requests {
            logs: Arc::clone(self),
            node,
            id,
            queue,
        }
    }

    /// A node offers its logs no longer, and is asked for none.
    pub(crate) fn end(&self, node: &str) {
        self.state.lock().nodes.remove(node);
    }

    /// Passes a node's answer to the request that waits for it, if the client may answer for the node that was asked. Resolves when its
    /// reader has left, at once if there is none.
    pub(crate) async fn answer(
        &self,
        mut chunks: Streaming<LogChunk>,
        may_answer: impl Fn(&str) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let Some(first) = chunks.message().await? else {
            return Ok(());
        };
        let Some(asked) = self.state.lock().asked(first.id, may_answer)? else {
            return Ok(());
        };
        let ended = CancellationToken::new();
        let answer = Answer {
            first,
            rest: chunks,
            end: ended.clone().drop_guard(),
        };
        // A reader that has left drops the answer, and its guard.
        drop(asked.answer.send(answer));
        ended.cancelled().await;
        Ok(())
    }

    /// The nodes that offer logs.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.state.lock().nodes.keys().cloned().collect()
    }

    /// Reads a log of a node.
    pub(crate) async fn read(&self, node: &str, request: LogRequest) -> Result<LogText, LogError> {
        let permit = self.node(node)?.reads.try_acquire_owned();
        let permit = permit.map_err(|_none| LogError::TooMany(node.to_owned()))?;
        let answer = self.ask(node, request).await?;
        Ok(LogText {
            first: Some(answer.first.text).filter(|text| !text.is_empty()),
            rest: answer.rest,
            _end: answer.end,
            _permit: permit,
        })
    }

    /// Lists the runs of an app's pods on a node.
    pub(crate) async fn runs(
        &self,
        node: &str,
        request: LogRequest,
    ) -> Result<Vec<LogRun>, LogError> {
        // An error if the node has left meanwhile: it is not asked then.
        let _permit = self.node(node)?.lists.acquire_owned().await;
        let answer = self.ask(node, request).await?;
        Ok(answer.first.runs)
    }

    fn node(&self, name: &str) -> Result<Node, LogError> {
        self.state.lock().node(name)
    }

    /// Asks a node. The caller has a permit for it.
    async fn ask(&self, node: &str, mut request: LogRequest) -> Result<Answer, LogError> {
        let (answer, _waiting) = {
            let mut state = self.state.lock();
            let offer = state.node(node)?;
            let (sender, answer) = oneshot::channel();
            request.id = state.next_id();
            let id = request.id;
            let asked = Asked {
                node: node.to_owned(),
                answer: sender,
            };
            state.waiting.insert(id, asked);
            // There is a permit for it, so there is room.
            let _ = offer.requests.try_send(request);
            (answer, Waiting { logs: self, id })
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        let answer = answered
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| LogError::NoAnswer(node.to_owned()))?;
        let node = node.to_owned();
        match answer.first.outcome() {
            Outcome::Found => Ok(answer),
            Outcome::NoLog => Err(LogError::NoLog(node)),
            Outcome::NoPrevious => Err(LogError::NoPrevious(node)),
            Outcome::Failed => Err(LogError::Failed {
                node,
                message: answer.first.message,
            }),
        }
    }
}

impl State {
    fn node(&self, name: &str) -> Result<Node, LogError> {
        let offer = self.nodes.get(name).cloned();
        offer.ok_or_else(|| LogError::NotConnected(name.to_owned()))
    }

    /// Takes the request with this id. That of another node stays.
    fn asked(
        &mut self,
        id: u64,
        may_answer: impl Fn(&str) -> Result<(), Status>,
    ) -> Result<Option<Asked>, Status> {
        if let Some(asked) = self.waiting.get(&id) {
            may_answer(&asked.node)?;
        }
        Ok(self.waiting.remove(&id))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// A request that waits. Dropped without an answer, it waits no longer.
struct Waiting<'a> {
    logs: &'a Logs,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.logs.state.lock().waiting.remove(&self.id);
    }
}

impl Stream for Requests {
    type Item = Result<LogRequest, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_recv(cx).map(|request| request.map(Ok))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let mut state = self.logs.state.lock();
        if state
            .nodes
            .get(&self.node)
            .is_some_and(|node| node.id == self.id)
        {
            state.nodes.remove(&self.node);
        }
    }
}

impl Stream for LogText {
    type Item = Result<Vec<u8>, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let next = ready!(Pin::new(&mut self.rest).poll_next(cx));
        Poll::Ready(next.map(|chunk| chunk.map(|chunk| chunk.text)))
    }
}
