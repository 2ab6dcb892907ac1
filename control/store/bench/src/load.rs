//! The load: tasks that each send one request after the other, on a number of connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::process::Server;
use crate::proto::kv_client::KvClient;
use crate::sample::Sample;
use crate::work::{self, Work};

/// Worker threads of the load.
pub(crate) const THREADS: usize = 2;
/// Puts of one transaction that fills a store; etcd's limit is 128.
const FILL_OPS: u64 = 100;
/// Transactions in flight meanwhile.
const FILL_TASKS: u64 = 8;
/// Load before each measurement, as a share of its duration.
const WARM_UP: u32 = 5;

/// Connections, and requests in flight on each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Connections.
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) in_flight: usize,
}

/// The shape of most rows: the CPUs have no pause.
pub(crate) const FULL: Shape = Shape {
    connections: 4,
    in_flight: 64,
};

/// One request at a time.
pub(crate) const SINGLE: Shape = Shape {
    connections: 1,
    in_flight: 1,
};

/// A load on one server.
pub(crate) struct Load<W> {
    clients: Vec<KvClient<Channel>>,
    work: Arc<W>,
}

impl<W: Work> Load<W> {
    /// Connects to the server.
    pub(crate) async fn connect(server: &Server, shape: Shape, work: W) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..shape.connections {
            let client = server.kv().await?;
            clients.extend(std::iter::repeat_n(client, shape.in_flight));
        }
        Ok(Self {
            clients,
            work: Arc::new(work),
        })
    }

    /// Sends requests for this long, after a shorter time without measurement.
    pub(crate) async fn run(&self, server: &Server, time: Duration) -> Result<Sample> {
        self.send(time / WARM_UP).await?;
        self.run_cold(server, time).await
    }

    /// As [`Load::run`], without the time before the measurement.
    pub(crate) async fn run_cold(&self, server: &Server, time: Duration) -> Result<Sample> {
        let (began, cpu) = (Instant::now(), server.cpu()?);
        let latencies = self.send(time).await?;
        let elapsed = began.elapsed();
        Ok(Sample::new(latencies, elapsed, server.cpu_since(cpu)?))
    }

    async fn send(&self, time: Duration) -> Result<Vec<Duration>> {
        let deadline = Instant::now() + time;
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            tasks.spawn(until(deadline, client.clone(), Arc::clone(&self.work)));
        }
        let mut latencies = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            latencies.extend(ended.context("a task of the load failed")??);
        }
        Ok(latencies)
    }
}

async fn until<W: Work>(
    deadline: Instant,
    mut client: KvClient<Channel>,
    work: Arc<W>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut began = Instant::now();
    while began < deadline {
        work.once(&mut client).await?;
        let ended = Instant::now();
        latencies.push(ended - began);
        began = ended;
    }
    Ok(latencies)
}

/// Puts the keys below `keys` once, each with a value of this size, in transactions of 100.
pub(crate) async fn fill(server: &Server, keys: u64, value_bytes: usize) -> Result<()> {
    let value = work::value(value_bytes);
    let mut tasks = JoinSet::new();
    let share = keys.div_ceil(FILL_TASKS);
    for task in 0..FILL_TASKS {
        let numbers = task * share..((task + 1) * share).min(keys);
        tasks.spawn(fill_part(server.kv().await?, numbers, value.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task that fills the store failed")??;
    }
    Ok(())
}

async fn fill_part(
    mut kv: KvClient<Channel>,
    numbers: std::ops::Range<u64>,
    value: Bytes,
) -> Result<()> {
    let mut from = numbers.start;
    while from < numbers.end {
        let to = (from + FILL_OPS).min(numbers.end);
        kv.txn(work::fill(from..to, &value)).await?;
        from = to;
    }
    Ok(())
}
