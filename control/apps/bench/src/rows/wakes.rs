//! Wakes: how many a second are decided and written, how long one takes, and what apps that never become ready change.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_cluster::Client;
use dormouse_rows::process::Process;
use dormouse_rows::sample::{Sample, median};
use dormouse_rows::{Bound, Row};

use super::{Options, folder};
use crate::app::Fleet;
use crate::node::{Nodes, STUCK};
use crate::parked::Parked;
use crate::pauses::{Longest, Pauses};
use crate::watch::Watch;

/// Nodes, each of which sends its share of the first packets.
const NODES: u16 = 100;
/// Apps that are woken at once.
const BURST: Fleet = Fleet::usual(0, 10_000);
/// Apps that are woken one after the other, in each round.
const ROUND: u32 = 500;
/// Rounds without stuck apps, and as many beside them, in turns: a p99 of one round is five wakes, which one pause of the host delays.
const ROUNDS: u32 = 3;
/// Apps whose pods never become ready, in each round beside them.
const STUCK_APPS: u32 = 200;
/// Parked requests of each of them: 1,000 in all.
const PARKED_EACH: usize = 5;
/// Time from one wake to the next.
const PACE: Duration = Duration::from_millis(5);
/// Longest time until a burst is written.
const BURST_LIMIT: Duration = Duration::from_mins(2);
/// Longest time until a single wake is written, and until what follows a burst is over.
const LIMIT: Duration = Duration::from_secs(30);
/// The store is at rest when it has had no event for this long.
const REST: Duration = Duration::from_secs(1);

/// The apps of a round without stuck ones.
const fn alone(round: u32) -> Fleet {
    Fleet::usual(20_000 + round * ROUND, ROUND)
}

/// The apps of a round beside stuck ones.
const fn beside(round: u32) -> Fleet {
    Fleet::usual(30_000 + round * ROUND, ROUND)
}

/// The stuck apps of a round.
const fn waiting(round: u32) -> Fleet {
    Fleet {
        stem: STUCK,
        ..Fleet::usual(40_000 + round * STUCK_APPS, STUCK_APPS)
    }
}

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let (store, client) = site.store().await?;
    BURST.put(&client).await?;
    for round in 0..ROUNDS {
        for fleet in [alone(round), beside(round), waiting(round)] {
            fleet.put(&client).await?;
        }
    }
    store.stop().await?;
    let up = site.up()?;
    up.listens(site.folder).await?;
    let client = crate::control::client().await?;
    let watch = Watch::start(&client).await?;
    let nodes = Nodes::open(NODES).await?;
    rest(&watch).await;
    let (mut none, mut stuck) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        none.push(one_by_one(&nodes, &watch, alone(round)).await?);
        stuck.push(beside_stuck(&nodes, &watch, &client, round).await?);
    }
    let name = format!("wakes of {ROUND} apps, one after the other");
    report(&name, &none, None)?;
    let name = format!(
        "the same beside {STUCK_APPS} stuck apps with {} parked requests",
        STUCK_APPS as usize * PARKED_EACH
    );
    report(&name, &stuck, Some(&none))?;
    rest(&watch).await;
    let woken = (ROUNDS * (2 * ROUND + STUCK_APPS)) as usize;
    burst(&nodes, &watch, woken, up.process).await?;
    up.stop().await
}

/// A round beside stuck apps, which are deleted after it.
async fn beside_stuck(nodes: &Nodes, watch: &Watch, client: &Client, round: u32) -> Result<Sample> {
    let waiting = waiting(round);
    nodes.wake(waiting.vips()).await?;
    let parked = Parked::at(waiting.vips(), PARKED_EACH).await?;
    let all = waiting.count as usize;
    let what = "the pods of the stuck apps";
    watch
        .until(what, LIMIT, |seen| seen.pods_of(STUCK) == all)
        .await?;
    rest(watch).await;
    let sample = one_by_one(nodes, watch, beside(round)).await?;
    drop(parked);
    waiting.remove(client).await?;
    let what = "the end of the stuck apps";
    watch
        .until(what, LIMIT, |seen| seen.pods_of(STUCK) == 0)
        .await?;
    rest(watch).await;
    Ok(sample)
}

