//! Wakes: how many a second are decided and written, how long one takes, and what apps that never become ready change.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_rows::process::Process;
use dormouse_rows::sample::Sample;
use dormouse_rows::{Bound, Row};

use super::{Options, folder};
use crate::app::Fleet;
use crate::node::{Nodes, STUCK};
use crate::parked::Parked;
use crate::watch::Watch;

/// Nodes, each of which sends its share of the first packets.
const NODES: u16 = 100;
/// Apps that are woken at once.
const BURST: Fleet = Fleet::usual(0, 10_000);
/// Apps that are woken one after the other while nothing else happens.
const ALONE: Fleet = Fleet::usual(20_000, 500);
/// The same beside the stuck ones.
const BESIDE: Fleet = Fleet::usual(30_000, 500);
/// Apps whose pods never become ready.
const WAITING: Fleet = Fleet {
    stem: STUCK,
    ..Fleet::usual(40_000, 200)
};
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

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let (store, client) = site.store().await?;
    for fleet in [BURST, ALONE, BESIDE, WAITING] {
        fleet.put(&client).await?;
    }
    store.stop().await?;
    let up = site.up()?;
    up.listens(site.folder).await?;
    let client = crate::control::client().await?;
    let watch = Watch::start(&client).await?;
    let nodes = Nodes::open(NODES).await?;
    rest(&watch).await;
    let none = Parked::none();
    let alone = one_by_one(&nodes, &watch, ALONE).await?;
    report("wakes of 500 apps, one after the other", &alone, None)?;
    nodes.wake(WAITING.vips()).await?;
    let parked = Parked::at(WAITING.vips(), PARKED_EACH).await?;
    let stuck = WAITING.count as usize;
    let woken = ALONE.count as usize + stuck;
    let what = "the pods of the stuck apps";
    watch.until(what, LIMIT, |seen| seen.woken(woken)).await?;
    rest(&watch).await;
    let beside = one_by_one(&nodes, &watch, BESIDE).await?;
    let name = format!(
        "the same beside {stuck} stuck apps with {} parked requests",
        parked.len()
    );
    report(&name, &beside, Some(&alone))?;
    drop((parked, none));
    rest(&watch).await;
    let woken = woken + BESIDE.count as usize;
    burst(&nodes, &watch, woken, up.process).await?;
    up.stop().await
}

/// The time from each app's first packet, at its node, to its pod in the store.
async fn one_by_one(nodes: &Nodes, watch: &Watch, fleet: Fleet) -> Result<Sample> {
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
    Ok(Sample::new(latencies, began.elapsed(), Duration::ZERO))
}

fn report(name: &str, sample: &Sample, none: Option<&Sample>) -> Result<()> {
    let ms = |sample: &Sample, share| sample.latency_us(share) / 1e3;
    let row = |share| {
        Row::new(
            format!(
                "{name}: p{} of the time to the pod in the store",
                100.0 * share
            ),
            ms(sample, share),
            "ms",
        )
    };
    row(0.5).print()?;
    row(0.99).must(Bound::AtMost(5.0)).print()?;
    if let Some(none) = none {
        Row::new("the same, compared with none stuck", ms(sample, 0.99), "ms")
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
