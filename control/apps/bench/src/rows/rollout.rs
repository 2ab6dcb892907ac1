//! Revisions of many apps: what it takes to replace the pods of all of them, and what earlier revisions cost while apps sleep.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_rows::{Bound, Row};
use tokio::process::Command;

use super::awake::Awake;
use super::sleeping::{apart, together};
use super::{Options, folder};
use crate::app::Fleet;
use crate::control::API;

/// Awake apps with one pod each, whose template changes.
const APPS: Fleet = Fleet {
    direct: true,
    ..Fleet::usual(0, 1_000)
};
/// Longest time until all their pods are replaced.
const LIMIT: Duration = Duration::from_mins(3);
/// Sleeping apps whose revisions are counted, and the earlier revisions of each.
const ASLEEP: (Fleet, u32) = (Fleet::usual(0, 50_000), 5);

pub(super) async fn run(options: &Options) -> Result<()> {
    replace(options).await?;
    memory(options).await
}

async fn replace(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let Awake {
        apart,
        nodes,
        watch,
    } = Awake::start(site, APPS).await?;
    let manifests = folder.path().join("apps.yaml");
    let text: Vec<String> = APPS.vips().map(|vip| APPS.manifest(vip)).collect();
    std::fs::write(&manifests, text.concat()).context("failed to write the manifests")?;
    let control = apart.up.process;
    let (before, began) = (control.cpu()?, Instant::now());
    let mut apply = Command::new(site.program);
    apply
        .args(["--endpoint", API, "apply", "-f"])
        .arg(manifests);
    let applied = apply.output().await.context("failed to start dormouse")?;
    let errors = String::from_utf8_lossy(&applied.stderr);
    ensure!(applied.status.success(), "`dormouse apply`: {errors}");
    let count = APPS.count as usize;
    let what = "the pods of all apps are replaced";
    watch
        .until(what, LIMIT, |seen| seen.are_replaced(count))
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = control.cpu()?.saturating_sub(before).as_secs_f64();
    let name = format!("{count} awake apps get another template: until all pods are replaced");
    Row::new(&name, seconds, "s")
        .must(Bound::AtMost(60.0))
        .print()?;
    let name = "meanwhile: CPU of control without store";
    Row::new(name, 100.0 * cpu / seconds, "% of a core")
        .must(Bound::AtMost(100.0))
        .print()?;
    drop((nodes, watch));
    apart.stop().await
}

async fn memory(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let (apps, revisions) = ASLEEP;
    let (store, client) = site.store().await?;
    apps.put(&client).await?;
    store.stop().await?;
    let without = (apart(site).await?, together(site).await?);
    let (store, client) = site.store().await?;
    apps.put_revisions(&client, revisions).await?;
    store.stop().await?;
    let with = (apart(site).await?, together(site).await?);
    let of_each = |with: f64, without: f64| (with - without) / f64::from(apps.count);
    let name = format!(
        "a sleeping app with {revisions} earlier revisions: memory of `dormouse up --without store`, over one without"
    );
    Row::new(&name, of_each(with.0, without.0), "B")
        .must(Bound::AtMost(100.0))
        .print()?;
    // The store holds the revisions: their bytes are what they cost.
    let name = "  memory of `dormouse up` with the store, over one without";
    Row::new(name, of_each(with.1, without.1), "B").print()
}
