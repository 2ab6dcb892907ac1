//! Equal pods of our store, from the start of the scheduler until the last one is bound there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_cluster::{Client, Key, Object};
use dormouse_rows::process::Process;
use dormouse_rows::{Bound, Row};
use dormouse_scheduler::Server;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::objects::{node, pod};
use crate::store::Served;

/// Creations at one time.
const CREATIONS_MAX: usize = 512;
/// Interval at which the end is looked for.
const POLL: Duration = Duration::from_millis(20);
/// The longest run for which the bound is meant.
const PODS: usize = 1_000_000;
/// The line of the metrics with the number of bound pods.
const SCHEDULED: &str = "scheduler_schedule_attempts_total{result=\"scheduled\"";

/// Rows of the time, and of the CPU time of both processes.
pub(crate) fn rows(nodes_len: usize, pods_len: usize) -> Result<()> {
    let served = Served::start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = Client::connect(&served.endpoint).await?;
        let nodes = (0..nodes_len).map(|index| node(index, ("32", "256Gi")));
        create(&client, nodes).await?;
        let pods = (0..pods_len).map(|index| pod(&format!("pod-{index:07}"), ("100m", "100Mi"), 0));
        create(&client, pods).await?;
        let (own, store) = (Process(std::process::id()), served.process());
        let before = (own.cpu()?, store.cpu()?);
        let elapsed = run(&client, pods_len).await?;
        let cpu = (
            own.cpu()?.saturating_sub(before.0),
            store.cpu()?.saturating_sub(before.1),
        );
        check(&client, pods_len).await?;
        let name = format!("A end to end: {pods_len} equal pods on {nodes_len} nodes, from the list to the last binding");
        let row = Row::new(&name, elapsed.as_secs_f64(), "s");
        let row = if pods_len >= PODS {
            row.must(Bound::AtMost(60.0))
        } else {
            row
        };
        row.print()?;
        for (name, cpu) in [("scheduler", cpu.0), ("store", cpu.1)] {
            let each = cpu.as_secs_f64() * 1e6 / pods_len as f64;
            Row::new(format!("A end to end: CPU time for a pod, {name}"), each, "µs").print()?;
        }
        let resident = own.resident()? as f64 / 1e6;
        Row::new("A end to end: memory of the scheduler", resident, "MB").print()
    })
}

async fn create<K: Object>(
    client: &Client,
    objects: impl Iterator<Item = Result<K>>,
) -> Result<()> {
    let created = stream::iter(objects).map(|object| async move {
        client.insert(&object?).await?;
        anyhow::Ok(())
    });
    created.buffer_unordered(CREATIONS_MAX).try_collect().await
}

/// Runs a scheduler until it has bound all pods.
async fn run(client: &Client, pods_len: usize) -> Result<Duration> {
    let mut registry = Registry::default();
    let server = Server::new(client.clone());
    server.register(&mut registry);
    let listener = TcpListener::bind("[::1]:0").await?;
    let shutdown = CancellationToken::new();
    let begin = Instant::now();
    let task = tokio::spawn(server.follow(listener, shutdown.clone()));
    while bound(&registry)? < pods_len {
        ensure!(!task.is_finished(), "the scheduler has ended");
        tokio::time::sleep(POLL).await;
    }
    let elapsed = begin.elapsed();
    shutdown.cancel();
    task.await??;
    Ok(elapsed)
}

fn bound(registry: &Registry) -> Result<usize> {
    let mut page = String::new();
    encode(&mut page, registry)?;
    let line = page.lines().find(|line| line.starts_with(SCHEDULED));
    let Some(count) = line.and_then(|line| line.rsplit(' ').next()) else {
        return Ok(0);
    };
    count.parse().context("the number of bound pods is none")
}

/// Fails unless a sample of the pods is bound in the store.
async fn check(client: &Client, pods_len: usize) -> Result<()> {
    for index in (0..pods_len).step_by(pods_len.div_ceil(100)) {
        let key = Key::new("default", format!("pod-{index:07}"));
        let pod: Option<Pod> = client.get(&key).await?;
        let node = pod.and_then(|pod| pod.spec?.node_name);
        ensure!(node.is_some(), "{key} is not bound");
    }
    Ok(())
}
