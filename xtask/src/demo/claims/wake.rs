//! Claims about the first request to a sleeping app.

use anyhow::{Context, Result};

use crate::binaries;
use crate::demo::cluster::{
    CAREFUL, Cluster, DOCS, HELLO, PATIENCE, WAKE_STAGES, pod_processes, timed,
};
use crate::demo::load;
use crate::progress::say;
use crate::report::Row;

/// A page of the repository's `docs/`, which the real web server serves.
const PAGE: &str = "BENCHMARKS.md";

/// The apps exist, have their VIPs, sleep, and cost no process.
pub(crate) fn apply(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let said = cluster.dormouse(&["apply", "-f", "deploy/examples/apps.yaml"])?;
    let interrupt = cluster.interrupt().clone();
    for app in [DOCS, HELLO, CAREFUL] {
        interrupt.wait_for(&format!("{} to be asleep", app.name), PATIENCE, || {
            Ok((cluster.status(app)?["state"] == "Asleep").then_some(()))
        })?;
    }
    let asleep = cluster
        .world()
        .nodes()
        .iter()
        .all(|node| pod_processes(node).is_empty());
    Ok(vec![
        Row::claim(
            "three apps are created from one manifest",
            said.matches("created").count() == 3,
            &said.trim().replace('\n', ", "),
        ),
        Row::claim(
            "asleep they run no process",
            asleep,
            "no process in any pod cgroup",
        ),
    ])
}

/// The first request is parked, the app is started for it, and it is answered.
pub(crate) fn first_request(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let expected = std::fs::read(binaries::root().join("docs").join(PAGE))
        .context("failed to read the page")?;
    let client = cluster.world().client();
    let (answer, took) =
        timed(|| Ok(client.enter(|| load::get(DOCS.address(), &format!("/{PAGE}")))??))?;
    let right = answer.status == 200 && answer.body == expected;
    let mut rows = vec![
        Row::claim(
            "a request to a sleeping app is answered",
            right,
            &format!("{}, {} bytes", answer.status, answer.body.len()),
        ),
        Row::measured("  in", took.as_secs_f64() * 1e3, "ms"),
    ];
    rows.extend(timeline(cluster)?);
    Ok(rows)
}

/// Every stage of the wake has its time, on one clock, the first from the kernel.
fn timeline(cluster: &Cluster) -> Result<Vec<Row>> {
    let stages = cluster.last_wake(DOCS.name)?;
    say(&cluster.dormouse(&["wake", "timeline", DOCS.name])?);
    let each = WAKE_STAGES.iter().zip(&stages);
    let mut rows: Vec<_> = each
        .map(|(name, ms)| Row::measured(&format!("  {name}"), *ms, "ms after the packet"))
        .collect();
    // Whether the request is parked before or after the decision is a race: the kernel's event may win.
    let chain = WAKE_STAGES.iter().zip(&stages);
    let chain = chain.filter_map(|(name, ms)| (*name != "park").then_some(*ms));
    let ordered = stages.first() == Some(&0.0) && chain.is_sorted();
    let seen = format!("{} stages, the first in the kernel", stages.len());
    rows.push(Row::claim(
        "the wake's timeline is whole and runs forwards",
        ordered,
        &seen,
    ));
    Ok(rows)
}
