//! The delay of served streams: nodes that send beats, and the time until the grant that answers each. It includes the wait of the node's end for
//! its core, as its clock is the only one: the runtime of these nodes should have one thread, and share its core with none of the same priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, Target, connect};
use dormouse_fleet::proto::{Beat, Up};
use dormouse_rows::sample::Sample;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::node;

/// Interval of a node's beats.
const INTERVAL: Duration = Duration::from_millis(10);
/// Longest time until a grant.
const LIMIT: Duration = Duration::from_secs(30);

/// Nodes whose streams are served.
pub(crate) struct Probes {
    nodes: Vec<Probe>,
    /// The runtime of their ends.
    runtime: Handle,
}

struct Probe {
    link: Link,
    /// The last message that was received.
    received: u64,
}

impl Probes {
    /// Opens a stream for each of these nodes, on this runtime.
    pub(crate) async fn open(targets: Vec<(u16, Target)>, runtime: &Handle) -> Result<Self> {
        let opened = runtime.spawn(async move {
            let mut nodes = Vec::new();
            for (number, target) in targets {
                nodes.push(Probe::open(number, target).await?);
            }
            anyhow::Ok(nodes)
        });
        Ok(Self {
            nodes: opened.await??,
            runtime: runtime.clone(),
        })
    }

    /// Sends beats while a future runs; the delays of all grants.
    pub(crate) async fn beside<T>(
        &mut self,
        future: impl Future<Output = Result<T>>,
    ) -> Result<(Sample, T)> {
        let (began, ended) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for probe in self.nodes.drain(..) {
            tasks.spawn_on(probe.beats(Arc::clone(&ended)), &self.runtime);
        }
        let output = future.await;
        let elapsed = began.elapsed();
        ended.store(true, Relaxed);
        let mut delays = Vec::new();
        while let Some(beats) = tasks.join_next().await {
            let (probe, of_one) = beats??;
            self.nodes.push(probe);
            delays.extend(of_one);
        }
        Ok((Sample::new(delays, elapsed, Duration::ZERO), output?))
    }
}

impl Probe {
    async fn open(number: u16, target: Target) -> Result<Self> {
        let hello = node::core(number).open(Boottime::now());
        let mut link = Link::open(connect(target).await?, hello).await?;
        let received = link.receive().await?.seq;
        Ok(Self { link, received })
    }

    async fn beats(mut self, ended: Arc<AtomicBool>) -> Result<(Self, Vec<Duration>)> {
        let mut delays = Vec::new();
        let mut interval = tokio::time::interval(INTERVAL);
        while !ended.load(Relaxed) {
            interval.tick().await;
            let delay = tokio::time::timeout(LIMIT, self.beat()).await;
            delays.push(delay.context("a beat got no grant")??);
        }
        Ok((self, delays))
    }

    async fn beat(&mut self) -> Result<Duration> {
        let (began, at) = (Instant::now(), Boottime::now());
        self.link.send(Up {
            applied: self.received,
            beat: Some(Beat { at_ns: at.0 }),
            ..Up::default()
        })?;
        loop {
            let down = self.link.receive().await?;
            self.received = down.seq;
            if down.grant.is_some_and(|grant| grant.beat_ns >= at.0) {
                return Ok(began.elapsed());
            }
        }
    }
}
