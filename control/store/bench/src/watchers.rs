//! Watch streams of the load: those that read all events, those that never read, and those on other keys.

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::process::Server;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::work;

/// The largest response of a watch.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// An open watch stream.
pub(crate) struct Stream {
    responses: Streaming<WatchResponse>,
    /// The stream is open while this exists.
    _requests: mpsc::Sender<WatchRequest>,
}

impl Stream {
    /// Opens a stream on a connection of its own and waits until all its watches of these ranges are created.
    pub(crate) async fn open(server: &Server, ranges: Vec<(Bytes, Bytes)>) -> Result<Self> {
        let client = WatchClient::new(server.channel().await?);
        let mut client = client.max_decoding_message_size(RESPONSE_BYTES_MAX);
        let count = ranges.len();
        let (requests, queue) = mpsc::channel(count.max(1));
        for (key, range_end) in ranges {
            requests.send(create(key, range_end)).await?;
        }
        let responses = client.watch(ReceiverStream::new(queue)).await?.into_inner();
        let mut stream = Self {
            responses,
            _requests: requests,
        };
        for _ in 0..count {
            stream.next().await?;
        }
        Ok(stream)
    }

    /// Opens a stream that watches all keys of the load.
    pub(crate) async fn of_all(server: &Server) -> Result<Self> {
        Self::open(server, vec![(work::key(0), work::end())]).await
    }

    /// Reads in a task until the event of the [`work::last`] key; returns the number of events.
    pub(crate) fn read(mut self) -> JoinHandle<Result<u64>> {
        tokio::spawn(async move {
            let mut count = 0;
            loop {
                let events = self.next().await?.events;
                count += events.len() as u64;
                let mut keys = events.iter().filter_map(|event| event.kv.as_ref());
                if keys.any(|kv| kv.key == work::last()) {
                    return Ok(count);
                }
            }
        })
    }

    async fn next(&mut self) -> Result<WatchResponse> {
        let response = self.responses.message().await?;
        response.context("the server ended a watch stream")
    }
}

fn create(key: Bytes, range_end: Bytes) -> WatchRequest {
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key,
            range_end,
            prev_kv: true,
            ..WatchCreateRequest::default()
        })),
    }
}

/// Opens streams with `count` watches in all, each of a range of other keys than those of the load.
pub(crate) async fn elsewhere(server: &Server, count: u64) -> Result<Vec<Stream>> {
    let mut streams = Vec::new();
    for part in 0..count / PER_STREAM {
        let numbers = part * PER_STREAM..(part + 1) * PER_STREAM;
        let range = |number| {
            let prefix = format!("/registry/events/{number:09}");
            (
                Bytes::from(format!("{prefix}/")),
                Bytes::from(format!("{prefix}0")),
            )
        };
        streams.push(Stream::open(server, numbers.map(range).collect()).await?);
    }
    Ok(streams)
}

/// Watches of a stream.
const PER_STREAM: u64 = 1_000;