/// The time from each app's first packet, at its node, to its pod in the store.
async fn one_by_one(nodes: &Nodes, watch: &Watch, fleet: Fleet) -> Result<Sample> {
    let pauses = Pauses::begin().await?;
    let began = Instant::now();
    let mut pace = tokio::time::interval(PACE);
    let mut sent = Vec::new();
    for vip in fleet.vips() {
        pace.tick().await;
        sent.push((vip, Instant::now()));
        nodes.wake(std::iter::once(vip)).await?;
    }
    let keys: Vec<_> = fleet.vips().map(|vip| fleet.key(vip)).collect();
    watch
        .until("a pod of each app", LIMIT, |seen| seen.has_first(&keys))
        .await?;
    let latencies = sent
        .iter()
        .map(|(vip, sent)| {
            let written = watch.first(&fleet.key(*vip)).context("an app has no pod")?;
            Ok(written.duration_since(*sent))
        })
        .collect::<Result<Vec<_>>>()?;
    let sample = Sample::new(latencies, began.elapsed(), Duration::ZERO);
    explain(&sample, &pauses.end().await?)?;
    Ok(sample)
}

/// Prints one round, with what can have delayed its slowest wakes.
fn explain(sample: &Sample, longest: &Longest) -> Result<()> {
    let name = |what: &str| format!("one round of wakes: {what}");
    let p99 = sample.latency_us(0.99) / 1e3;
    Row::new(name("p99"), p99, "ms").print()?;
    let turn = "longest turn of a shard, at most";
    Row::new(name(turn), longest.turn, "ms").print()?;
    let timer = "longest pause of a timer beside control";
    Row::new(name(timer), longest.timer, "ms").print()
}

fn report(name: &str, rounds: &[Sample], none: Option<&[Sample]>) -> Result<()> {
    let ms = |rounds: &[Sample], share| median(rounds, |round| round.latency_us(share) / 1e3);
    let row = |share| {
        Row::new(
            format!(
                "{name}: p{} of the time to the pod in the store, median of {ROUNDS} rounds",
                100.0 * share
            ),
            ms(rounds, share),
            "ms",
        )
    };
    row(0.5).print()?;
    row(0.99).must(Bound::AtMost(5.0)).print()?;
    if let Some(none) = none {
        Row::new("the same, compared with none stuck", ms(rounds, 0.99), "ms")
            .against(ms(none, 0.99))
            .must(Bound::RatioAtMost(1.5))
            .print()?;
    }
    Ok(())
}

/// Wakes many apps at once, after this number of other apps. What has begun to follow the first wakes, up to ready pods in the
/// store, takes its part of the CPU too, and so do the nodes and watches of this process.
async fn burst(nodes: &Nodes, watch: &Watch, before: usize, control: Process) -> Result<()> {
    let keys: Vec<_> = BURST.vips().map(|vip| BURST.key(vip)).collect();
    let own = Process(std::process::id());
    let (control_before, own_before) = (control.cpu()?, own.cpu()?);
    let began = Instant::now();
    nodes.wake(BURST.vips()).await?;
    let all = before + keys.len();
    let what = "a pod of each app";
    watch
        .until(what, BURST_LIMIT, |seen| seen.woken(all))
        .await?;
    let spent = [
        control.cpu()?.saturating_sub(control_before),
        own.cpu()?.saturating_sub(own_before),
    ];
    let last = keys.iter().filter_map(|key| watch.first(key)).max();
    let elapsed = last.context("no app has a pod")?.duration_since(began);
    Row::new(
        format!("wakes of {} apps at once, decided and written", BURST.count),
        f64::from(BURST.count) / elapsed.as_secs_f64(),
        "/s",
    )
    .must(Bound::AtLeast(5_000.0))
    .print()?;
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(BURST.count);
    for (whose, spent) in [
        "control with its store",
        "the nodes and watches of the measurement",
    ]
    .into_iter()
    .zip(spent)
    {
        Row::new(
            format!("the same: CPU of {whose}, by wake"),
            each(spent),
            "µs",
        )
        .print()?;
    }
    Ok(())
}

/// Waits until nothing happens in the store.
async fn rest(watch: &Watch) {
    let quiet = async {
        loop {
            tokio::time::sleep(REST).await;
            if watch.last().is_none_or(|last| last.elapsed() >= REST) {
                return;
            }
        }
    };
    // A store that is never at rest is measured as it is.
    drop(tokio::time::timeout(LIMIT, quiet).await);
}
