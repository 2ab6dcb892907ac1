//! The load: tasks that each send one request after the other, on a number of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
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
const FILL_OPS: usize = 100;
/// Transactions in flight meanwhile.
const FILL_TASKS: usize = 8;
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
        self.warm_up(time).await?;
        self.run_cold(server, time).await
    }

    /// Sends requests before a measurement of this length.
    pub(crate) async fn warm_up(&self, time: Duration) -> Result<()> {
        self.send(until(time / WARM_UP)).await.map(drop)
    }

    /// As [`Load::run`], without the time before the measurement.
    pub(crate) async fn run_cold(&self, server: &Server, time: Duration) -> Result<Sample> {
        self.measure(server, until(time)).await
    }

    /// Sends this many requests.
    pub(crate) async fn run_count(&self, server: &Server, count: u64) -> Result<Sample> {
        let sent = AtomicU64::new(0);
        let goes_on = move |_| sent.fetch_add(1, Relaxed) < count;
        self.measure(server, goes_on).await
    }

    /// Sends requests while a future runs, whose output it returns, too.
    pub(crate) async fn beside<T>(
        &self,
        server: &Server,
        future: impl Future<Output = Result<T>>,
    ) -> Result<(Sample, T)> {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let sample = self.measure(server, move |_| !seen.load(Relaxed));
        let future = async {
            let output = future.await;
            ended.store(true, Relaxed);
            output
        };
        let (sample, output) = futures::join!(sample, future);
        Ok((sample?, output?))
    }

    async fn measure(&self, server: &Server, goes_on: impl GoesOn) -> Result<Sample> {
        let (began, cpu) = (Instant::now(), server.cpu()?);
        let latencies = self.send(goes_on).await?;
        let elapsed = began.elapsed();
        Ok(Sample::new(latencies, elapsed, server.cpu_since(cpu)?))
    }

    async fn send(&self, goes_on: impl GoesOn) -> Result<Vec<Duration>> {
        let goes_on = Arc::new(goes_on);
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            let (work, goes_on) = (Arc::clone(&self.work), Arc::clone(&goes_on));
            tasks.spawn(one_after_the_other(client.clone(), work, goes_on));
        }
        all(tasks).await
    }

    /// Sends requests at a rate, in requests a second, for this long, whether or not earlier ones are answered: an open loop. A
    /// latency counts from the time at which the request was due, so that requests that could not be sent in time count as late.
    pub(crate) async fn run_open(
        &self,
        server: &Server,
        time: Duration,
        rate: f64,
    ) -> Result<Sample> {
        let (began, cpu) = (Instant::now(), server.cpu()?);
        let schedule = Arc::new(Schedule {
            began,
            interval: Duration::from_secs_f64(1.0 / rate),
            end: began + time,
            next: AtomicU32::new(0),
        });
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            let (work, schedule) = (Arc::clone(&self.work), Arc::clone(&schedule));
            tasks.spawn(on_schedule(client.clone(), work, schedule));
        }
        let latencies = all(tasks).await?;
        let elapsed = began.elapsed();
        Ok(Sample::new(latencies, elapsed, server.cpu_since(cpu)?))
    }
}

/// Whether a task sends another request, at this time.
trait GoesOn: Fn(Instant) -> bool + Send + Sync + 'static {}

impl<F: Fn(Instant) -> bool + Send + Sync + 'static> GoesOn for F {}

fn until(time: Duration) -> impl GoesOn {
    let deadline = Instant::now() + time;
    move |now| now < deadline
}

/// The latencies of all tasks.
async fn all(mut tasks: JoinSet<Result<Vec<Duration>>>) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended.context("a task of the load failed")??);
    }
    Ok(latencies)
}

async fn one_after_the_other<W: Work>(
    mut client: KvClient<Channel>,
    work: Arc<W>,
    goes_on: Arc<impl GoesOn>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut began = Instant::now();
    while goes_on(began) {
        work.once(&mut client).await?;
        let ended = Instant::now();
        latencies.push(ended - began);
        began = ended;
    }
    Ok(latencies)
}

/// The times at which the requests of an open loop are due.
struct Schedule {
    began: Instant,
    interval: Duration,
    end: Instant,
    next: AtomicU32,
}

impl Schedule {
    /// The time at which the next request is due, before the end.
    fn next(&self) -> Option<Instant> {
        let due = self.began + self.interval * self.next.fetch_add(1, Relaxed);
        (due < self.end).then_some(due)
    }
}

async fn on_schedule<W: Work>(
    mut client: KvClient<Channel>,
    work: Arc<W>,
    schedule: Arc<Schedule>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while let Some(due) = schedule.next() {
        tokio::time::sleep_until(due.into()).await;
        work.once(&mut client).await?;
        latencies.push(due.elapsed());
    }
    Ok(latencies)
}

/// Puts the keys below `keys` once, in order, each with a value of this size, in transactions of 100.
pub(crate) async fn fill(server: &Server, keys: u64, value_bytes: usize) -> Result<()> {
    fill_numbers(server, (0..keys).collect(), value_bytes).await
}

/// As [`fill`], in a random order, which is the same each time.
pub(crate) async fn fill_scattered(server: &Server, keys: u64, value_bytes: usize) -> Result<()> {
    let mut numbers: Vec<_> = (0..keys).collect();
    fastrand::Rng::with_seed(keys).shuffle(&mut numbers);
    fill_numbers(server, numbers, value_bytes).await
}

async fn fill_numbers(server: &Server, numbers: Vec<u64>, value_bytes: usize) -> Result<()> {
    let value = work::value(value_bytes);
    let mut tasks = JoinSet::new();
    let share = numbers.len().div_ceil(FILL_TASKS).max(1);
    for part in numbers.chunks(share) {
        tasks.spawn(fill_part(server.kv().await?, part.to_vec(), value.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task that fills the store failed")??;
    }
    Ok(())
}

async fn fill_part(mut kv: KvClient<Channel>, numbers: Vec<u64>, value: Bytes) -> Result<()> {
    for numbers in numbers.chunks(FILL_OPS) {
        kv.txn(work::fill(numbers, &value)).await?;
    }
    Ok(())
}
