//! Many apps that fall asleep together, and twice as many.

use std::time::Duration;

use anyhow::Result;
use dormouse_fleet::Boottime;
use dormouse_fleet::lease::{LEASE_DEFAULT, Terms};
use dormouse_rows::{Bound, Row};

use super::awake::{Awake, NODES};
use super::{Options, folder};
use crate::app::Fleet;

/// Apps that fall asleep together.
const APPS: u32 = 10_000;
/// Longest time until they do.
const LIMIT: Duration = Duration::from_mins(3);
/// Their window: all its decisions are part of the measurement.
const WINDOW_S: u32 = 6;

/// CPU seconds of one mass sleep, in control and in its store.
struct Cost {
    control: f64,
    store: f64,
}

pub(super) async fn run(options: &Options) -> Result<()> {
    let once = measure(options, APPS).await?;
    let name = format!("{APPS} apps on {NODES} nodes fall asleep at once: CPU");
    Row::new(
        format!("{name} of control without store"),
        once.control,
        "s",
    )
    .must(Bound::AtMost(2.0))
    .print()?;
    Row::new(format!("{name} of its store"), once.store, "s").print()?;
    let twice = measure(options, 2 * APPS).await?;
    Row::new(
        format!("twice as many: CPU of control, compared with {APPS}"),
        twice.control,
        "s",
    )
    .against(once.control)
    .must(Bound::RatioAtMost(2.2))
    .print()
}

async fn measure(options: &Options, apps: u32) -> Result<Cost> {
    let folder = folder()?;
    let fleet = Fleet {
        window_s: WINDOW_S,
        direct: true,
        ..Fleet::usual(0, apps)
    };
    let Awake {
        apart,
        nodes,
        watch,
    } = Awake::start(options.site(&folder), fleet).await?;
    // Until then a new control waits for nodes that may have a lease of an earlier one, and no app falls asleep.
    let terms = Terms {
        lease: LEASE_DEFAULT,
    };
    tokio::time::sleep(terms.inherited_until(Boottime(0)).since(Boottime(0))).await;
    let (control, store) = (apart.up.process, apart.store.process);
    let before = [control.cpu()?, store.cpu()?];
    nodes.load(std::iter::empty()).await?;
    watch
        .until("all apps are asleep", LIMIT, crate::watch::Seen::all_asleep)
        .await?;
    let spent = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
    let cost = Cost {
        control: spent(control.cpu()?, before[0]),
        store: spent(store.cpu()?, before[1]),
    };
    drop((nodes, watch));
    apart.stop().await?;
    Ok(cost)
}
