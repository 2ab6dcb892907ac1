//! Claims about the first request to a sleeping app.

use anyhow::{Context, Result, ensure};

use crate::binaries;
use crate::demo::cluster::{CAREFUL, Cluster, DOCS, HELLO, PATIENCE, pod_processes, timed};
use crate::demo::load;
use crate::progress::say;
use crate::report::{Bound, Row};

/// The stages that a wake's timeline must have, in its words.
const STAGES: [&str; 8] = [
    "see",
    "park",
    "decide",
    "place",
    "wire",
    "start",
    "ready",
    "first byte",
];
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
    let interrupt = cluster.interrupt().clone();
    let wake = interrupt.wait_for("a complete timeline of the wake", PATIENCE, || {
        let report = cluster.json(&["wake", "timeline", DOCS.name])?;
        let stages = report["stages"].as_array().cloned().unwrap_or_default();
        let missing = STAGES
            .iter()
            .any(|name| !stages.iter().any(|stage| stage["name"] == *name));
        Ok((!missing).then_some(stages))
    })?;
    say(&cluster.dormouse(&["wake", "timeline", DOCS.name])?);
    let at = |name: &str| {
        wake.iter()
            .find(|stage| stage["name"] == name)
            .and_then(|stage| stage["ms"].as_f64())
    };
    let mut rows = Vec::new();
    for name in STAGES {
        let ms = at(name).with_context(|| format!("the timeline lacks `{name}`"))?;
        rows.push(Row::measured(
            &format!("  {name}"),
            ms,
            "ms after the packet",
        ));
    }
    let ends = (at("see"), at("first byte"));
    ensure!(
        matches!(ends, (Some(seen), Some(answered)) if seen < answered),
        "the timeline runs backwards: {ends:?}"
    );
    rows.push(
        Row::measured("stages in the wake's timeline", rows.len() as f64, "")
            .must(Bound::AtLeast(STAGES.len() as f64)),
    );
    Ok(rows)
}
