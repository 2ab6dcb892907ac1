//! Answers control's requests for the logs of the node's pods, each on a stream of its own.

use std::io;
use std::time::Duration;

use dormouse_agent_logs::{Folder, Next, Reader, Run, Selection};
use dormouse_fleet::client::{LinkError, LogLink};
use dormouse_fleet::proto::log_chunk::Outcome;
use dormouse_fleet::proto::{LogChunk, LogRequest, LogRun};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use tonic::transport::Channel;
use tracing::warn;

/// Parts of a log that are read ahead of the stream.
const CHUNKS_MAX: usize = 2;
/// Interval at which a log that is followed is read.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// Pause before the offer of logs is repeated on a connection that works otherwise.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The logs of this node, for control.
#[derive(Clone, Debug)]
pub struct FleetLogs {
    /// Name of the node.
    pub node: String,
    /// Its logs.
    pub folder: Folder,
}

impl FleetLogs {
    /// Offers the logs on this connection until the handle is dropped.
    pub(super) fn offer(&self, channel: Channel) -> AbortOnDropHandle<()> {
        let logs = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Err(error) = logs.serve(channel.clone()).await {
                if is_unknown(&error) {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }))
    }

    async fn serve(&self, channel: Channel) -> Result<(), LinkError> {
        let mut link = LogLink::open(channel, self.node.clone()).await?;
        let mut answers = JoinSet::new();
        loop {
            tokio::select! {
                request = link.receive() => {
                    let (chunks, queue) = mpsc::channel(CHUNKS_MAX);
                    let sent = link.answer(queue);
                    let answered = answer(self.folder.clone(), request?, chunks);
                    answers.spawn(send(sent, answered));
                }
                Some(_) = answers.join_next() => {}
            }
        }
    }
}

/// Control is of an earlier release, which asks for no logs.
fn is_unknown(error: &LinkError) -> bool {
    matches!(error, LinkError::Ended(status) if status.code() == Code::Unimplemented)
}

/// Sends an answer while it is made, until control has it or wants no more.
async fn send(
    sent: impl Future<Output = Result<(), LinkError>>,
    answered: impl Future<Output = ()>,
) {
    let mut sent = std::pin::pin!(sent);
    tokio::select! {
        // Control wants no more, or the connection is lost.
        _ = &mut sent => {}
        () = answered => drop(sent.await),
    }
}

async fn answer(folder: Folder, request: LogRequest, chunks: mpsc::Sender<LogChunk>) {
    let id = request.id;
    let follow = request.follow;
    let begun = tokio::task::spawn_blocking(move || begin(folder, &request)).await;
    let (first, reader) = begun
        .map_err(io::Error::other)
        .flatten()
        .unwrap_or_else(|error| {
            warn!(%error, "failed to read a pod's log for control");
            (failure(Outcome::Failed, error.to_string()), None)
        });
    if chunks.send(LogChunk { id, ..first }).await.is_err() {
        return;
    }
    if let Some(reader) = reader
        && let Err(error) = copy(reader, follow, &chunks).await
    {
        warn!(%error, "failed to read a pod's log for control: the answer is cut off");
    }
}

/// The first message of an answer, and the log if the request is for one that exists.
fn begin(folder: Folder, request: &LogRequest) -> io::Result<(LogChunk, Option<Reader>)> {
    if request.list {
        let runs = list(&folder, request)?;
        return Ok((
            LogChunk {
                runs,
                ..LogChunk::default()
            },
            None,
        ));
    }
    let run = match find(&folder, request)? {
        Ok(run) => run,
        Err(outcome) => return Ok((failure(outcome, String::new()), None)),
    };
    let selection = Selection {
        tail_lines: request.tail_lines,
        since: request
            .since_ms
            .and_then(|at| Timestamp::from_millisecond(at).ok()),
        timestamps: request.timestamps,
        limit_bytes: request.limit_bytes,
    };
    let reader = Reader::open(folder, run, &selection, request.follow)?;
    Ok((LogChunk::default(), Some(reader)))
}

fn failure(outcome: Outcome, message: String) -> LogChunk {
    LogChunk {
        outcome: outcome.into(),
        message,
        ..LogChunk::default()
    }
}

fn list(folder: &Folder, request: &LogRequest) -> io::Result<Vec<LogRun>> {
    let mut found = Vec::new();
    for run in folder.runs()? {
        // A log may be removed at any time.
        let Ok(meta) = folder.meta(&run) else {
            continue;
        };
        if meta.namespace != request.namespace || meta.app != request.app {
            continue;
        }
        let Ok(ended) = folder.ended_at(&run) else {
            continue;
        };
        let ended = ended.and_then(|at| Timestamp::try_from(at).ok());
        let extent = folder.extent(&run).unwrap_or_default();
        found.push(LogRun {
            name: meta.name,
            uid: run.uid,
            attempt: run.attempt,
            ended_ms: ended.map_or(0, Timestamp::as_millisecond),
            bytes: extent.bytes,
            removed_bytes: extent.removed,
            age_ms: extent.since.map(age_ms),
        });
    }
    Ok(found)
}

fn age_ms(since: Timestamp) -> u64 {
    let ms = Timestamp::now().as_millisecond() - since.as_millisecond();
    u64::try_from(ms).unwrap_or(0)
}

fn find(folder: &Folder, request: &LogRequest) -> io::Result<Result<Run, Outcome>> {
    let mut runs = if request.uid.is_empty() {
        let mut runs = folder.runs()?;
        runs.retain(|run| {
            let meta = folder.meta(run);
            meta.is_ok_and(|meta| meta.namespace == request.namespace && meta.name == request.name)
        });
        runs
    } else {
        folder.runs_of(&request.uid)?
    };
    let last = runs.pop();
    Ok(match (last, request.previous) {
        (None, _) => Err(Outcome::NoLog),
        (Some(run), false) => Ok(run),
        (Some(_), true) => runs.pop().ok_or(Outcome::NoPrevious),
    })
}

async fn copy(mut reader: Reader, follow: bool, chunks: &mpsc::Sender<LogChunk>) -> io::Result<()> {
    loop {
        let read = tokio::task::spawn_blocking(move || (reader.read(), reader)).await;
        let (next, back) = read.map_err(io::Error::other)?;
        reader = back;
        match next? {
            Next::Text(text) => {
                let chunk = LogChunk {
                    text,
                    ..LogChunk::default()
                };
                if chunks.send(chunk).await.is_err() {
                    return Ok(());
                }
            }
            Next::Wait if follow => tokio::time::sleep(FOLLOW_EVERY).await,
            Next::Wait | Next::End => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
